/*
 * Runs code over a WebSocket, for clients that run many pieces of code one after the other: each text message is an execution
 * or an interrupt, and what the code does comes back as text messages, with `end` as the last of each execution. A client that
 * disconnects has its code interrupted. A client that reads slowly makes the code wait.
 */
#include "api/native/contexts.h"
#include "api/native/native.h"
#include "base/base.h"
#include "service/context/context.h"
#include "service/state/json_read.h"

#define MESSAGE_MAX (48U * 1024U * 1024U) /* code of CONTEXT_CODE_MAX, with escapes */

struct session {
	struct api *api;
	struct who who;
	struct sandbox *sandbox; /* referenced, and in use */
	char context[ID_SIZE];
	struct ws *ws;
	struct context_task *task; /* or NULL: nothing runs */
	struct api_stream registered;
	bool stopping; /* closes when the code has ended */
};

static void session_free(struct session *s)
{
	api_stream_remove(&s->registered);
	sandbox_rest(s->sandbox);
	sandbox_unref(s->sandbox);
	free(s);
}

/* @json: one object, which gets a member more. */
static void send_object(struct session *s, const char *type, const char *json, size_t len)
{
	AUTO(buf_done) struct buf head = BUF_INIT(KIB);
	struct http_piece p[2];

	buf_addf(&head, "{\"type\":\"%s\"%s", type, len > 2 ? "," : "");
	p[0] = (struct http_piece){ head.data, head.len };
	p[1] = (struct http_piece){ json + 1, len - 1 };
	ws_send(s->ws, true, p, 2);
}

static void send_refused(struct session *s, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	dto_error(&j, "error", e, s->who.request_id);
	jout_end(&j);
	if (jout_done(&j) == 0)
		send_object(s, "refused", b.data, b.len);
}

/* --- what the code does --- */

static void on_event(void *arg, const struct context_event *ev)
{
	struct session *s = arg;

	send_object(s, context_event_name(ev->kind), ev->json, ev->len);
	if (ws_queued(s->ws) > HTTP_HIGH)
		context_task_hold(s->task);
}

static void send_end(struct session *s, const struct context_end *end)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_str(&j, "context", s->context);
	context_end_write(end, &j);
	jout_end(&j);
	if (jout_done(&j) == 0)
		send_object(s, "end", b.data, b.len);
}

static void on_end(void *arg, const struct context_end *end)
{
	struct session *s = arg;

	s->task = NULL;
	if (end->failed)
		send_refused(s, end->failed);
	else
		send_end(s, end);
	if (!s->stopping)
		return;
	ws_close(s->ws, 1001, "the daemon is stopping");
	session_free(s);
}

/* --- what the client asks for --- */

static int execute(struct session *s, json_t *o, struct err *e)
{
	const struct context_reader reader = { .event = on_event, .end = on_end, .arg = s };
	struct context_request request = { 0 };
	unsigned retry = 0;
	struct context *x;
	int r;

	if (s->task)
		return err_set(e, WHY_BUSY, -EBUSY,
			       "code of this connection is running: wait for its end, or interrupt it");
	r = token_more(s->api->access, &s->who.mark, &retry, e);
	if (r == 0)
		r = service_room(s->api->s, e);
	if (r == 0)
		r = sandbox_ready(s->sandbox, e);
	if (r == 0)
		r = context_request_from(s->sandbox, o, &request, e);
	if (r < 0)
		return r;
	x = context_find(s->sandbox, s->context, e); /* it may have been removed, or replaced, since the last message */
	return x ? context_execute(x, &s->who, &request, &reader, &s->task, e) : -ENOENT;
}

static int interrupt(struct session *s, const json_t *o, struct err *e)
{
	struct json_read j = JIN_INIT(o, e);
	int r = json_read_end(&j);

	if (r == 0 && s->task)
		context_task_interrupt(s->task);
	return r;
}

static void on_message(void *arg, bool text, const uint8_t *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct session *s = arg;
	const char *type = "";
	struct err e = { 0 };
	int r = 0;

	if (!text)
		r = err_set(&e, ERR_INVALID, -EINVAL, "messages must be text, not binary");
	if (r == 0)
		r = json_read_begin_nul((const char *)data, len, &o, &e);
	if (r == 0) {
		const char *given = json_string_value(json_object_get(o, "type"));

		type = given && !strcmp(given, "execute")   ? "execute" :
		       given && !strcmp(given, "interrupt") ? "interrupt" :
							      "";
		json_object_del(o, "type");
		if (!*type)
			r = err_set(&e, WHY_BAD_FIELD, -EINVAL, "'type' must be execute or interrupt");
	}
	if (r == 0)
		r = *type == 'e' ? execute(s, o, &e) : interrupt(s, o, &e);
	if (r < 0)
		send_refused(s, &e);
}

static void on_drain(void *arg)
{
	struct session *s = arg;

	if (s->task)
		context_task_go(s->task);
}

static void on_gone(void *arg)
{
	struct session *s = arg;

	if (s->task)
		context_task_leave(s->task);
	session_free(s);
}

static void on_stop(void *arg, enum stream_end why)
{
	struct session *s = arg;

	if (why == STREAM_STOP && s->task) {
		s->stopping = true;
		return;
	}
	if (s->task)
		context_task_leave(s->task);
	ws_close(s->ws, why == STREAM_DENIED ? 1008 : 1001,
		 why == STREAM_DENIED ? "the token is no longer valid" : "the daemon is stopping");
	session_free(s);
}

void get_context_attach(void *arg, struct http_req *q, const struct route *r)
{
	const struct ws_calls calls = {
		.message = on_message, .drain = on_drain, .gone = on_gone, .max = MESSAGE_MAX, .asks = true
	};
	struct call *c = call_new(arg, q, r);
	const struct context *x = call_context(c);
	struct err e = { 0 };
	struct session *s;

	if (!x)
		return;
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	s->api = c->api;
	s->who = c->who;
	snprintf(s->context, sizeof(s->context), "%s", context_id(x));
	if (ws_accept(c->q, &calls, s, &s->ws) < 0) {
		free(s);
		err_set(&e, ERR_INVALID, -EPROTO,
			"this is a WebSocket endpoint: the request must be a WebSocket upgrade");
		call_fail(c, &e);
		return;
	}
	c->q = NULL;
	s->sandbox = TAKE_PTR(c->sandbox);
	api_stream_add(s->api, &s->registered, &s->who, on_stop, s);
	call_free(c);
}
