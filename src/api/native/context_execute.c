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
	struct call *c;
	struct context *x; /* referenced */
	struct context_task *task;
	bool stream, begun;
	struct collected all;
	struct standing standing;
};

static void execution_free(struct execution *x)
{
	api_unstand(&x->standing);
	collected_done(&x->all);
	context_unref(x->x);
	free(x);
}

/* --- as one object --- */

static void collect(void *arg, const struct context_event *ev)
{
	struct execution *x = arg;

	collected_add(&x->all, ev);
}

static void answer(struct execution *x, const struct context_end *end)
{
	AUTO(buf_done) struct buf out = BUF_INIT(API_ANSWER_MAX), rest = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&rest);
	struct call *c = x->c;
	struct err e = { 0 };
	int r = collected_check(&x->all, &e);

	buf_addf(&out, "{\"context\":\"%s\",", context_id(x->x));
	collected_write(&x->all, &out);
	jout_object(&j, NULL);
	context_end_write(end, &j);
	jout_end(&j);
	execution_free(x);
	if (r == 0)
		r = call_room(c, out.len, &e);
	if (r < 0) {
		call_fail_done(c, &e);
		return;
	}
	buf_addc(&out, ',');
	if (jout_done(&j) < 0 || buf_add(&out, rest.data + 1, rest.len - 1) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the answer");
		call_fail_done(c, &e);
		return;
	}
	call_audited(c);
	call_json(c, 200, &out);
}

/* --- as events --- */

static void begun(void *arg)
{
	struct execution *x = arg;

	if (x->begun)
		return;
	x->begun = true;
	call_audited(x->c);
	sse_begin(x->c->q);
}

static void on_drain(void *arg)
{
	struct execution *x = arg;

	context_task_go(x->task);
}

static void send_event(void *arg, const struct context_event *ev)
{
	struct execution *x = arg;
	struct http_req *q = x->c->q;

	begun(x);
	sse_event(q, NULL, context_event_name(ev->kind), ev->json, ev->len);
	if (http_queued(q) > HTTP_HIGH)
		context_task_hold(x->task);
}

static void send_end(struct execution *x, const struct context_end *end)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);
	struct call *c = x->c;

	begun(x);
	jout_object(&j, NULL);
	jout_str(&j, "context", context_id(x->x));
	context_end_write(end, &j);
	jout_end(&j);
	sse_event(c->q, NULL, "end", buf_str(&b), b.len);
	execution_free(x);
	http_end(c->q);
	c->q = NULL;
	call_free(c);
}

/* --- both --- */

static void on_end(void *arg, const struct context_end *end)
{
	struct execution *x = arg;
	struct call *c = x->c;

	c->gone = NULL;
	if (end->failed && !x->begun) {
		execution_free(x);
		call_fail(c, end->failed);
	} else if (x->stream) {
		send_end(x, end);
	} else {
		answer(x, end);
	}
}

static void on_gone(struct call *c)
{
	struct execution *x = c->data;

	if (x->task)
		context_task_leave(x->task);
	execution_free(x);
}

static void on_stop(void *arg, enum stand_end why)
{
	struct execution *x = arg;
	struct call *c = x->c;

	if (why == STAND_STOP)
		return; /* it has its end, and some time for that */
	c->gone = NULL;
	context_task_leave(x->task);
	execution_free(x);
	http_cut(c->q);
	c->q = NULL;
	call_free(c);
}

static void body(void *arg, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct call *c = arg;
	struct execution *x = c->data;
	struct context_reader reader = {
		.event = x->stream ? send_event : collect, .end = on_end, .begun = x->stream ? begun : NULL, .arg = x
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
	if (x->stream) {
		http_set_drain(c->q, on_drain, x);
		api_stand(c->api, &x->standing, &c->who, on_stop, x);
	}
}

void post_context_execute(void *arg, struct http_req *q, const struct route *r)
{
	const char *accept = http_header(q, "Accept");
	struct call *c = call_new(arg, q, r);
	struct context *found = call_context(c);
	struct execution *x;

	if (!found)
		return;
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct execution){ .c = c, .x = found, .stream = accept && strstr(accept, "text/event-stream") };
	collected_init(&x->all, tenant_events(c->who.tenant));
	context_ref(found);
	c->data = x;
	c->gone = on_gone;
	http_read_body(q, BODY_MAX, body, c);
}
