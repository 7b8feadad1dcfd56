/*
 * A WebSocket that starts an exec, or attaches to one. A client that starts a command without a terminal sets its pace:
 * the command waits while the client does not read. A client that attaches reads the kept output at its own pace.
 */
#include "api/attach.h"
#include "base/base.h"
#include "service/state/json_read.h"

#include <signal.h>

#define MESSAGE_MAX (4U * 1024U * 1024U)
#define PIECE (64U * 1024U)
#define REPLAY (64U * 1024U) /* of a terminal's output, for a client that gives no offset */
/* bytes of stdin in the queue: above the first the client must wait, below the second it may continue */
#define IN_HIGH (MIB / 2)
#define IN_LOW (MIB / 4)
#define SIZE_MAX_CELLS 10000

enum { WS_OUT = 1, WS_ERR = 2, WS_IN = 3, WS_SIZE = 4 };

struct attach {
	const struct attach_kind *kind;
	struct api *api;
	struct who who;
	struct sandbox *sandbox;
	struct exec *exec; /* NULL until the first message, for one that starts it */
	struct ws *ws;
	struct exec_sink sink;
	struct exec_watch watch;
	struct api_stream registered;
	bool direct; /* this WebSocket is the exec's sink */
	bool told; /* the start was reported */
	bool held; /* stdin: the client waits */
	bool gaps; /* part of the output was missing */
	uint64_t at[2]; /* read so far, when not direct */
	uint64_t client_at[2]; /* the client's own count: where it expects the next byte */
	uint64_t shift[2]; /* difference from ->at to that: what was sent to a client before a restart */
};

static void attach_free(struct attach *t)
{
	api_stream_remove(&t->registered);
	exec_unwatch(&t->watch);
	if (t->exec && t->direct)
		exec_leave(t->exec, &t->sink);
	if (t->exec)
		exec_unref(t->exec);
	sandbox_rest(t->sandbox);
	sandbox_unref(t->sandbox);
	free(t);
}

static void send_text(struct attach *t, const struct buf *b)
{
	struct http_piece p = { b->data, b->len };

	if (b->len)
		ws_send(t->ws, true, &p, 1);
}

static void send_error(struct attach *t, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);

	t->kind->error(&t->who, e, &j);
	send_text(t, &b);
}

static void send_bytes(struct attach *t, enum exec_stream s, const char *p, size_t len)
{
	static const uint8_t kinds[] = { WS_OUT, WS_ERR };
	struct http_piece all[] = { { &kinds[s], 1 }, { p, len } };

	ws_send(t->ws, false, all, 2);
}

/* Reports a gap before the bytes at ->at are sent, or before the end. */
static void say_gap(struct attach *t, enum exec_stream s)
{
	uint64_t here = t->at[s] + t->shift[s];
	AUTO(buf_done) struct buf b = BUF_INIT(KIB);
	struct json j = JSON_INIT(&b);

	if (here > t->client_at[s] && t->kind->gap) {
		t->kind->gap(t->exec, s, here, here - t->client_at[s], &j);
		send_text(t, &b);
	}
	t->gaps = t->gaps || here != t->client_at[s];
	t->client_at[s] = here;
}

/* Sends the end and closes. */
static void finish(struct attach *t)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct json j = JSON_INIT(&b);
	struct exec *x = t->exec;
	const struct err *why = exec_failure(x);
	bool refused = why && t->kind->refusal_ends && why->kind == ERR_REFUSED;

	for (int s = 0; s < 2 && !t->direct; s++) {
		t->at[s] = exec_output_first(x, (enum exec_stream)s, t->at[s]);
		say_gap(t, (enum exec_stream)s);
	}
	if (refused) {
		send_bytes(t, EXEC_ERR, why->msg, strlen(why->msg));
		send_bytes(t, EXEC_ERR, "\n", 1);
	}
	if (why && !refused) {
		send_error(t, why);
	} else if (t->kind->result) {
		t->kind->result(x, t->gaps, &j);
		send_text(t, &b);
	}
	ws_close(t->ws, 1000, "");
	attach_free(t);
}

static void on_data(void *arg, enum exec_stream s, const char *p, size_t len)
{
	struct attach *t = arg;

	send_bytes(t, s, p, len);
	if (ws_queued(t->ws) > HTTP_HIGH)
		exec_hold(t->exec);
}

static void say_started(struct attach *t)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);

	if (t->told || !exec_started(t->exec))
		return;
	t->told = true;
	if (!t->kind->says_started)
		return;
	buf_addf(&b, "{\"type\":\"started\",\"id\":\"%s\",\"sandbox\":\"%s\"}", exec_id(t->exec),
		 sandbox_id(t->sandbox));
	send_text(t, &b);
}

/* Sends both streams from the spools, as much as the client takes. Returns whether everything was sent. */
static bool read_on(struct attach *t)
{
	char *buf = service_scratch(t->api->s);

	for (enum exec_stream s = EXEC_OUT; s <= EXEC_ERR; s++) {
		while (ws_queued(t->ws) < HTTP_HIGH) {
			ssize_t n;

			t->at[s] = exec_output_first(t->exec, s, t->at[s]);
			n = exec_output_read(t->exec, s, t->at[s], buf, PIECE);
			if (n <= 0)
				break;
			say_gap(t, s);
			send_bytes(t, s, buf, (size_t)n);
			t->at[s] += (uint64_t)n;
			t->client_at[s] += (uint64_t)n;
		}
		if (t->at[s] < exec_output_total(t->exec, s))
			return ws_queued(t->ws) < HTTP_HIGH &&
			       exec_output_first(t->exec, s, t->at[s]) == exec_output_total(t->exec, s);
	}
	return true;
}

static void on_change(void *arg, struct exec *x)
{
	struct attach *t = arg;
	bool all = true;

	say_started(t);
	if (t->held && t->told && exec_write_queued(x) < IN_LOW) {
		t->held = false;
		ws_resume(t->ws);
	}
	if (!t->direct)
		all = read_on(t);
	if (exec_over(x) && all)
		finish(t);
}

static void on_drain(void *arg)
{
	struct attach *t = arg;

	if (t->exec && t->direct)
		exec_go(t->exec);
	else if (t->exec)
		on_change(t, t->exec);
}

static void on_gone(void *arg)
{
	struct attach *t = arg;

	if (t->exec && t->kind->owner && !exec_has_exited(t->exec)) {
		if (exec_has_tty(t->exec))
			exec_signal(t->exec, SIGHUP, EXEC_TREE, NULL);
		else
			exec_close_stdin(t->exec);
	}
	attach_free(t);
}

/* Input for an exec that has not started yet waits until it has. */
static void hold_until_started(struct attach *t)
{
	if (exec_started(t->exec))
		return;
	t->held = true;
	ws_pause(t->ws);
}

static void begin(struct attach *t, const uint8_t *data, size_t len)
{
	AUTO(exec_request_free) struct exec_request *w = NULL;
	struct err e = { 0 };
	int r = t->kind->request(t->sandbox, (const char *)data, len, &w, &e);

	if (r == 0) {
		/* A terminal and a background command keep their output, so that clients can attach again. */
		t->direct = !w->tty && !w->background;
		w->background = w->background || w->tty;
		t->sink = (struct exec_sink){ .data = on_data, .arg = t };
		r = exec_new(t->sandbox, &t->who, TAKE_PTR(w), t->direct ? &t->sink : NULL, &t->exec, &e);
	}
	if (r < 0) {
		send_error(t, &e);
		ws_close(t->ws, 1008, err_kind_name(e.kind));
		attach_free(t);
		return;
	}
	exec_watch(t->exec, &t->watch, on_change, t);
	hold_until_started(t);
	say_started(t); /* an exec that started at once was not watched yet */
}

static int resize_json(struct exec *x, const char *data, size_t len, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	uint64_t rows = 24, cols = 80;
	int r = json_read_begin(data, len, &o, e);
	struct json_read j;

	if (r < 0)
		return r;
	j = (struct json_read)JIN_INIT(o, e);
	json_read_u64(&j, "rows", &rows, 1, SIZE_MAX_CELLS);
	json_read_u64(&j, "cols", &cols, 1, SIZE_MAX_CELLS);
	return j.r < 0 ? j.r : exec_resize(x, (uint32_t)rows, (uint32_t)cols, e);
}

static void on_bytes(struct attach *t, const uint8_t *data, size_t len)
{
	struct err e = { 0 };
	int r = 0;

	if (len && data[0] == WS_IN)
		r = exec_write(t->exec, (const char *)data + 1, len - 1, &e);
	else if (len == 5 && data[0] == WS_SIZE)
		r = exec_resize(t->exec, (uint32_t)(data[1] << 8 | data[2]), (uint32_t)(data[3] << 8 | data[4]), &e);
	else if (len > 5 && data[0] == WS_SIZE && t->kind->json_size)
		r = resize_json(t->exec, (const char *)data + 1, len - 1, &e);
	else
		r = err_set(&e, ERR_INVALID, -EINVAL,
			    "the first byte of a binary message must be 3 (stdin) or 4 (size)");
	if (r < 0 && (e.kind == ERR_INVALID || e.kind == ERR_TOO_LARGE) && !t->kind->lenient)
		send_error(t, &e);
	if (exec_write_queued(t->exec) > IN_HIGH) {
		t->held = true;
		ws_pause(t->ws);
	}
}

static void on_message(void *arg, bool text, const uint8_t *data, size_t len)
{
	struct attach *t = arg;
	struct err e = { 0 };

	if (!t->exec)
		begin(t, data, len);
	else if (!text)
		on_bytes(t, data, len);
	else if (t->kind->text && t->kind->text(t->exec, (const char *)data, len, &e) < 0 && !t->kind->lenient)
		send_error(t, &e);
}

/* The command continues, and clients can attach again when the daemon is back. */
static void on_stop(void *arg, enum stream_end why)
{
	struct attach *t = arg;

	if (why == STREAM_DENIED)
		ws_close(t->ws, 1008, "the token is no longer valid");
	else
		ws_close(t->ws, 1001, "the daemon is stopping");
	attach_free(t);
}

/*
 * Output that went straight to a client before a restart was counted by that client only; the kept output begins after
 * it. The offset of the first client that attaches again says how much that was.
 */
static void count_from_restart(struct attach *t, const struct attach_from *from)
{
	const uint64_t at[2] = { from->out, from->err };

	if (!from->given || !exec_rejoin(t->exec, at, t->shift))
		return;
	for (int s = 0; s < 2; s++)
		t->at[s] -= t->at[s] < t->shift[s] ? t->at[s] : t->shift[s];
}

void attach_ws(struct call *c, const struct attach_kind *kind, const struct attach_from *from)
{
	const struct ws_calls calls = {
		.message = on_message, .drain = on_drain, .gone = on_gone, .max = MESSAGE_MAX, .asks = !c->exec
	};
	struct attach *t = calloc(1, sizeof(*t));
	struct err e = { 0 };
	uint64_t total;

	if (!t)
		abort();
	t->kind = kind;
	t->api = c->api;
	t->who = c->who;
	if (ws_accept(c->q, &calls, t, &t->ws) < 0) {
		free(t);
		err_set(&e, ERR_INVALID, -EPROTO,
			"this is a WebSocket endpoint: the request must be a WebSocket upgrade");
		call_fail(c, &e);
		return;
	}
	c->q = NULL;
	api_stream_add(t->api, &t->registered, &t->who, on_stop, t);
	t->sandbox = TAKE_PTR(c->sandbox);
	t->exec = TAKE_PTR(c->exec);
	call_free(c);
	if (!t->exec)
		return;
	total = exec_output_total(t->exec, EXEC_OUT);
	t->at[0] = from->given ? from->out : exec_has_tty(t->exec) && total > REPLAY ? total - REPLAY : 0;
	t->at[1] = from->err;
	t->client_at[0] = t->at[0];
	t->client_at[1] = t->at[1];
	count_from_restart(t, from);
	exec_watch(t->exec, &t->watch, on_change, t);
	hold_until_started(t);
	on_change(t, t->exec);
}
