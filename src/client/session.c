/* Runs an exec over a WebSocket, with the user's terminal or pipes. */
#include "client/session.h"
#include "base/base.h"
#include "base/clock.h"
#include "client/client.h"
#include "client/out.h"
#include "client/show.h"
#include "client/text.h"
#include "client/tty.h"
#include "client/ws.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FULL (256 * KIB) /* of output that stdout or stderr did not accept yet */
#define AGAIN_MS 10000 /* how long a broken connection is tried again */
#define GIVE_UP_NS 1500000000ULL /* three interrupts within this time end the client */

enum frame { FRAME_STDOUT = 1, FRAME_STDERR = 2, FRAME_STDIN = 3, FRAME_RESIZE = 4 };

struct session {
	struct conn *conn;
	const struct session_opts *o;
	struct session_end *end;
	struct ws *ws;
	struct keys keys;
	struct tty tty;
	struct out out, err;
	int signals, saved; /* the signalfd; whether @before holds a mask */
	sigset_t before;
	uint64_t offset, err_offset; /* bytes of stdout (or the terminal) and of stderr that came */
	bool input, pipe_told, detach, ended;
	uint64_t interrupts[3];
	json_t *refused; /* an error frame */
};

/* ---- what comes ---- */

static void on_binary(void *arg, const uint8_t *data, size_t len)
{
	struct session *s = arg;

	if (len < 2)
		return;
	if (data[0] == FRAME_STDOUT) {
		s->offset += len - 1;
		out_put(&s->out, data + 1, len - 1);
	} else if (data[0] == FRAME_STDERR) {
		s->err_offset += len - 1;
		out_put(&s->err, data + 1, len - 1);
	}
}

static void notice(struct session *s, const char *text)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);
	const char *eol = s->tty.raw ? "\r\n" : "\n";

	if (buf_addf(&b, "%scloche: %s%s", s->tty.raw ? "\r\n" : "", text, eol) == 0)
		out_put(&s->err, b.data, b.len);
}

/* Some of the output is kept nowhere any more. */
static void on_gap(struct session *s, const json_t *v)
{
	const char *stream = show_str(v, "stream");
	uint64_t *offset = strcmp(stream, "stderr") ? &s->offset : &s->err_offset;
	char text[160];

	*offset = show_u64(v, "offset");
	show_gap(text, sizeof(text), stream, show_u64(v, "lost"), *offset);
	out_flush(&s->out);
	notice(s, text);
}

static void on_text(void *arg, const char *data, size_t len)
{
	struct session *s = arg;
	json_t *v = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
	const char *type = show_str(v, "type");

	if (!strcmp(type, "started")) {
		snprintf(s->end->exec, sizeof(s->end->exec), "%s", show_str(v, "id"));
	} else if (!strcmp(type, "result")) {
		json_object_del(v, "type");
		json_decref(s->end->result);
		s->end->result = json_incref(v);
		s->ended = true;
	} else if (!strcmp(type, "gap")) {
		on_gap(s, v);
	} else if (!strcmp(type, "error")) {
		json_decref(s->refused);
		s->refused = json_incref(v);
		/*
		 * Once it runs, an error is about one message of ours (a signal after its end, for example), not about
		 * the exec.
		 */
		s->ended = !s->end->exec[0];
	}
	json_decref(v);
}

static bool on_full(void *arg)
{
	const struct session *s = arg;

	return s->out.pending.len + s->err.pending.len > FULL;
}

/* ---- what goes ---- */

static void send_signal(struct session *s, const char *name)
{
	char text[64];

	snprintf(text, sizeof(text), "{\"type\":\"signal\",\"signal\":\"%s\"}", name);
	ws_text(s->ws, text);
}

static void send_size(struct session *s, unsigned less_rows)
{
	unsigned rows, columns;
	uint8_t head[5] = { FRAME_RESIZE };

	if (!s->o->tty || tty_size(STDIN_FILENO, &rows, &columns) < 0)
		return;
	if (rows > less_rows)
		rows -= less_rows;
	head[1] = (uint8_t)(rows >> 8);
	head[2] = (uint8_t)rows;
	head[3] = (uint8_t)(columns >> 8);
	head[4] = (uint8_t)columns;
	ws_binary(s->ws, head, sizeof(head), NULL, 0);
}

static void read_stdin(struct session *s)
{
	static const uint8_t head = FRAME_STDIN;
	AUTO(buf_done) struct buf typed = BUF_INIT(256 * KIB);
	char data[64 * KIB];
	ssize_t n = read(STDIN_FILENO, data, sizeof(data));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		s->input = false;
		if (s->o->tty)
			ws_binary(s->ws, &head, 1, "\x04", 1); /* what the key for the end of input sends */
		else
			ws_text(s->ws, "{\"type\":\"stdin_close\"}");
		return;
	}
	if (!s->o->tty) {
		ws_binary(s->ws, &head, 1, data, (size_t)n);
		return;
	}
	s->detach = keys_feed(&s->keys, data, (size_t)n, &typed);
	if (typed.len)
		ws_binary(s->ws, &head, 1, typed.data, typed.len);
}

static const struct {
	int number;
	const char *name;
} forwarded[] = { { SIGINT, "INT" },   { SIGTERM, "TERM" }, { SIGHUP, "HUP" },
		  { SIGQUIT, "QUIT" }, { SIGUSR1, "USR1" }, { SIGUSR2, "USR2" } };

/* True when this interrupt is the third in a short time. */
static bool out_of_patience(struct session *s)
{
	uint64_t now = clock_mono_ns();

	s->interrupts[0] = s->interrupts[1];
	s->interrupts[1] = s->interrupts[2];
	s->interrupts[2] = now;
	return s->interrupts[0] && now - s->interrupts[0] < GIVE_UP_NS;
}

static void take_signal(struct session *s)
{
	struct signalfd_siginfo info;

	if (read(s->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGWINCH) {
		send_size(s, 0);
		return;
	}
	if (info.ssi_signo == SIGCONT) { /* the shell that stopped this process may have changed the terminal */
		if (s->tty.raw)
			tty_raw(&s->tty, STDIN_FILENO);
		send_size(s, 0);
		return;
	}
	/* With a terminal, keys are keys: a signal means that the terminal or we shall go, not what runs inside. */
	if (s->tty.raw || (info.ssi_signo == SIGINT && out_of_patience(s))) {
		s->detach = true;
		s->end->signal = (int)info.ssi_signo;
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(forwarded); i++)
		if (forwarded[i].number == (int)info.ssi_signo)
			send_signal(s, forwarded[i].name);
}

static int open_signals(struct session *s, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(forwarded); i++) {
		struct sigaction now;

		/* Signals that were ignored at the start stay ignored; a signalfd would receive them all the same. */
		if (sigaction(forwarded[i].number, NULL, &now) < 0 || now.sa_handler != SIG_IGN)
			sigaddset(&set, forwarded[i].number);
	}
	sigaddset(&set, SIGWINCH);
	sigaddset(&set, SIGCONT);
	sigprocmask(SIG_BLOCK, &set, &s->before);
	s->saved = 1;
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signals < 0 ? err_sys(e, ERR_INTERNAL, -errno, "signalfd") : 0;
}

/* ---- the connection ---- */

static int connect_ws(struct session *s, struct err *e)
{
	const struct ws_calls calls = { .binary = on_binary, .text = on_text, .full = on_full, .arg = s };
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_FREE char *body = NULL;
	int r;

	ws_free(s->ws);
	s->ws = NULL;
	if (s->end->exec[0])
		r = url_add(&path, "/v1/sandboxes/%s/execs/%s/attach?offset=%u&stderr_offset=%u", s->o->sandbox,
			    s->end->exec, (unsigned long long)s->offset, (unsigned long long)s->err_offset);
	else
		r = url_add(&path, "/v1/sandboxes/%s/execs/attach", s->o->sandbox);
	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "build the path");
	r = ws_open(s->conn, buf_str(&path), &calls, &s->ws, e);
	if (r < 0)
		return r;
	if (!s->end->exec[0]) {
		body = json_dumps(s->o->body, JSON_COMPACT);
		return body && ws_text(s->ws, body) == 0 ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	}
	if (s->o->exec && s->tty.raw)
		send_size(s, 1); /* two sizes, so that a full-screen program draws its screen again */
	send_size(s, 0);
	return 0;
}

/* Restores a broken connection. Fails with the last error in @e after AGAIN_MS. */
static int connect_again(struct session *s, struct err *e)
{
	uint64_t end = clock_mono_ns() + AGAIN_MS * 1000000ULL;
	unsigned wait_ms = 100;
	int r;

	if (!s->end->exec[0])
		return -ECONNRESET;
	notice(s, "connection lost; reconnecting");
	for (;;) {
		struct pollfd p = { .fd = s->signals, .events = POLLIN };
		struct err now = { 0 };

		r = connect_ws(s, &now);
		if (r == 0) {
			notice(s, "reconnected");
			return 0;
		}
		/* The daemon has answered: there is nothing to wait for. */
		if (now.kind == ERR_NOT_FOUND && r == -ENOENT)
			*e = now;
		if (clock_mono_ns() > end || (now.kind == ERR_NOT_FOUND && r == -ENOENT)) {
			err_remedy(e, "use `cloche shell %s --attach %s` when the daemon is back", s->o->sandbox,
				   s->end->exec);
			return r;
		}
		if (poll(&p, 1, (int)wait_ms) > 0) {
			struct signalfd_siginfo info;

			if (read(s->signals, &info, sizeof(info)) == sizeof(info) && info.ssi_signo != SIGWINCH &&
			    info.ssi_signo != SIGCONT)
				return -EINTR;
		}
		wait_ms = wait_ms < 1000 ? wait_ms * 2 : 1000;
	}
}

/* ---- the loop ---- */

static int wait_turn(struct session *s)
{
	bool take = s->input && s->end->exec[0] && ws_queued(s->ws) < WS_QUEUE_MAX / 2;
	struct pollfd p[] = {
		{ .fd = ws_fd(s->ws), .events = ws_events(s->ws) },
		{ .fd = s->signals, .events = POLLIN },
		{ .fd = take ? STDIN_FILENO : -1, .events = POLLIN },
		{ .fd = s->out.pending.len ? s->out.fd : -1, .events = POLLOUT },
		{ .fd = s->err.pending.len ? s->err.fd : -1, .events = POLLOUT },
	};

	if (!p[0].events)
		p[0].fd = -1; /* a hang-up would wake us without end while our own output waits */
	if (poll(p, ARRAY_LEN(p), -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (p[1].revents)
		take_signal(s);
	if (p[2].revents)
		read_stdin(s);
	if (p[3].revents)
		out_flush(&s->out);
	if (p[4].revents)
		out_flush(&s->err);
	if (s->out.broken && !s->pipe_told) {
		/* As a broken pipe would signal it. */
		s->pipe_told = true;
		send_signal(s, "PIPE");
	}
	return 0;
}

static void drain(struct session *s)
{
	struct out *both[] = { &s->out, &s->err };

	for (size_t i = 0; i < ARRAY_LEN(both); i++) {
		while (both[i]->pending.len && !both[i]->broken) {
			struct pollfd p[] = { { .fd = both[i]->fd, .events = POLLOUT },
					      { .fd = s->signals, .events = POLLIN } };

			if (poll(p, 2, -1) < 0 && errno != EINTR)
				return;
			if (p[1].revents) {
				struct signalfd_siginfo info;

				/* An interrupt now means that the rest is not needed. */
				if (read(s->signals, &info, sizeof(info)) == sizeof(info) &&
				    info.ssi_signo != SIGWINCH && info.ssi_signo != SIGCONT)
					return;
			}
			out_flush(both[i]);
		}
	}
}

static int loop(struct session *s, struct err *e)
{
	bool told_size = false;

	for (;;) {
		int r = ws_turn(s->ws, e);

		if (s->ended)
			return 0;
		if (r == 0 && s->refused)
			return 0;
		if (r == 0)
			r = err_set(e, ERR_LOST, -ECONNRESET, "the daemon closed the connection");
		if (r < 0)
			r = connect_again(s, e);
		if (r >= 0 && !told_size && s->end->exec[0]) {
			told_size = true;
			send_size(s, 0); /* it may have changed since we asked */
		}
		if (r >= 0)
			r = wait_turn(s);
		if (r < 0)
			return r;
		if (s->detach) {
			s->end->how = SESSION_DETACHED;
			ws_turn(s->ws, NULL); /* what was typed before goes inside */
			return 0;
		}
	}
}

int session_run(struct conn *c, const struct session_opts *o, struct session_end *ret, struct err *e)
{
	struct session s = {
		.conn = c, .o = o, .end = ret, .tty = TTY_INIT, .signals = -1, .input = o->input, .keys = o->keys
	};
	int r;

	*ret = (struct session_end){ 0 };
	s.offset = o->offset;
	if (o->exec)
		snprintf(ret->exec, sizeof(ret->exec), "%s", o->exec);
	out_init(&s.out, STDOUT_FILENO);
	out_init(&s.err, STDERR_FILENO);
	r = open_signals(&s, e);
	if (r == 0)
		r = connect_ws(&s, e);
	/* Only now: a refusal must be printed while the terminal is in its usual state. */
	if (r == 0 && o->tty && o->input && isatty(STDIN_FILENO)) {
		r = tty_raw(&s.tty, STDIN_FILENO);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "set up the terminal");
	}
	if (r == 0)
		r = loop(&s, e);
	drain(&s);
	tty_restore(&s.tty);
	if (r == 0 && s.refused && !ret->result && ret->how == SESSION_ENDED) {
		AUTO_FREE char *text = json_dumps(s.refused, JSON_COMPACT);

		r = conn_answer_error(text ? text : "", text ? strlen(text) : 0, 500, e);
	}
	if (r == 0 && s.out.error && ret->how == SESSION_ENDED)
		r = err_sys(e, ERR_INTERNAL, s.out.error, "write to stdout");
	ws_free(s.ws);
	json_decref(s.refused);
	out_done(&s.out);
	out_done(&s.err);
	fd_close(s.signals);
	if (s.saved)
		sigprocmask(SIG_SETMASK, &s.before, NULL);
	return r;
}

int session_exit_code(const json_t *result)
{
	const json_t *code = json_object_get(result, "exit_code");
	json_int_t v = json_integer_value(code);

	return json_is_integer(code) && v >= 0 && v <= 255 ? (int)v : EXIT_OURS;
}

static void tell_verdict(const json_t *result)
{
	const json_t *verdict = json_object_get(result, "verdict");
	const char *cause = show_str(verdict, "cause"), *detail = show_str(verdict, "detail");

	if (*show_str(verdict, "warning"))
		show_warn("warning: %s", show_str(verdict, "warning"));
	/* Of the output all has come to us, however little of it an answer would carry. */
	if (!*cause || !strcmp(cause, "exited") || !strcmp(cause, "signaled") || !strcmp(cause, "output"))
		return;
	show_warn("%s%s%s", cause, *detail ? ": " : "", detail);
}

static void tell_detached(const struct session_opts *o, const struct session_end *end)
{
	if (o->tty)
		fputc('\n', stderr);
	show_warn("left it running; return with `cloche %s %s%s %s`", o->tty ? "shell" : "logs -f", o->sandbox,
		  o->tty ? " --attach" : "", end->exec);
}

int session_finish(const struct session_opts *o, struct session_end *end)
{
	int r;

	if (end->how == SESSION_DETACHED) {
		tell_detached(o, end);
		r = end->signal ? 128 + end->signal : 0;
	} else {
		tell_verdict(end->result);
		r = session_exit_code(end->result);
	}
	json_decref(end->result);
	end->result = NULL;
	return r;
}

void session_set_tty(json_t *body)
{
	unsigned rows = 24, columns = 80;
	const char *term = getenv("TERM");

	tty_size(STDIN_FILENO, &rows, &columns);
	json_object_set_new(body, "tty", json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)columns));
	if (!json_object_get(body, "env"))
		json_object_set_new(body, "env", json_object());
	if (term && *term && !json_object_get(json_object_get(body, "env"), "TERM"))
		json_object_set_new(json_object_get(body, "env"), "TERM", json_string(term));
}

int session_error_code(const struct err *e)
{
	if (e->kind != ERR_REFUSED)
		return EXIT_OURS;
	if (strstr(e->msg, strerror(ENOENT)) || strstr(e->msg, "not found"))
		return EXIT_NOT_FOUND;
	return EXIT_NOT_EXECUTABLE;
}
