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
#define IN_HIGH (MIB / 2) /* of stdin that waits: the client is held above, and let go on below the other */
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
	struct standing standing;
	bool direct; /* we are its sink */
	bool told; /* the start was reported */
	bool held; /* stdin: the client waits */
	bool gaps; /* something was not there any more */
	uint64_t at[2]; /* read so far, when not direct */
	uint64_t client_at[2]; /* the client's own count: where it expects the next byte */
	uint64_t shift[2]; /* of ->at from that: what went to a client before a restart */
};

static void attach_free(struct attach *t)
{
	api_unstand(&t->standing);
	exec_unwatch(&t->watch);
	if (t->exec && t->direct && t->exec->sink == &t->sink)
		exec_leave(t->exec);
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

/* Before what begins at ->at is sent, or nothing more will be. */
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

/* Says goodbye and goes. */
static void finish(struct attach *t)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct json j = JSON_INIT(&b);
	struct exec *x = t->exec;
	bool refused = x->failed && t->kind->refusal_ends && x->fail.kind == ERR_REFUSED;

	for (int s = 0; s < 2 && !t->direct; s++) {
		t->at[s] = spool_first(&x->stream[s].spool, t->at[s]);
		say_gap(t, (enum exec_stream)s);
	}
	if (refused) {
		send_bytes(t, EXEC_ERR, x->fail.msg, strlen(x->fail.msg));
		send_bytes(t, EXEC_ERR, "\n", 1);
	}
	if (x->failed && !refused) {
		send_error(t, &x->fail);
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
	buf_addf(&b, "{\"type\":\"started\",\"id\":\"%s\",\"sandbox\":\"%s\"}", t->exec->id, t->sandbox->id);
	send_text(t, &b);
}

/* From the spools, both streams, as far as the client takes it. Returns whether all was read. */
static bool read_on(struct attach *t)
{
	char *buf = t->api->s->scratch;

	for (int s = 0; s < 2; s++) {
		const struct spool *sp = &t->exec->stream[s].spool;

		while (ws_queued(t->ws) < HTTP_HIGH) {
			uint64_t first = spool_first(sp, t->at[s]);
			ssize_t n;

			t->at[s] = first;
			n = spool_read(sp, t->at[s], buf, PIECE);
			if (n <= 0)
				break;
			say_gap(t, (enum exec_stream)s);
			send_bytes(t, (enum exec_stream)s, buf, (size_t)n);
			t->at[s] += (uint64_t)n;
			t->client_at[s] += (uint64_t)n;
		}
		if (t->at[s] < sp->total)
			return ws_queued(t->ws) < HTTP_HIGH && spool_first(sp, t->at[s]) == sp->total;
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
		if (t->exec->request->tty)
			exec_signal(t->exec, SIGHUP, EXEC_TREE, NULL);
		else
			exec_close_stdin(t->exec);
	}
	attach_free(t);
}

/* What comes for it waits until it is there to take it. */
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
	int r = t->kind->request(&t->api->s->o, t->sandbox, (const char *)data, len, &w, &e);

	if (r == 0) {
		/* A terminal is kept, so that one can come back to it; so is what was to run in the background. */
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

/* What it runs goes on, and can be come back to when the daemon is back. */
static void on_stop(void *arg, enum stand_end why)
{
	struct attach *t = arg;

	if (why == STAND_DENIED)
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
	struct exec *x = t->exec;

	if (!from->given || !x->adopted || x->request->background)
		return;
	if (!x->joined) {
		x->joined = true;
		x->seen[0] = from->out;
		x->seen[1] = from->err;
	}
	for (int s = 0; s < 2; s++) {
		t->at[s] -= t->at[s] < x->seen[s] ? t->at[s] : x->seen[s];
		t->shift[s] = x->seen[s];
	}
}

void attach_ws(struct call *c, const struct attach_kind *kind, const struct attach_from *from)
{
	const struct ws_calls calls = { .message = on_message, .drain = on_drain, .gone = on_gone, .max = MESSAGE_MAX, .asks = !c->exec };
	struct attach *t = calloc(1, sizeof(*t));
	const struct spool *s;
	struct err e = { 0 };

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
	api_stand(t->api, &t->standing, &t->who, on_stop, t);
	t->sandbox = TAKE_PTR(c->sandbox);
	t->exec = TAKE_PTR(c->exec);
	call_free(c);
	if (!t->exec)
		return;
	s = &t->exec->stream[EXEC_OUT].spool;
	t->at[0] = from->given ? from->out : t->exec->request->tty && s->total > REPLAY ? s->total - REPLAY : 0;
	t->at[1] = from->err;
	t->client_at[0] = t->at[0];
	t->client_at[1] = t->at[1];
	count_from_restart(t, from);
	exec_watch(t->exec, &t->watch, on_change, t);
	hold_until_started(t);
	on_change(t, t->exec);
}
