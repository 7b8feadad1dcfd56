/* What a daemon streams: cut anywhere, it must give the same events and never touch what is not there. */
#include "client/sse.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int note(void *arg, const struct sse *s)
{
	return buf_addf(arg, "%s|%s|%s;", s->event, s->id, buf_str(&s->data));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	AUTO(buf_done) struct buf whole = BUF_INIT(MIB), cut = BUF_INIT(MIB);
	struct sse a, b;
	int ra, rb = 0;

	sse_init(&a, note, &whole);
	ra = sse_feed(&a, (const char *)data, len);
	sse_done(&a);
	sse_init(&b, note, &cut);
	for (size_t i = 0; i < len && rb == 0; i++)
		rb = sse_feed(&b, (const char *)data + i, 1);
	sse_done(&b);
	if (ra != rb || strcmp(buf_str(&whole), buf_str(&cut)))
		abort();
	return 0;
}
