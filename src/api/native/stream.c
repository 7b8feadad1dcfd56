/*
 * The output of an exec as server-sent events. The client sets the pace: while the last events are still being sent,
 * nothing more is read from the command. Bytes are text if they are UTF-8, else base64; a character is never cut in
 * two.
 */
#include "api/native/native.h"
#include "base/base.h"
#include "base/base64.h"
#include "service/exec/exec.h"
#include "base/utf8.h"

struct sse_exec {
	struct call *c;
	struct exec_sink sink;
	struct exec_watch watch;
	struct api_stream registered;
	struct buf out; /* events of the present piece; lent to the connection while ->busy */
	bool told; /* the start was reported */
	bool busy, over;
	char rest[2][4]; /* the first bytes of an incomplete character */
	size_t nrest[2];
};

static const char *const names[] = { "stdout", "stderr" };

static void sse_free(struct sse_exec *t)
{
	api_stream_remove(&t->registered);
	exec_unwatch(&t->watch);
	buf_done(&t->out);
	free(t);
}

static void put_base64(struct buf *b, const char *p, size_t len)
{
	char *room = buf_room(b, BASE64_SIZE(len));

	if (room)
		buf_added(b, base64_encode(p, len, room));
}

static void put_event(struct sse_exec *t, enum exec_stream s, const char *p, size_t len, bool text)
{
	struct json j = JSON_INIT(&t->out);

	if (!len)
		return;
	buf_addf(&t->out, "event: %s\ndata: ", names[s]);
	if (text) {
		jout_object(&j, NULL);
		jout_strn(&j, "data", p, len);
		jout_end(&j);
	} else {
		buf_adds(&t->out, "{\"base64\":\"");
		put_base64(&t->out, p, len);
		buf_adds(&t->out, "\"}");
	}
	buf_adds(&t->out, "\n\n");
}

static void put_data(struct sse_exec *t, enum exec_stream s, const char *p, size_t len)
{
	AUTO_FREE char *joined = NULL;
	size_t whole;

	if (t->nrest[s]) {
		joined = malloc(t->nrest[s] + len);
		if (!joined)
			return;
		memcpy(joined, t->rest[s], t->nrest[s]);
		memcpy(joined + t->nrest[s], p, len);
		p = joined;
		len += t->nrest[s];
		t->nrest[s] = 0;
	}
	whole = utf8_whole(p, len);
	if (len - whole < sizeof(t->rest[s])) {
		t->nrest[s] = len - whole;
		memcpy(t->rest[s], p + whole, t->nrest[s]);
	} else {
		whole = len;
	}
	put_event(t, s, p, whole, utf8_valid(p, whole));
}

static void on_sent(void *arg);

static void flush(struct sse_exec *t)
{
	struct http_piece p;

	if (t->busy || !t->out.len || !t->c->q)
		return;
	t->busy = true;
	exec_hold(t->c->exec);
	p = (struct http_piece){ t->out.data, t->out.len };
	http_write_lent(t->c->q, &p, 1, on_sent, t);
}

static void on_data(void *arg, enum exec_stream s, const char *p, size_t len)
{
	struct sse_exec *t = arg;

	put_data(t, s, p, len);
	flush(t);
}

/* Sent after its row is stored: a client that knows the id may attach again. */
static void say_started(struct sse_exec *t)
{
	const struct exec *x = t->c->exec;
	char started[96];
	int n;

	if (t->told || !(exec_started(x) || exec_failure(x)))
		return;
	t->told = true;
	n = snprintf(started, sizeof(started), "{\"id\":\"%s\",\"sandbox\":\"%s\"}", exec_id(x),
		     sandbox_id(t->c->sandbox));
	sse_event(t->c->q, NULL, "started", started, (size_t)n);
}

static void finish(struct sse_exec *t)
{
	struct call *c = t->c;
	struct exec *x = c->exec;
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct json j = JSON_INIT(&b);

	if (exec_failure(x)) {
		dto_error(&j, NULL, exec_failure(x), c->who.request_id);
		sse_event(c->q, NULL, "error", b.data, b.len);
	} else {
		jout_object(&j, NULL);
		exec_write_result(x, 0, &j);
		jout_end(&j);
		sse_event(c->q, NULL, "result", buf_str(&b), b.len);
	}
	http_end(c->q);
	c->q = NULL;
	sse_free(t);
	call_free(c);
}

/* The exec has ended and everything is sent: sends an incomplete character, if there is one, and then the result. */
static void wind_up(struct sse_exec *t)
{
	for (int s = 0; s < 2; s++) {
		put_event(t, (enum exec_stream)s, t->rest[s], t->nrest[s], false);
		t->nrest[s] = 0;
	}
	if (t->out.len)
		flush(t);
	else
		finish(t);
}

static void on_sent(void *arg)
{
	struct sse_exec *t = arg;

	t->busy = false;
	buf_clear(&t->out);
	if (t->over)
		wind_up(t);
	else
		exec_go(t->c->exec);
}

static void on_change(void *arg, struct exec *x)
{
	struct sse_exec *t = arg;

	say_started(t);
	if (!exec_over(x) || t->over)
		return;
	t->over = true;
	if (!t->busy) /* otherwise when the last bytes were sent: ->out is lent until then */
		wind_up(t);
}

static void on_gone(struct call *c)
{
	struct sse_exec *t = c->data;

	if (c->exec)
		exec_leave(c->exec, &t->sink);
	sse_free(t);
}

static void on_stop(void *arg, enum stream_end why)
{
	struct sse_exec *t = arg;
	struct call *c = t->c;

	if (why == STREAM_STOP)
		return; /* it has its end, and some time for that */
	c->gone = NULL;
	exec_leave(c->exec, &t->sink);
	sse_free(t);
	http_cut(c->q);
	c->q = NULL;
	call_free(c);
}

struct exec_sink *sse_exec_begin(struct call *c)
{
	struct sse_exec *t = calloc(1, sizeof(*t));

	if (!t)
		abort();
	t->c = c;
	t->sink = (struct exec_sink){ .data = on_data, .arg = t };
	t->out = (struct buf)BUF_INIT(8 * MIB);
	c->data = t;
	return &t->sink;
}

void sse_exec_refuse(struct call *c, const struct err *e)
{
	sse_free(c->data);
	call_fail(c, e);
}

void sse_exec_run(struct call *c, struct exec *x)
{
	struct sse_exec *t = c->data;

	c->gone = on_gone;
	call_audited(c);
	sse_begin(c->q);
	say_started(t); /* an exec that started at once was not watched yet */
	exec_watch(x, &t->watch, on_change, t);
	api_stream_add(c->api, &t->registered, &c->who, on_stop, t);
}
