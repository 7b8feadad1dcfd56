/* Calls on execs: start, list, wait, stdin, signals, terminal size. */
#include "api/idem.h"
#include "api/native/object.h"
#include "base/base.h"
#include "base/str.h"
#include "service/exec/exec.h"
#include "service/state/json_read.h"

#include <signal.h>

#define WAIT_MAX_MS 300000

/* A call that waits: for the end of an exec, or its start, or a time. */
struct waiter {
	struct call *c;
	struct exec_watch watch;
	uv_timer_t *timer;
	bool started_is_enough;
	unsigned more; /* of the answer */
	bool close; /* closes stdin after the bytes */
};

static void answer_exec(struct call *c, int status, unsigned more)
{
	AUTO(buf_done) struct buf out = BUF_INIT(API_ANSWER_MAX);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };
	const struct err *why = exec_failure(c->exec);
	int r;

	if (exec_over(c->exec) && why && why->msg[0] && status == 200) {
		e = *why;
		call_fail(c, &e);
		return;
	}
	if (call_room(c, 0, &e) < 0) {
		call_fail_done(c, &e);
		return;
	}
	jout_object(&j, NULL);
	r = exec_write_result(c->exec, EXEC_TELL_OUTPUT | more, &j);
	jout_end(&j);
	if (r == 0)
		r = jout_done(&j);
	if (r < 0) {
		err_sys(&e, ERR_EXHAUSTED, r, "put the result together");
		call_fail_done(c, &e);
		return;
	}
	if (call_room(c, out.len, &e) < 0) {
		call_fail_done(c, &e);
		return;
	}
	call_json(c, status, &out);
}

void call_exec_answer(struct call *c)
{
	answer_exec(c, 200, 0);
}

static void free_timer(uv_handle_t *h)
{
	free(h);
}

static void waiter_end(struct waiter *w)
{
	exec_unwatch(&w->watch);
	if (w->timer) {
		uv_timer_stop(w->timer);
		uv_close((uv_handle_t *)w->timer, free_timer);
	}
	free(w);
}

static void on_change(void *arg, struct exec *x)
{
	struct waiter *w = arg;
	struct call *c = w->c;
	bool background = w->started_is_enough;
	const unsigned more = w->more;

	if (!exec_over(x) && !(background && exec_started(x)))
		return;
	waiter_end(w);
	call_audited(c);
	answer_exec(c, background ? 201 : 200, more);
}

static void on_time(uv_timer_t *t)
{
	struct waiter *w = t->data;
	struct call *c = w->c;
	const unsigned more = w->more;

	waiter_end(w);
	answer_exec(c, 200, more);
}

static struct waiter *wait_for(struct call *c, unsigned more, bool started)
{
	struct waiter *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->c = c;
	w->more = more;
	w->started_is_enough = started;
	c->pending = true;
	exec_watch(c->exec, &w->watch, on_change, w);
	return w;
}

static int again(struct call *c, const char *id, struct err *e)
{
	c->exec = exec_find(c->sandbox, id, e);
	if (!c->exec)
		return -ENOENT;
	exec_ref(c->exec);
	call_replay(c);
	answer_exec(c, 201, 0);
	return 0;
}

static bool wants_events(const struct http_req *q)
{
	const char *accept = http_header(q, "Accept");

	return accept && strstr(accept, "text/event-stream");
}

static bool with_input(const struct http_req *q)
{
	const char *type = http_header(q, "Content-Type");

	return type && !strncmp(type, "application/octet-stream", 24);
}

/* Parses the body and starts the exec. */
static void exec_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	AUTO(exec_request_free) struct exec_request *w = NULL;
	struct exec_sink *sink = NULL;
	struct err e = { 0 };
	bool stream = wants_events(c->q), background;
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0)
		r = exec_request_read(c->sandbox, o, &w, &e);
	if (r == 0 && w->tty && !w->background)
		r = err_set(&e, WHY_BAD_FIELD, -EINVAL, "'tty': needs `background`, or the WebSocket …/execs/attach");
	if (r == 0 && w->stdin_open && !w->background && !stream)
		r = err_set(&e, ERR_INVALID, -EINVAL,
			    "'stdin_open': needs `background`, a stream, or the WebSocket …/execs/attach");
	if (r == 0 && !w->background) { /* its answer comes at the end, and is not stored: but the key must be valid */
		r = idem_read(c, data, len, w->idem, w->idem_body, &e);
		w->idem[0] = '\0';
	}
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	if (w->background && idem_begin(c, c->who.tenant, data, len, w->idem, w->idem_body, again))
		return;
	background = w->background;
	if (stream && !background)
		sink = sse_exec_begin(c);
	r = exec_new(c->sandbox, &c->who, TAKE_PTR(w), sink, &c->exec, &e);
	if (r < 0 && sink)
		sse_exec_refuse(c, &e);
	else if (r < 0)
		call_fail(c, &e);
	else if (sink)
		sse_exec_run(c, c->exec);
	else
		wait_for(c, 0, background);
}

void post_execs(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	if (with_input(q))
		exec_input(c);
	else
		call_body(c, exec_body);
}

static int write_execs(struct call *c, struct json *j)
{
	if (call_sandbox(c) < 0)
		return -ENOENT;
	for (struct exec *x = exec_first(c->sandbox); x; x = exec_next(x)) {
		jout_object(j, NULL);
		exec_write_result(x, EXEC_TELL_CMD, j);
		jout_end(j);
	}
	return 0;
}

DEFINE_LIST(get_execs, "execs", write_execs)

void get_exec(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_exec(c) == 0)
		answer_exec(c, 200, EXEC_TELL_CMD);
}

void get_exec_wait(void *arg, struct http_req *q, const struct route *r)
{
	const char *text = http_query(q, "timeout");
	struct call *c = call_new(arg, q, r);
	uint64_t ms = 30000;
	struct err e = { 0 };
	struct waiter *w;

	if (call_exec(c) < 0)
		return;
	if (text && parse_duration(text, &ms, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	if (exec_over(c->exec) || !ms) {
		answer_exec(c, 200, EXEC_TELL_CMD);
		return;
	}
	w = wait_for(c, EXEC_TELL_CMD, false);
	w->timer = malloc(sizeof(*w->timer));
	if (!w->timer)
		abort();
	uv_timer_init(c->api->loop, w->timer);
	w->timer->data = w;
	uv_timer_start(w->timer, on_time, ms < WAIT_MAX_MS ? ms : WAIT_MAX_MS, 0);
}

/* --- stdin, signals, size --- */

static void stdin_gone(struct call *c)
{
	struct waiter *w = c->data;

	exec_unwatch(&w->watch);
	free(w);
	c->data = NULL;
}

static void stdin_data(void *arg, const char *p, size_t len)
{
	struct call *c = arg;
	struct err e = { 0 };

	if (exec_write(c->exec, p, len, &e) < 0) {
		if (!e.msg[0])
			err_set(&e, ERR_EXHAUSTED, -EAGAIN,
				"the command does not read its stdin, and 1 MiB is already waiting");
		stdin_gone(c);
		call_fail(c, &e);
		return;
	}
	if (exec_write_queued(c->exec) > MIB / 2)
		http_body_pause(c->q);
}

static void stdin_drained(void *arg, struct exec *x)
{
	struct waiter *w = arg;

	if (w->c->q && (exec_write_queued(x) < MIB / 4 || exec_over(x)))
		http_body_resume(w->c->q);
}

static void stdin_end(void *arg)
{
	struct call *c = arg;
	struct waiter *w = c->data;

	if (w->close)
		exec_close_stdin(c->exec);
	stdin_gone(c);
	call_empty(c, 204);
}

void post_exec_stdin(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };
	bool close = false;
	struct waiter *w;

	if (call_exec(c) < 0)
		return;
	if (api_flag(q, "close", &close, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		abort();
	w->c = c;
	w->close = close;
	c->data = w;
	c->gone = stdin_gone;
	exec_watch(c->exec, &w->watch, stdin_drained, w);
	http_stream_body(q, stdin_data, stdin_end, c);
}

static int read_signal(const char *data, size_t len, int *ret_sig, enum exec_scope *ret_scope, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	const char *scope = "tree", *name;
	const json_t *sig;
	struct json_read j;
	char number[16];
	int r = json_read_begin(data, len, &o, e);

	if (r < 0)
		return r;
	j = (struct json_read)JIN_INIT(o, e);
	sig = json_read_any(&j, "signal");
	json_read_str(&j, "scope", &scope, 16);
	r = json_read_end(&j);
	if (r < 0)
		return r;
	if (sig && !json_is_string(sig) && !json_is_integer(sig))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'signal' must be a name or a number");
	snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(sig));
	name = json_is_string(sig) ? json_string_value(sig) : json_is_integer(sig) ? number : "TERM";
	*ret_sig = signal_parse(name);
	if (*ret_sig <= 0)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'signal': unknown signal '%.20s'", name);
	*ret_scope = !strcmp(scope, "process") ? EXEC_PROCESS : !strcmp(scope, "group") ? EXEC_GROUP : EXEC_TREE;
	if (*ret_scope == EXEC_TREE && strcmp(scope, "tree"))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'scope' must be process, group or tree");
	return 0;
}

static void signal_body(struct call *c, const char *data, size_t len)
{
	enum exec_scope scope = EXEC_TREE;
	struct err e = { 0 };
	int sig = 0, r = read_signal(data, len, &sig, &scope, &e);

	if (r == 0)
		r = exec_signal(c->exec, sig, scope, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	exec_note_signal(c->exec, &c->who, sig);
	call_stored(c, 204, NULL);
}

void post_exec_signal(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_exec(c) == 0)
		call_body(c, signal_body);
}

static void resize_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	uint64_t rows = 24, cols = 80;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_u64(&j, "rows", &rows, 1, 10000);
		json_read_u64(&j, "cols", &cols, 1, 10000);
		r = json_read_end(&j);
	}
	if (r == 0)
		r = exec_resize(c->exec, (uint32_t)rows, (uint32_t)cols, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		call_empty(c, 204);
}

void post_exec_resize(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_exec(c) == 0)
		call_body(c, resize_body);
}

void delete_exec(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };

	if (call_exec(c) < 0)
		return;
	if (exec_over(c->exec)) {
		answer_exec(c, 200, 0);
		return;
	}
	if (!exec_has_exited(c->exec) && exec_signal(c->exec, SIGKILL, EXEC_TREE, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	exec_note_signal(c->exec, &c->who, SIGKILL);
	wait_for(c, 0, false);
}
