#include "client/sse.h"
#include "base/base.h"
#include "base/test.h"

static int collect(void *arg, const struct sse *s)
{
	return buf_addf(arg, "%s#%s=%s|", s->event, s->id, buf_str(&s->data));
}

static int stop(void *arg, const struct sse *s)
{
	(void)arg;
	(void)s;
	return -EPIPE;
}

TEST(events_come_whole_however_they_are_cut)
{
	static const char text[] =
		": hello\n\nid: 1\nevent: a\ndata: one\ndata: two\n\nid: 2\r\ndata:x\r\n\r\nevent: none\n\n";

	for (size_t cut = 1; cut < sizeof(text) - 1; cut++) {
		AUTO(buf_done) struct buf b = BUF_INIT(KIB);
		struct sse s;

		sse_init(&s, collect, &b);
		for (size_t at = 0; at < sizeof(text) - 1; at += cut) {
			size_t n = sizeof(text) - 1 - at < cut ? sizeof(text) - 1 - at : cut;

			CHECK_EQ(sse_feed(&s, text + at, n), 0);
		}
		sse_done(&s);
		CHECK_STR(buf_str(&b), "a#1=one\ntwo|message#2=x|");
	}
}

TEST(an_event_without_end_is_refused)
{
	static char data[64 * KIB];
	struct sse s;
	int r = 0;

	memset(data, 'x', sizeof(data));
	sse_init(&s, collect, NULL);
	for (unsigned i = 0; i < 2 * SSE_MAX / sizeof(data) && r == 0; i++)
		r = sse_feed(&s, data, sizeof(data));
	sse_done(&s);
	CHECK_EQ(r, -E2BIG);
}

TEST(who_listens_can_stop_it)
{
	struct sse s;
	int r;

	sse_init(&s, stop, NULL);
	r = sse_feed(&s, "data: x\n\n", 9);
	sse_done(&s);
	CHECK_EQ(r, -EPIPE);
}
