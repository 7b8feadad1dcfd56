/*
 * cloche-shell-kernel: keeps the state of one shell context, or of one for R.
 *
 * Theory of operation: two processes, both of the sandbox's user. This one reads requests from descriptor 0, writes events to
 * descriptor 1 (docs/design/0019-interpreter.md), and has no privileges. The other is a shell, or R, that runs the cells; it keeps
 * working folder, variables and functions. Its output comes through pipes. SIGINT interrupts a cell; the end of descriptor 0
 * ends both. The commands of cells run as the same user and can do as they please with either.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/json.h"
#include "interpreter/shell/events.h"
#include "interpreter/shell/r.h"
#include "interpreter/shell/request.h"
#include "interpreter/shell/session.h"

#include "base/base.h"

#define REQUEST_MAX (64 * MIB)
#define OUTPUT_MAX (16 * MIB)
#define REPLY_MAX (256 * KIB)
#define HISTORY_MAX 1000
#define HISTORY_BYTES (4 * MIB)
#define MATCHES_MAX 1000

struct past {
	uint64_t count;
	char *code;
	size_t len;
};

struct kernel {
	struct events events;
	struct session session;
	bool is_r;
	struct r r; /* if it is */
	int requests, signals;
	uint64_t count;
	struct past past[HISTORY_MAX];
	size_t past_first, past_count, past_bytes;
};

static void past_drop(struct kernel *k)
{
	struct past *p = &k->past[k->past_first];

	k->past_bytes -= p->len;
	free(TAKE_PTR(p->code));
	k->past_first = (k->past_first + 1) % HISTORY_MAX;
	k->past_count--;
}

static void past_add(struct kernel *k, const struct request *q)
{
	struct past p = { .count = k->count, .len = q->code_len };

	if (q->code_len > HISTORY_BYTES)
		return;
	while (k->past_count == HISTORY_MAX || (k->past_count && k->past_bytes + q->code_len > HISTORY_BYTES))
		past_drop(k);
	p.code = strdup(q->code);
	if (!p.code)
		return;
	k->past[(k->past_first + k->past_count++) % HISTORY_MAX] = p;
	k->past_bytes += p.len;
}

static int send_error(struct kernel *k, const char *id, enum session_end end, int status)
{
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);
	char value[160];

	events_open(&j, "error", id);
	if (end == SESSION_INTERRUPTED) {
		jout_str(&j, "name", "KeyboardInterrupt");
		jout_str(&j, "value", "");
		jout_str(&j, "traceback", "KeyboardInterrupt\n");
		return events_send(&k->events, &j);
	}
	if (end == SESSION_EXITED)
		snprintf(value, sizeof(value),
			 "the shell has exited with status %d: variables and functions are lost, and the next "
			 "cell has a new shell",
			 status);
	else
		snprintf(value, sizeof(value), "%d", status);
	jout_str(&j, "name", end == SESSION_EXITED ? "ShellExited" : "ExitStatus");
	jout_str(&j, "value", value);
	jout_str(&j, "traceback", "");
	return events_send(&k->events, &j);
}

static int execute(struct kernel *k, const struct request *q, const char *id, struct err *e)
{
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);
	enum session_end end = SESSION_DONE;
	int status = 0, r;

	if (!q->code || strlen(q->code) != q->code_len)
		return err_set(e, ERR_INVALID, -EINVAL, q->code ? "code must not have NULs" : "code must be a string");
	k->count++;
	past_add(k, q);
	k->events.id = id;
	k->events.sent = k->events.dropped = 0;
	r = k->is_r ? r_run(&k->r, q, k->signals, k->requests, &end, e) :
		      session_run(&k->session, q, k->signals, k->requests, &end, &status, e);
	k->events.id = "null";
	if (r < 0)
		return -EIO; /* a context needs a shell */
	if (end == SESSION_HUNG_UP)
		return -EPIPE;
	if ((end != SESSION_DONE || status) && end != SESSION_FAILED && send_error(k, id, end, status) < 0)
		return -EPIPE;
	events_open(&j, "end", id);
	jout_str(&j, "status", end != SESSION_DONE || status ? "error" : "ok");
	if (end == SESSION_EXITED)
		jout_str(&j, "state", "lost");
	jout_u64(&j, "execution_count", k->count);
	jout_u64(&j, "dropped", k->events.dropped);
	return events_send(&k->events, &j) < 0 ? -EPIPE : 0;
}

/* Runs code of the kernel's own, whose output is part of an answer. */
static int ask_shell(struct kernel *k, const char *code, struct buf *answer, struct err *e)
{
	AUTO_FREE char *copy = strdup(code);
	struct request q = { .code = copy, .code_len = copy ? strlen(copy) : 0 };
	enum session_end end;
	int status, r;

	k->events.keep = answer;
	r = copy ? session_run(&k->session, &q, k->signals, k->requests, &end, &status, e) : -ENOMEM;
	k->events.keep = NULL;
	return r < 0 ? -EIO : 0;
}

/* The start of the word before the cursor, of characters that need no quotes. */
static size_t word_start(const char *code, size_t at)
{
	while (at > 0 && (unsigned char)code[at - 1] > ' ' && !strchr("|&;()<>\"'`$={}\\*?[]", code[at - 1]))
		at--;
	return at;
}

static size_t points(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

static size_t cursor_bytes(const struct request *q)
{
	size_t at = 0;

	for (uint64_t n = q->cursor; n && at < q->code_len; n--) {
		at++;
		while (at < q->code_len && ((unsigned char)q->code[at] & 0xc0) == 0x80)
			at++;
	}
	return at;
}

static int complete(struct kernel *k, const struct request *q, struct json *j, struct err *e)
{
	AUTO(buf_done) struct buf found = BUF_INIT(REPLY_MAX), ask = BUF_INIT(REPLY_MAX);
	size_t at = cursor_bytes(q), start = word_start(q->code, at);
	bool variable = start > 0 && q->code[start - 1] == '$', bash = !strcmp(k->session.shell, "/bin/bash");
	char *line, *rest;
	size_t n = 0;

	/* The word needs no quoting, by word_start(). */
	if (bash)
		buf_addf(&ask, "compgen %s -- '%.*s' | sort -u", variable ? "-v" : "-abck -A function -f",
			 (int)(at - start), q->code + start);
	else
		buf_addf(&ask, "for f in '%.*s'*; do [ -e \"$f\" ] && printf '%%s\\n' \"$f\"; done", (int)(at - start),
			 q->code + start);
	if (at - start < 4096 && (at > start || variable) && ask_shell(k, buf_str(&ask), &found, e) < 0)
		return -EIO;
	jout_array(j, "matches");
	rest = found.len ? found.data : NULL;
	while (n++ < MATCHES_MAX && rest && (line = strsep(&rest, "\n")) && *line)
		jout_str(j, NULL, line);
	jout_end(j);
	jout_u64(j, "start", points(q->code, start));
	jout_u64(j, "end", points(q->code, at));
	return 0;
}

static int inspect(struct kernel *k, const struct request *q, struct json *j, struct err *e)
{
	AUTO(buf_done) struct buf found = BUF_INIT(REPLY_MAX), ask = BUF_INIT(REPLY_MAX);
	size_t at = cursor_bytes(q), start = word_start(q->code, at);
	int size;

	while (at < q->code_len && word_start(q->code, at + 1) == start)
		at++;
	size = (int)(at - start);
	if (at > start && at - start < 4096) {
		buf_addf(&ask, "%s '%.*s' 2>/dev/null || { command -v '%.*s' >/dev/null 2>&1 && type '%.*s'; }",
			 strcmp(k->session.shell, "/bin/bash") ? "false" : "declare -p", size, q->code + start, size,
			 q->code + start, size, q->code + start);
		if (ask_shell(k, buf_str(&ask), &found, e) < 0)
			return -EIO;
	}
	jout_bool(j, "found", found.len > 0);
	jout_object(j, "mime");
	if (found.len)
		jout_strn(j, "text/plain", found.data, found.len);
	jout_end(j);
	return 0;
}

static int is_complete(struct kernel *k, const struct request *q, struct json *j)
{
	static const char *const open[] = { "unexpected end of file", "unexpected EOF",	  "end of file unexpected",
					    "Unterminated",	      "EOF in backquote", "delimited by end-of-file" };
	struct err e = { 0 };
	const char *status = "complete";

	if (session_check(&k->session, q->code, q->code_len, &e) < 0) {
		status = "invalid";
		for (size_t i = 0; i < ARRAY_LEN(open); i++) {
			if (strstr(e.msg, open[i]))
				status = "incomplete";
		}
	}
	jout_str(j, "status", status);
	jout_str(j, "indent", "");
	return 0;
}

static int history(struct kernel *k, const struct request *q, struct json *j)
{
	size_t n = k->past_count < q->last ? k->past_count : (size_t)q->last;

	jout_array(j, "cells");
	for (size_t i = k->past_count - n; i < k->past_count; i++) {
		const struct past *p = &k->past[(k->past_first + i) % HISTORY_MAX];
		jout_object(j, NULL);
		jout_u64(j, "execution_count", p->count);
		jout_strn(j, "code", p->code, p->len);
		jout_end(j);
	}
	jout_end(j);
	return 0;
}

static int start(struct kernel *k, const struct request *q, struct err *e)
{
	if (q->restricted)
		return err_set(e, ERR_INVALID, -EINVAL, "restrict is for Python contexts only");
	if (q->output_max != UINT64_MAX && (!q->output_max || q->output_max > GIB))
		return err_set(e, ERR_INVALID, -EINVAL, "output_max must be from 1 to %llu", GIB);
	if (q->result_max != UINT64_MAX && (!q->result_max || q->result_max > GIB))
		return err_set(e, ERR_INVALID, -EINVAL, "result_max must be from 1 to %llu", GIB);
	if (q->cwd && chdir(q->cwd) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "cwd: %.100s: %s", q->cwd, strerror(errno));
	for (size_t i = 0; i < q->env_count; i++) {
		if (q->env[i].value)
			setenv(q->env[i].name, q->env[i].value, 1);
		else
			unsetenv(q->env[i].name);
	}
	if (q->output_max != UINT64_MAX)
		k->events.limit = q->output_max;
	if (q->cwd)
		free(TAKE_PTR(k->session.folder));
	/* A new shell has the settings; one that has run cells would lose its variables, so it is started before them only. */
	if (k->is_r && q->result_max != UINT64_MAX)
		k->r.result_max = q->result_max;
	if (k->count == 0 || q->cwd || q->env_count)
		return (k->is_r ? r_start(&k->r, e) : session_start(&k->session, e)) < 0 ? -EIO : 0;
	return 0;
}

static int reply(struct kernel *k, const struct request *q, const char *id, struct err *e)
{
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);
	int r;

	events_open(&j, "reply", id);
	if (!strcmp(q->type, "start"))
		r = start(k, q, e);
	else if (!strcmp(q->type, "history"))
		r = history(k, q, &j);
	else if (!q->code || strlen(q->code) != q->code_len)
		r = err_set(e, ERR_INVALID, -EINVAL, "code must be a string without NULs");
	else if (k->is_r)
		r = r_ask(&k->r, q->type, q, &j, e);
	else if (!strcmp(q->type, "complete"))
		r = complete(k, q, &j, e);
	else if (!strcmp(q->type, "inspect"))
		r = inspect(k, q, &j, e);
	else
		r = is_complete(k, q, &j);
	if (r < 0)
		return r;
	return events_send(&k->events, &j) < 0 ? -EPIPE : 0;
}

/* 0, or -EIO, -EPIPE: the context has ended. */
static int answer(struct kernel *k, const char *data, size_t len)
{
	static const char *const known[] = { "start", "complete", "inspect", "is_complete", "history" };
	struct request q;
	struct err e = { 0 };
	int r = request_read(&q, data, len, &e);
	const char *id = q.id ? q.id : "null";
	bool found = false;

	for (size_t i = 0; r == 0 && q.type && i < ARRAY_LEN(known); i++)
		found |= !strcmp(q.type, known[i]);
	if (r < 0)
		r = -EINVAL;
	else if (q.type && !strcmp(q.type, "execute"))
		r = execute(k, &q, id, &e);
	else if (found)
		r = reply(k, &q, id, &e);
	else
		r = err_set(&e, ERR_INVALID, -EINVAL, "there is no request %.60s", q.type ? q.type : "without a type");
	if (r < 0 && r != -EIO && r != -EPIPE)
		r = events_refuse(&k->events, id, e.msg) < 0 ? -EPIPE : 0;
	if (r == -EIO)
		dprintf(2, "cloche-shell-kernel: %s\n", e.msg);
	request_done(&q);
	return r;
}

/* Waits for a request, and forwards output of background jobs meanwhile. -EPIPE at the end of the requests. */
static int wait_for_request(struct kernel *k)
{
	for (;;) {
		struct pollfd p[] = {
			{ .fd = k->requests, .events = POLLIN },
			{ .fd = k->signals, .events = POLLIN },
			{ .fd = k->session.out[0], .events = POLLIN },
			{ .fd = k->session.out[1], .events = POLLIN },
		};
		if (poll(p, ARRAY_LEN(p), -1) < 0 && errno != EINTR)
			return -errno;
		if (p[1].revents) {
			struct signalfd_siginfo info;
			/* between two cells there is nothing to interrupt */
			(void)!read(k->signals, &info, sizeof(info));
		}
		if (session_drain(&k->session) < 0)
			return -EPIPE;
		if (k->is_r && (p[2].revents | p[3].revents) & POLLHUP)
			r_die(&k->r);
		else if ((p[2].revents | p[3].revents) & POLLHUP && session_start(&k->session, &(struct err){ 0 }) < 0)
			return -EIO;
		if (p[0].revents)
			return 0;
	}
}

static int serve(struct kernel *k)
{
	AUTO(buf_done) struct buf b = BUF_INIT(REQUEST_MAX + 4);

	for (;;) {
		size_t size = 4, whole = 4;
		char *room;
		ssize_t n;
		int r;

		if (b.len >= 4) {
			const unsigned char *p = (const unsigned char *)b.data;
			size = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
			if (size > REQUEST_MAX) {
				dprintf(2,
					"cloche-shell-kernel: a request has %zu bytes, and at most %llu are allowed\n",
					size, REQUEST_MAX);
				return 65;
			}
			whole = 4 + size;
			if (b.len >= whole) {
				r = answer(k, b.data + 4, size);
				buf_drop(&b, whole);
				if (r < 0)
					return r == -EPIPE ? 0 : 70;
				continue;
			}
		}
		r = wait_for_request(k);
		if (r < 0)
			return r == -EPIPE ? 0 : 74;
		room = buf_room(&b, whole - b.len < 65536 ? whole - b.len : 65536);
		if (!room)
			return 71;
		n = read(k->requests, room, whole - b.len < 65536 ? whole - b.len : 65536);
		if (n == 0)
			return b.len ? 65 : 0;
		if (n < 0 && errno != EINTR)
			return 74;
		buf_added(&b, n > 0 ? (size_t)n : 0);
	}
}

static int ready(struct kernel *k)
{
	AUTO(buf_done) struct buf b = { 0 };
	struct json j = JSON_INIT(&b);

	b.max = 4096;
	buf_add(&b, "\0\0\0\0", 4);
	jout_object(&j, NULL);
	jout_str(&j, "type", "ready");
	jout_u64(&j, "protocol", 1);
	jout_str(&j, "language", k->is_r ? "r" : "shell");
	jout_str(&j, "version", k->is_r ? "" : strrchr(k->session.shell, '/') + 1);
	jout_i64(&j, "pid", getpid());
	return events_send(&k->events, &j);
}

/* Out of the way of what cells use; a limit of descriptors may be below the first of these. */
static int high_copy(int fd)
{
	static const int from[] = { 200, 100, 40, 10 };
	int high = -1;

	for (size_t i = 0; high < 0 && i < ARRAY_LEN(from); i++)
		high = fcntl(fd, F_DUPFD_CLOEXEC, from[i]);
	return high;
}

/* [--remove] [r]: its file is needed no more, for it was put there to be started once. */
int main(int argc, char **argv)
{
	static struct kernel k;
	struct err e = { 0 };
	sigset_t mask;
	int null, status;

	if (argc > 1 && !strcmp(argv[1], "--remove"))
		unlink(argv[0]);
	k.events = (struct events){ .id = "null", .limit = OUTPUT_MAX };
	k.requests = high_copy(0);
	k.events.fd = high_copy(1);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (k.requests < 0 || k.events.fd < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0) {
		dprintf(2, "cloche-shell-kernel: descriptors 0 and 1 must be the requests and the events\n");
		return 64;
	}
	fd_close(null);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	k.signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	k.is_r = argc > 1 && !strcmp(argv[argc - 1], "r");
	if (k.signals < 0 ||
	    (k.is_r ? r_init(&k.r, &k.session, &k.events, &e) : session_init(&k.session, &k.events, &e)) < 0) {
		dprintf(2, "cloche-shell-kernel: %s\n", e.msg);
		return 70;
	}
	status = ready(&k) < 0 ? 0 : serve(&k);
	if (k.is_r)
		r_done(&k.r);
	else
		session_done(&k.session);
	while (k.past_count)
		past_drop(&k);
	return status;
}
