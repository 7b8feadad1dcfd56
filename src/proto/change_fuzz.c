/* Any bytes as a stream of changes: nothing is read outside them, and what decodes, encodes to the same bytes again. */
#include "proto/change.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t out[CHANGE_FRAME_MAX];

static void same(const struct change_frame *f, long n)
{
	if (n != (long)f->len || memcmp(out, f->payload, f->len))
		abort();
}

static void entry(const struct change_frame *f, const struct change_entry *x)
{
	struct change_xattr a;
	uint64_t offset, len, sum = 0;
	uint32_t at = 0;

	same(f, change_entry_encode(x, out, sizeof(out)));
	while (change_xattr_next(x, &at, &a))
		for (uint32_t i = 0; i < a.len; i++)
			sum += a.value[i];
	for (uint32_t i = 0; i < x->nextents; i++) {
		change_extent(x, i, &offset, &len);
		sum += len;
	}
	if (at != x->xattrs_len || x->path[0] != '/' || strstr(x->path, "/../") || sum == UINT64_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct change_frame f;
	struct change_entry x;
	struct change_end d;
	const uint8_t *bytes;
	uint64_t offset;
	size_t len;
	long n;

	while ((n = change_decode(data, size, &f)) > 0) {
		if ((size_t)n > size || n > (long)CHANGE_FRAME_MAX || f.len != (size_t)n - CHANGE_HEAD)
			abort();
		change_head(out, f.type, f.len);
		if (memcmp(out, data, CHANGE_HEAD))
			abort();
		if (change_entry_decode(&f, &x) == 0)
			entry(&f, &x);
		if (change_end_decode(&f, &d) == 0)
			same(&f, change_end_encode(&d, out, sizeof(out)));
		if (change_data_decode(&f, &offset, &bytes, &len) == 0 && (bytes + len > data + n || !len))
			abort();
		data += n;
		size -= (size_t)n;
	}
	return 0;
}
