/* The stream cut anywhere gives what the whole gives, and the value itself never comes through. */
#include "base/mask.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = BUF_INIT(MIB), cut = BUF_INIT(MIB);
	struct mask_stream x;
	struct mask_value v;
	struct mask *m;
	size_t step;

	if (size < 8 || size > 65536)
		return 0;
	step = 1 + data[0] % 16;
	v = (struct mask_value){ (const char *)data + 2, 4 + data[1] % (size - 6 < 64 ? size - 6 : 64), false };
	if (v.len > size - 2 || mask_new(&v, 1, &m) < 0)
		return 0;
	if (mask_text(m, data, size, &whole) < 0)
		abort();
	mask_stream_init(&x, m);
	for (size_t at = 0; at < size; at += step)
		if (mask_feed(&x, data + at, size - at < step ? size - at : step, &cut) < 0)
			abort();
	if (mask_end(&x, &cut) < 0 || cut.len != whole.len || (cut.len && memcmp(cut.data, whole.data, cut.len) != 0))
		abort();
	/* (What "***" joins may be it by chance, when the value has such bytes itself.) */
	if (!memchr(v.data, '*', v.len) && whole.len >= v.len && memmem(whole.data, whole.len, v.data, v.len) &&
	    v.data[v.len - 1] != '\n' && v.data[v.len - 1] != '\r')
		abort();
	mask_stream_done(&x);
	mask_unref(m);
	buf_done(&whole);
	buf_done(&cut);
	return 0;
}
