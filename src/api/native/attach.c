/*
 * A WebSocket on an exec: one that starts it, or one that comes (back) to it. Who starts a command without a terminal sets its pace; who comes back reads
 * what was kept, at its own.
 */
#include "api/native/native.h"
#include "base/base.h"
#include "base/str.h"
#include "service/exec.h"
#include "service/jin.h"

#define MESSAGE_MAX (4U * 1024U * 1024U)
#define PIECE (64U * 1024U)
#define REPLAY (64U * 1024U) /* of a terminal, for who does not say what it has seen */

enum { WS_OUT = 1, WS_ERR = 2, WS_IN = 3, WS_SIZE = 4 };

struct attach {
	struct api *api;
	struct who who;
	struct box *box;
	struct exec *exec; /* NULL until the first message, for one that starts it */
	struct ws *ws;
	struct exec_sink sink;
	struct exec_watch watch;
	bool direct; /* we are its sink */
	bool told; /* "started" was sent */
	bool held; /* stdin: the client waits */
	uint64_t at[2]; /* read so far, when not direct */
};

/* What one that comes back has got already. */
struct seen {
	uint64_t out, err;
	bool given;
};

static void attach_free(struct attach *t)
{
	exec_unwatch(&t->watch);
	if (t->exec && t->direct && t->exec->sink == &t->sink)
		exec_leave(t->exec);
	if (t->exec)
		exec_unref(t->exec);
	box_rest(t->box);
	box_unref(t->box);
	free(t);
}

static void send_text(struct attach *t, const struct buf *b)
{
	struct http_piece p = { b->data, b->len };

	ws_send(t->ws, true, &p, 1);
}

static void send_error(struct attach *t, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_str(&j, "type", "error");
	jout_object(&j, "error");
	jout_str(&j, "code", err_kind_name(e->kind));
	jout_str(&j, "message", e->msg);
	jout_str(&j, "cause", e->errnum ? strerror(e->errnum) : NULL);
	jout_str(&j, "remedy", e->remedy[0] ? e->remedy : NULL);
	jout_str(&j, "request_id", t->who.request_id);
	jout_end(&j);
	jout_end(&j);
	send_text(t, &b);
}

/* Says goodbye and goes. */
static void finish(struct attach *t)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct json j = JSON_INIT(&b);

	if (t->exec->failed) {
		send_error(t, &t->exec->fail);
	} else {
		jout_object(&j, NULL);
		jout_str(&j, "type", "result");
		exec_write_result(t->exec, false, &j);
		jout_end(&j);
		send_text(t, &b);
	}
	ws_close(t->ws, 1000, "");
	attach_free(t);
}

static void send_bytes(struct attach *t, enum exec_stream s, const char *p, size_t len)
{
	static const uint8_t kinds[] = { WS_OUT, WS_ERR };
	struct http_piece all[] = { { &kinds[s], 1 }, { p, len } };

	ws_send(t->ws, false, all, 2);
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
	buf_addf(&b, "{\"type\":\"started\",\"id\":\"%s\",\"sandbox\":\"%s\"}", t->exec->id, t->box->id);
	send_text(t, &b);
}

/* From the spools, both streams, as far as the client takes it. Returns whether all was read. */
static bool read_on(struct attach *t)
{
	char *buf = t->api->s->scratch;

	for (int s = 0; s < 2; s++) {
		const struct spool *sp = &t->exec->stream[s].spool;

		while (ws_queued(t->ws) < HTTP_HIGH) {
			ssize_t n;

			t->at[s] = spool_first(sp, t->at[s]);
			n = spool_read(sp, t->at[s], buf, PIECE);
			if (n <= 0)
				break;
			send_bytes(t, (enum exec_stream)s, buf, (size_t)n);
			t->at[s] += (uint64_t)n;
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
	if (t->held && exec_write_queued(x) < MIB / 4) {
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
	attach_free(arg);
}

static int command(struct attach *t, const uint8_t *data, size_t len, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	const char *type = "", *sig = "TERM";
	uint64_t rows = 24, cols = 80;
	struct jin j;
	int r = jin_parse((const char *)data, len, &o, e), n;

	if (r < 0)
		return r;
	j = (struct jin)JIN_INIT(o, e);
	jin_str(&j, "type", &type, 32);
	jin_str(&j, "signal", &sig, 16);
	jin_u64(&j, "rows", &rows, 1, 10000);
	jin_u64(&j, "cols", &cols, 1, 10000);
	r = jin_end(&j);
	if (r < 0)
		return r;
	if (!strcmp(type, "stdin_close")) {
		exec_close_stdin(t->exec);
	} else if (!strcmp(type, "resize")) {
		return exec_resize(t->exec, (uint32_t)rows, (uint32_t)cols, e);
	} else if (!strcmp(type, "signal")) {
		n = signal_parse(sig);
		if (n < 0)
			return err_set(e, ERR_INVALID, -EINVAL, "'signal': '%.20s' is none", sig);
		return exec_signal(t->exec, n, EXEC_TREE, e);
	} else {
		return err_set(e, ERR_INVALID, -EINVAL, "'type': signal, stdin_close or resize");
	}
	return 0;
}

/* The first message of one that starts an exec: what POST …/execs takes. */
static void begin(struct attach *t, const uint8_t *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	AUTO(exec_want_free) struct exec_want *w = NULL;
	struct err e = { 0 };
	int r = jin_parse((const char *)data, len, &o, &e);

	if (r == 0)
		r = exec_want_parse(&t->api->s->o, t->box->want, o, &w, &e);
	if (r == 0) {
		/* A terminal is kept, so that one can come back to it; so is what was to run in the background. */
		t->direct = !w->tty && !w->background;
		w->background = w->background || w->tty;
		t->sink = (struct exec_sink){ .data = on_data, .arg = t };
		r = exec_new(t->box, &t->who, TAKE_PTR(w), t->direct ? &t->sink : NULL, &t->exec, &e);
	}
	if (r < 0) {
		send_error(t, &e);
		ws_close(t->ws, 1008, err_kind_name(e.kind));
		attach_free(t);
		return;
	}
	exec_watch(t->exec, &t->watch, on_change, t);
}

static void on_bytes(struct attach *t, const uint8_t *data, size_t len)
{
	struct err e = { 0 };
	int r = 0;

	if (len && data[0] == WS_IN)
		r = exec_write(t->exec, (const char *)data + 1, len - 1, &e);
	else if (len == 5 && data[0] == WS_SIZE)
		r = exec_resize(t->exec, (uint32_t)(data[1] << 8 | data[2]), (uint32_t)(data[3] << 8 | data[4]), &e);
	else
		r = err_set(&e, ERR_INVALID, -EINVAL, "a message begins with 3 (stdin) or 4 (size)");
	if (r < 0 && e.kind == ERR_INVALID)
		send_error(t, &e);
	if (exec_write_queued(t->exec) > MIB / 2) {
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
	else if (command(t, data, len, &e) < 0)
		send_error(t, &e);
}

static const struct ws_calls calls = { .message = on_message, .drain = on_drain, .gone = on_gone, .max = MESSAGE_MAX };

static void take_over(struct call *c)
{
	struct attach *t = calloc(1, sizeof(*t));
	struct err e = { 0 };

	if (!t)
		abort();
	t->api = c->api;
	t->who = c->who;
	if (ws_accept(c->q, &calls, t, &t->ws) < 0) {
		free(t);
		err_set(&e, ERR_INVALID, -EPROTO, "this is a WebSocket: an upgrade is needed");
		call_fail(c, &e);
		return;
	}
	c->q = NULL;
	t->box = TAKE_PTR(c->box);
	t->exec = TAKE_PTR(c->exec);
	if (t->exec) {
		const struct spool *s = &t->exec->stream[EXEC_OUT].spool;
		struct seen *seen = c->data;

		t->at[0] = seen->given ? seen->out : t->exec->want->tty && s->total > REPLAY ? s->total - REPLAY : 0;
		t->at[1] = seen->err;
		free(seen);
		exec_watch(t->exec, &t->watch, on_change, t);
	}
	call_free(c);
	if (t->exec)
		on_change(t, t->exec);
}

void get_exec_attach(void *arg, struct http_req *q, const struct route *r)
{
	const char *out = http_query(q, "offset"), *err = http_query(q, "stderr_offset");
	struct call *c = call_new(arg, q, r);
	struct seen seen = { .given = out != NULL };
	struct err e = { 0 };

	if (call_exec(c) < 0)
		return;
	if ((out && parse_u64(out, &seen.out, &e) < 0) || (err && parse_u64(err, &seen.err, &e) < 0)) {
		call_fail(c, &e);
		return;
	}
	c->data = malloc(sizeof(seen));
	if (!c->data)
		abort();
	memcpy(c->data, &seen, sizeof(seen));
	take_over(c);
}

void get_execs_attach(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_box(c) == 0)
		take_over(c);
}
