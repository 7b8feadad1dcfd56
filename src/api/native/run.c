/*
 * Runs code in a sandbox of its own, that is gone when the answer comes: one object, or events as they come (Accept:
 * text/event-stream). A client that hangs up ends it.
 */
#include "api/native/contexts.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/run/run.h"

struct run_call {
	struct code_call code;
	struct run *run;
};

static void run_call_free(struct run_call *x)
{
	code_call_done(&x->code);
	free(x);
}

static void begun(void *arg)
{
	struct run_call *x = arg;

	code_call_begin(&x->code);
}

static void on_event(void *arg, const struct context_event *ev)
{
	struct run_call *x = arg;

	if (!code_call_event(&x->code, ev))
		run_hold(x->run);
}

static void on_drain(void *arg)
{
	struct run_call *x = arg;

	run_go(x->run);
}

/* How the code ended, and its artifacts. */
static void write_end(const void *arg, struct json *j)
{
	const struct run_result *r = arg;

	context_end_write(r->end, j);
	run_result_write(r, j);
}

static void on_end(void *arg, const struct run_result *r)
{
	struct run_call *x = arg;
	struct call *c = x->code.c;

	c->gone = NULL;
	if (r->end->failed && !code_call_answered(&x->code)) {
		run_call_free(x);
		call_fail(c, r->end->failed);
		return;
	}
	code_call_end(&x->code, NULL, write_end, r);
	run_call_free(x);
}

static void on_gone(struct call *c)
{
	struct run_call *x = c->data;

	if (x->run)
		run_leave(x->run);
	run_call_free(x);
}

/* Unlike a command it cannot be found again later: with the daemon, or its token, it ends. */
static void on_stop(void *arg, enum stream_end why)
{
	struct run_call *x = arg;
	struct call *c = x->code.c;
	struct err e = { 0 };

	c->gone = NULL;
	run_leave(x->run);
	if (why == STREAM_STOP && !code_call_answered(&x->code)) {
		if (x->code.begun)
			err_set(&e, WHY_CONTEXT_ENDED, -ESHUTDOWN, "the daemon is stopping, and has ended the code");
		else
			err_set(&e, WHY_STOPPING, -ESHUTDOWN, "the daemon is stopping");
		run_call_free(x);
		call_fail(c, &e);
		return;
	}
	code_call_cut(&x->code);
	run_call_free(x);
}

static void body(void *arg, const char *data, size_t len)
{
	struct call *c = arg;
	struct run_call *x = c->data;
	const struct run_reader reader = { .event = on_event, .end = on_end, .begun = begun, .arg = x };
	struct err e = { 0 };

	if (run_start(c->api->s, &c->who, data, len, &reader, &x->run, &e) < 0) {
		c->gone = NULL;
		run_call_free(x);
		call_fail(c, &e);
		return;
	}
	http_body_forget(c->q);
	http_ask_gone(c->q);
	if (x->code.stream)
		http_set_drain(c->q, on_drain, x);
	api_stream_add(c->api, &x->code.registered, &c->who, on_stop, x);
}

void post_run(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct run_call *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	code_call_init(&x->code, c);
	c->data = x;
	c->gone = on_gone;
	call_read_body(c, RUN_BODY_MAX, body, c);
}
