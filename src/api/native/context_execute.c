/*
 * Runs code in a context: its answer is one object at the end, or events as they come (Accept: text/event-stream). A client that
 * hangs up has its code interrupted. A client that reads slowly makes the code wait.
 */
#include "api/native/contexts.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/context/context.h"
#include "service/state/json_read.h"

#define BODY_MAX (48U * 1024U * 1024U) /* code of CONTEXT_CODE_MAX, with escapes */

struct execution {
	struct code_call code;
	struct context *x; /* referenced */
	struct context_task *task;
};

static void execution_free(struct execution *x)
{
	code_call_done(&x->code);
	context_unref(x->x);
	free(x);
}

static void begun(void *arg)
{
	struct execution *x = arg;

	code_call_begin(&x->code);
}

static void on_event(void *arg, const struct context_event *ev)
{
	struct execution *x = arg;

	if (!code_call_event(&x->code, ev))
		context_task_hold(x->task);
}

static void on_drain(void *arg)
{
	struct execution *x = arg;

	context_task_go(x->task);
}

static void write_end(const void *end, struct json *j)
{
	context_end_write(end, j);
}

static void on_end(void *arg, const struct context_end *end)
{
	struct execution *x = arg;
	struct call *c = x->code.c;

	c->gone = NULL;
	if (end->failed && !code_call_answered(&x->code)) {
		execution_free(x);
		call_fail(c, end->failed);
		return;
	}
	code_call_end(&x->code, context_id(x->x), write_end, end);
	execution_free(x);
}

static void on_gone(struct call *c)
{
	struct execution *x = c->data;

	if (x->task)
		context_task_leave(x->task);
	execution_free(x);
}

static void on_stop(void *arg, enum stream_end why)
{
	struct execution *x = arg;

	if (why == STREAM_STOP)
		return; /* it has its end, and some time for that */
	x->code.c->gone = NULL;
	context_task_leave(x->task);
	code_call_cut(&x->code);
	execution_free(x);
}

static void body(void *arg, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct call *c = arg;
	struct execution *x = c->data;
	struct context_reader reader = {
		.event = on_event, .end = on_end, .begun = x->code.stream ? begun : NULL, .arg = x
	};
	struct context_request request = { 0 };
	struct err e = { 0 };
	int r = context_request_read(c->sandbox, data, len, &request, &o, &e);

	if (r == 0)
		r = context_execute(x->x, &c->who, &request, &reader, &x->task, &e);
	if (r < 0) {
		c->gone = NULL;
		execution_free(x);
		call_fail(c, &e);
		return;
	}
	http_body_forget(c->q);
	http_ask_gone(c->q);
	if (x->code.stream) {
		http_set_drain(c->q, on_drain, x);
		api_stream_add(c->api, &x->code.registered, &c->who, on_stop, x);
	}
}

void post_context_execute(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct context *found = call_context(c);
	struct execution *x;

	if (!found)
		return;
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	x->x = found;
	code_call_init(&x->code, c);
	context_ref(found);
	c->data = x;
	c->gone = on_gone;
	call_read_body(c, BODY_MAX, body, c);
}
