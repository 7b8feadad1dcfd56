/* Calls on contexts: make, list, restart, interrupt, remove; and questions about code. */
#include "api/native/contexts.h"
#include "api/native/object.h"
#include "base/base.h"
#include "base/str.h"
#include "service/context/context.h"
#include "service/exec/exec.h"
#include "service/state/json_read.h"

struct context *call_context(struct call *c)
{
	struct err e = { 0 };
	struct context *x;

	if (call_sandbox(c) < 0)
		return NULL;
	x = context_find(c->sandbox, router_param(c->route, c->q, "context"), &e);
	if (!x)
		call_fail(c, &e);
	return x;
}

static void answer(struct call *c, int status, const struct context *x)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&out);

	context_write(x, NULL, &j);
	call_json(c, status, &out);
}

static void on_ready(void *arg, struct context *x, const struct err *e)
{
	struct call *c = arg;

	c->pending = false;
	if (x)
		call_audited(c);
	if (x)
		answer(c, c->status, x);
	else
		call_fail(c, e);
}

static void make_body(struct call *c, const char *data, size_t len)
{
	AUTO(context_spec_free) struct context_spec *spec = NULL;
	AUTO(json_decref) json_t *o = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0)
		r = context_spec_read(c->sandbox, o, &spec, &e);
	c->status = 201;
	c->pending = true;
	if (r == 0)
		r = context_make(c->sandbox, &c->who, spec, on_ready, c, &e);
	if (r < 0) {
		c->pending = false;
		call_fail(c, &e);
		return;
	}
	spec = NULL; /* taken over */
}

void post_contexts(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, make_body);
}

static int write_contexts(struct call *c, struct json *j)
{
	if (call_sandbox(c) < 0)
		return -ENOENT;
	contexts_write(c->sandbox, j);
	return 0;
}

static void write_context(const struct context *x, struct json *j)
{
	context_write(x, NULL, j);
}

DEFINE_LIST(get_contexts, "contexts", write_contexts)
DEFINE_SHOW(get_context, struct context, call_context, write_context)
DEFINE_REMOVE(delete_context, struct context, call_context, context_delete)

void post_context_restart(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct context *x = call_context(c);
	struct err e = { 0 };

	if (!x)
		return;
	c->status = 200;
	c->pending = true;
	if (context_restart(x, &c->who, on_ready, c, &e) == 0)
		return;
	c->pending = false;
	call_fail(c, &e);
}

void post_context_interrupt(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct context *x = call_context(c);
	AUTO(buf_done) struct buf out = BUF_INIT(KIB);
	bool busy = false;
	struct err e = { 0 };

	if (!x)
		return;
	if (context_interrupt(x, &c->who, &busy, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	buf_addf(&out, "{\"interrupted\":%s}", busy ? "true" : "false");
	call_stored(c, 200, &out);
}

/* --- questions --- */

struct ask {
	struct call *c;
	struct context *x; /* referenced */
	struct context_task *task;
	const char *type;
};

static void ask_free(struct ask *a)
{
	context_unref(a->x);
	free(a);
}

static void on_answer(void *arg, const struct context_end *end)
{
	AUTO(buf_done) struct buf out = BUF_INIT(API_ANSWER_MAX);
	struct ask *a = arg;
	struct call *c = a->c;
	struct err e = { 0 };

	ask_free(a);
	c->gone = NULL;
	if (end->failed) {
		call_fail(c, end->failed);
	} else if (!end->reply) {
		err_set(&e, WHY_CHANGED_MEANWHILE, -EINTR, "the context gave no answer: %s", end->detail);
		call_fail(c, &e);
	} else if (buf_add(&out, end->reply, end->reply_len) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the answer");
		call_fail(c, &e);
	} else {
		call_json(c, 200, &out);
	}
}

static void ask_gone(struct call *c)
{
	struct ask *a = c->data;

	context_task_leave(a->task);
	ask_free(a);
}

static void ask(struct ask *a, json_t *members)
{
	const struct context_reader reader = { .end = on_answer, .arg = a };
	struct call *c = a->c;
	struct err e = { 0 };

	if (context_ask(a->x, &c->who, a->type, members, &reader, &a->task, &e) < 0) {
		ask_free(a);
		call_fail(c, &e);
		return;
	}
	c->data = a;
	c->gone = ask_gone;
}

static struct ask *ask_new(struct call *c, struct context *x, const char *type)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a)
		abort();
	*a = (struct ask){ .c = c, .x = x, .type = type };
	context_ref(x);
	return a;
}

static void ask_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct ask *a = c->data;
	struct err e = { 0 };
	const json_t *code = NULL;
	uint64_t cursor = 0, detail = 0;
	struct json_read j;
	int r = json_read_begin_nul(data, len, &o, &e);

	c->data = NULL;
	c->gone = NULL;
	if (r == 0) {
		j = (struct json_read)JIN_INIT(o, &e);
		code = json_read_any(&j, "code");
		if (strcmp(a->type, "is_complete") != 0)
			json_read_u64(&j, "cursor", &cursor, 0, CONTEXT_CODE_MAX);
		if (!strcmp(a->type, "inspect"))
			json_read_u64(&j, "detail", &detail, 0, 1);
		r = json_read_end(&j);
		if (r == 0 && !json_is_string(code))
			r = json_read_bad(&j, "code", code ? "must be a string" : "is required");
	}
	if (r < 0) {
		ask_free(a);
		call_fail(c, &e);
		return;
	}
	ask(a, TAKE_PTR(o));
}

static void body_gone(struct call *c)
{
	ask_free(c->data);
}

static void post_question(void *arg, struct http_req *q, const struct route *r, const char *type)
{
	struct call *c = call_new(arg, q, r);
	struct context *x = call_context(c);

	if (!x)
		return;
	c->data = ask_new(c, x, type);
	c->gone = body_gone;
	call_body(c, ask_body);
}

void post_context_complete(void *arg, struct http_req *q, const struct route *r)
{
	post_question(arg, q, r, "complete");
}

void post_context_is_complete(void *arg, struct http_req *q, const struct route *r)
{
	post_question(arg, q, r, "is_complete");
}

void post_context_inspect(void *arg, struct http_req *q, const struct route *r)
{
	post_question(arg, q, r, "inspect");
}

void get_context_history(void *arg, struct http_req *q, const struct route *r)
{
	const char *text = http_query(q, "last");
	struct call *c = call_new(arg, q, r);
	struct context *x = call_context(c);
	struct err e = { 0 };
	uint64_t last = 1000;

	if (!x)
		return;
	if (text && (parse_u64(text, &last, NULL) < 0 || last > 1000)) {
		err_set(&e, ERR_INVALID, -EINVAL, "last: must be a number from 0 to 1000 (got '%.20s')", text);
		call_fail(c, &e);
		return;
	}
	ask(ask_new(c, x, "history"), json_pack("{s:I}", "last", (json_int_t)last));
}
