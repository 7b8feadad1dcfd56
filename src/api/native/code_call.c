/* What calls that run code share (of a context, or in a sandbox of their own): events are collected, or sent as they come. */
#include "api/native/contexts.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/context/context.h"

void code_call_init(struct code_call *x, struct call *c)
{
	const char *accept = http_header(c->q, "Accept");

	*x = (struct code_call){ .c = c, .stream = accept && strstr(accept, "text/event-stream") };
	collected_init(&x->all, tenant_events(c->who.tenant));
}

void code_call_done(struct code_call *x)
{
	api_stream_remove(&x->registered);
	collected_done(&x->all);
}

void code_call_begin(struct code_call *x)
{
	if (x->begun)
		return;
	x->begun = true;
	if (!x->stream)
		return;
	call_audited(x->c);
	sse_begin(x->c->q);
}

bool code_call_event(struct code_call *x, const struct context_event *ev)
{
	struct http_req *q = x->c->q;

	if (!x->stream) {
		collected_add(&x->all, ev);
		return true;
	}
	code_call_begin(x);
	sse_event(q, NULL, context_event_name(ev->kind), ev->json, ev->len);
	return http_queued(q) <= HTTP_HIGH;
}

bool code_call_answered(const struct code_call *x)
{
	return x->stream && x->begun;
}

static void stream_end(struct call *c, const struct buf *end)
{
	if (end->len)
		sse_event(c->q, NULL, "end", buf_str(end), end->len);
	http_end(c->q);
	c->q = NULL;
	call_free(c);
}

/* The members of @end follow those that were collected, in one object. */
static void answer(struct code_call *x, const char *head, const struct buf *end)
{
	AUTO(buf_done) struct buf out = BUF_INIT(API_ANSWER_MAX);
	struct call *c = x->c;
	struct err e = { 0 };
	int r = collected_check(&x->all, &e);

	buf_addf(&out, "{%s", head);
	collected_write(&x->all, &out);
	buf_addc(&out, ',');
	code_call_done(x); /* what was collected is there twice until now */
	if (r == 0 && (!end->len || buf_add(&out, end->data + 1, end->len - 1) < 0))
		r = err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the answer");
	if (r == 0)
		r = call_room(c, out.len, &e);
	if (r < 0) {
		call_fail_done(c, &e);
		return;
	}
	call_audited(c);
	call_json(c, 200, &out);
}

void code_call_end(struct code_call *x, const char *context, void (*write)(const void *arg, struct json *j),
		   const void *arg)
{
	AUTO(buf_done) struct buf end = BUF_INIT(API_ANSWER_MAX);
	struct json j = JSON_INIT(&end);
	char head[80] = "";

	jout_object(&j, NULL);
	if (context && x->stream)
		jout_str(&j, "context", context);
	write(arg, &j);
	jout_end(&j);
	if (jout_done(&j) < 0)
		buf_clear(&end);
	if (x->stream) {
		code_call_begin(x);
		code_call_done(x);
		stream_end(x->c, &end);
		return;
	}
	if (context)
		snprintf(head, sizeof(head), "\"context\":\"%s\",", context);
	answer(x, head, &end);
}

void code_call_cut(struct code_call *x)
{
	struct call *c = x->c;

	code_call_done(x);
	http_cut(c->q);
	c->q = NULL;
	call_free(c);
}
