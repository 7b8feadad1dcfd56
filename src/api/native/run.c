/*
 * Runs code in a sandbox of its own, that is gone when the answer comes: one object, or events as they come (Accept:
 * text/event-stream). A client that hangs up ends it.
 */
#include "api/native/contexts.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/run/run.h"

struct run_call {
	struct call *c;
	struct run *run;
	bool stream, begun;
	struct collected all;
	struct standing standing;
};

static void run_call_free(struct run_call *x)
{
	api_unstand(&x->standing);
	collected_done(&x->all);
	free(x);
}

/* --- as one object --- */

static void collect(void *arg, const struct context_event *ev)
{
	struct run_call *x = arg;

	collected_add(&x->all, ev);
}

/* What comes behind the code's own events: how it ended, and its artifacts. */
static int put_end(const struct run_result *r, struct buf *out)
{
	struct json j = JSON_INIT(out);

	jout_object(&j, NULL);
	context_end_write(r->end, &j);
	run_result_write(r, &j);
	jout_end(&j);
	return jout_done(&j);
}

static void answer(struct run_call *x, const struct run_result *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(API_ANSWER_MAX), rest = BUF_INIT(API_ANSWER_MAX);
	struct call *c = x->c;
	struct err e = { 0 };
	int res = collected_check(&x->all, &e);

	if (res == 0 && put_end(r, &rest) < 0)
		res = err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the answer");
	buf_addc(&out, '{');
	collected_write(&x->all, &out);
	run_call_free(x);
	buf_addc(&out, ',');
	if (res == 0 && buf_add(&out, rest.data + 1, rest.len - 1) < 0)
		res = err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the answer");
	if (res == 0)
		res = call_room(c, out.len, &e);
	if (res < 0) {
		call_fail_done(c, &e);
		return;
	}
	call_audited(c);
	call_json(c, 200, &out);
}

/* --- as events --- */

static void begun(void *arg)
{
	struct run_call *x = arg;

	if (x->begun)
		return;
	x->begun = true;
	if (!x->stream)
		return;
	call_audited(x->c);
	sse_begin(x->c->q);
}

static void on_drain(void *arg)
{
	struct run_call *x = arg;

	run_go(x->run);
}

static void send_event(void *arg, const struct context_event *ev)
{
	struct run_call *x = arg;
	struct http_req *q = x->c->q;

	begun(x);
	sse_event(q, NULL, context_event_name(ev->kind), ev->json, ev->len);
	if (http_queued(q) > HTTP_HIGH)
		run_hold(x->run);
}

static void send_end(struct run_call *x, const struct run_result *r)
{
	AUTO(buf_done) struct buf b = BUF_INIT(API_ANSWER_MAX);
	struct call *c = x->c;

	begun(x);
	if (put_end(r, &b) == 0)
		sse_event(c->q, NULL, "end", buf_str(&b), b.len);
	run_call_free(x);
	http_end(c->q);
	c->q = NULL;
	call_free(c);
}

/* --- both --- */

static void on_end(void *arg, const struct run_result *r)
{
	struct run_call *x = arg;
	struct call *c = x->c;

	c->gone = NULL;
	if (r->end->failed && !(x->stream && x->begun)) {
		run_call_free(x);
		call_fail(c, r->end->failed);
	} else if (x->stream) {
		send_end(x, r);
	} else {
		answer(x, r);
	}
}

static void on_gone(struct call *c)
{
	struct run_call *x = c->data;

	if (x->run)
		run_leave(x->run);
	run_call_free(x);
}

/* Unlike a command it cannot be found again later: with the daemon, or its token, it ends. */
static void on_stop(void *arg, enum stand_end why)
{
	struct run_call *x = arg;
	struct call *c = x->c;
	const bool fail = why == STAND_STOP && !(x->stream && x->begun), done = x->begun;
	struct err e = { 0 };

	c->gone = NULL;
	run_leave(x->run);
	run_call_free(x);
	if (fail) {
		if (done)
			err_set(&e, WHY_CONTEXT_ENDED, -ESHUTDOWN, "the daemon is stopping, and has ended the code");
		else
			err_set(&e, WHY_STOPPING, -ESHUTDOWN, "the daemon is stopping");
		call_fail(c, &e);
		return;
	}
	http_cut(c->q);
	c->q = NULL;
	call_free(c);
}

static void body(void *arg, const char *data, size_t len)
{
	struct call *c = arg;
	struct run_call *x = c->data;
	const struct run_reader reader = {
		.event = x->stream ? send_event : collect, .end = on_end, .begun = begun, .arg = x
	};
	struct err e = { 0 };

	if (run_start(c->api->s, &c->who, data, len, &reader, &x->run, &e) < 0) {
		c->gone = NULL;
		run_call_free(x);
		call_fail(c, &e);
		return;
	}
	http_body_forget(c->q);
	http_ask_gone(c->q);
	if (x->stream)
		http_set_drain(c->q, on_drain, x);
	api_stand(c->api, &x->standing, &c->who, on_stop, x);
}

void post_run(void *arg, struct http_req *q, const struct route *r)
{
	const char *accept = http_header(q, "Accept");
	struct call *c = call_new(arg, q, r);
	struct run_call *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	*x = (struct run_call){ .c = c, .stream = accept && strstr(accept, "text/event-stream") };
	collected_init(&x->all, tenant_events(c->who.tenant));
	c->data = x;
	c->gone = on_gone;
	http_read_body(q, RUN_BODY_MAX, body, c);
}
