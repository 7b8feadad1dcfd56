/* Collects what code shows, for an answer that is one object. */
#include "api/native/contexts.h"
#include "base/base.h"
#include "service/access/access.h"
#include "service/context/context.h"

#define COLLECTED_FREE (64 * KIB) /* an answer up to this is never too much */
#define COLLECTED_MAX (256 * MIB) /* of all answers to a tenant that are not complete; one has at most about 160 */

void collected_init(struct collected *x, size_t *events)
{
	*x = (struct collected){ .events = events };
	for (int i = 0; i < 2; i++)
		x->out[i] = (struct buf)BUF_INIT(API_ANSWER_MAX / 2);
	x->results = x->error = (struct buf)BUF_INIT(API_ANSWER_MAX / 2);
}

void collected_done(struct collected *x)
{
	buf_done(&x->out[0]);
	buf_done(&x->out[1]);
	buf_done(&x->results);
	buf_done(&x->error);
	*x->events -= x->counted;
	x->counted = 0;
}

static bool count(struct collected *x, size_t len)
{
	if (x->full)
		return false;
	if (x->counted + len > COLLECTED_FREE && *x->events + len > COLLECTED_MAX) {
		collected_done(x);
		x->full = true;
		return false;
	}
	*x->events += len;
	x->counted += len;
	return true;
}

int collected_check(const struct collected *x, struct err *e)
{
	if (!x->full)
		return 0;
	err_set(e, ERR_EXHAUSTED, -EAGAIN,
		"its output was dropped: what waits for the answers of the tenant's calls would have more than %u MiB",
		(unsigned)(COLLECTED_MAX / MIB));
	err_remedy(e, "run less code at once, or read its output as it comes (Accept: text/event-stream)");
	return -EAGAIN;
}

void collected_add(struct collected *x, const struct context_event *ev)
{
	if (!count(x, ev->len))
		return;
	switch (ev->kind) {
	case CONTEXT_STDOUT:
	case CONTEXT_STDERR:
		buf_add(&x->out[ev->kind == CONTEXT_STDERR], ev->text, ev->text_len);
		break;
	case CONTEXT_RESULT:
		if (x->results.len)
			buf_addc(&x->results, ',');
		buf_add(&x->results, ev->json, ev->len);
		break;
	case CONTEXT_ERROR:
		buf_clear(&x->error);
		buf_add(&x->error, ev->json, ev->len);
		break;
	case CONTEXT_CLEAR:
		break;
	}
}

static void put_quoted(struct buf *out, const char *key, const struct buf *inside)
{
	buf_addf(out, "\"%s\":\"", key);
	buf_add(out, buf_str(inside), inside->len);
	buf_adds(out, "\",");
}

void collected_write(const struct collected *x, struct buf *out)
{
	buf_adds(out, "\"results\":[");
	buf_add(out, buf_str(&x->results), x->results.len);
	buf_adds(out, "],");
	put_quoted(out, "stdout", &x->out[0]);
	put_quoted(out, "stderr", &x->out[1]);
	buf_adds(out, "\"error\":");
	buf_adds(out, x->error.len ? x->error.data : "null");
}
