/* Any bytes as a stream of frames: nothing is read outside them, and what decodes, encodes to the same bytes again. */
#include "proto/frame.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t out[FRAME_PAYLOAD_MAX];

static void same(const struct frame *f, long n)
{
	if (n != (long)f->len || memcmp(out, f->payload, f->len))
		abort();
}

static void try_exec(const struct frame *f)
{
	struct frame_exec x;
	char **strings;

	if (frame_exec_decode(f, &x) < 0)
		return;
	strings = calloc(x.argc + x.envc + 2, sizeof(char *));
	if (!strings)
		abort();
	frame_exec_strings(&x, strings, strings + x.argc + 1);
	x.argv = (const char *const *)strings;
	x.envp = (const char *const *)(strings + x.argc + 1);
	same(f, frame_exec_encode(&x, out, sizeof(out)));
	free(strings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_setup s;
	struct frame_exited x;
	struct frame_failed d;
	struct frame_held h;
	struct frame_files w;
	struct frame_restore re;
	struct frame_restored rd;
	struct frame f;
	long n;

	while ((n = frame_decode(data, size, &f)) > 0) {
		if ((size_t)n > size || f.nfds > FRAME_FDS_MAX)
			abort();
		/* Each payload as each of the types: a head is no promise. */
		if (frame_setup_decode(&f, &s) == 0)
			same(&f, frame_setup_encode(&s, out, sizeof(out)));
		if (frame_exited_decode(&f, &x) == 0)
			same(&f, frame_exited_encode(&x, out, sizeof(out)));
		if (frame_failed_decode(&f, &d) == 0)
			same(&f, frame_failed_encode(&d, out, sizeof(out)));
		if (frame_held_decode(&f, &h) == 0)
			same(&f, frame_held_encode(&h, out, sizeof(out)));
		if (frame_files_decode(&f, &w) == 0)
			same(&f, frame_files_encode(&w, out, sizeof(out)));
		if (frame_restore_decode(&f, &re) == 0)
			same(&f, frame_restore_encode(&re, out, sizeof(out)));
		if (frame_restored_decode(&f, &rd) == 0)
			same(&f, frame_restored_encode(&rd, out, sizeof(out)));
		try_exec(&f);
		data += n;
		size -= (size_t)n;
	}
	return 0;
}
