/*
 * Any bytes as a stream from either side: nothing is read outside them, no frame is larger than promised, and what
 * decodes, encodes to the same bytes again.
 */
#include "proto/file.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t out[FILE_FRAME_MAX];

static void same(const struct file_frame *f, long n)
{
	if (n != (long)f->len || memcmp(out, f->payload, f->len))
		abort();
}

static void stream(enum file_from from, const uint8_t *data, size_t size)
{
	struct file_request q;
	struct file_entry x;
	struct file_event v;
	struct file_frame f;
	struct file_dress s;
	struct file_end d;
	long n;

	while ((n = file_decode(from, data, size, &f)) > 0) {
		if ((size_t)n > size || n > (long)FILE_FRAME_MAX || f.len != (size_t)n - FILE_HEAD)
			abort();
		file_head(out, f.type, f.flags, f.tag, f.len);
		if (memcmp(out, data, FILE_HEAD))
			abort();
		/* Each payload as each of the types: a head is no promise. */
		if (file_request_decode(&f, &q) == 0)
			same(&f, file_request_encode(&q, out, sizeof(out)));
		if (file_dress_decode(&f, &s) == 0)
			same(&f, file_dress_encode(&s, out, sizeof(out)));
		if (file_entry_decode(&f, &x) == 0)
			same(&f, file_entry_encode(&x, out, sizeof(out)));
		if (file_end_decode(&f, &d) == 0)
			same(&f, file_end_encode(&d, out, sizeof(out)));
		if (file_event_decode(&f, &v) == 0)
			same(&f, file_event_encode(&v, out, sizeof(out)));
		data += n;
		size -= (size_t)n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	stream(FILE_FROM_HOST, data, size);
	stream(FILE_FROM_WORKER, data, size);
	return 0;
}
