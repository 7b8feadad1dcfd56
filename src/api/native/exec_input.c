/*
 * POST …/execs with the body as application/octet-stream: its first line is the request, and what follows is the command's
 * stdin. It is passed on as the command reads, so it may have any size. A client that hangs up in the middle would leave a
 * command that takes half of its input for all of it: that command is killed.
 */
#include "api/native/native.h"
#include "base/base.h"
#include "service/exec/exec.h"
#include "service/state/json_read.h"

#include <signal.h>

#define QUEUE_HIGH (MIB / 2)
#define QUEUE_LOW (MIB / 4)

struct input {
	struct call *c;
	struct exec_watch watch;
	struct buf head; /* the first line, until the exec has begun */
	bool begun, ended;
};

static void input_free(struct input *u)
{
	if (u->begun)
		exec_unwatch(&u->watch);
	buf_done(&u->head);
	u->c->data = NULL;
	u->c->gone = NULL;
	free(u);
}

static void refuse(struct input *u, const struct err *e)
{
	struct call *c = u->c;

	if (!u->ended)
		http_body_drop(c->q);
	input_free(u);
	call_fail(c, e);
}

static void on_gone(struct call *c)
{
	struct input *u = c->data;

	if (u->begun && !u->ended)
		exec_signal(c->exec, SIGKILL, EXEC_TREE, NULL);
	input_free(u);
}

static void on_change(void *arg, struct exec *x)
{
	struct input *u = arg;
	struct call *c = u->c;

	if (!exec_over(x)) {
		if (!u->ended && exec_write_queued(x) < QUEUE_LOW)
			http_body_resume(c->q);
		return;
	}
	if (!u->ended)
		http_body_drop(c->q); /* its reader is gone */
	input_free(u);
	call_audited(c);
	call_exec_answer(c);
}

static int begin(struct input *u, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	AUTO(exec_request_free) struct exec_request *w = NULL;
	struct call *c = u->c;
	int r = json_read_begin(buf_str(&u->head), u->head.len, &o, e);

	if (r == 0)
		r = exec_request_read(c->sandbox, o, &w, e);
	if (r == 0 && (w->stdin_data || w->stdin_open || w->tty || w->background))
		r = err_set(
			e, WHY_BAD_FIELD, -EINVAL,
			"'stdin', 'stdin_base64', 'stdin_open', 'tty' and 'background' cannot be used with stdin in the body");
	if (r < 0)
		return r;
	w->stdin_open = true;
	r = exec_new(c->sandbox, &c->who, TAKE_PTR(w), NULL, &c->exec, e);
	if (r < 0)
		return r;
	u->begun = true;
	buf_done(&u->head);
	exec_watch(c->exec, &u->watch, on_change, u);
	return 0;
}

static void feed(struct input *u, const char *p, size_t len)
{
	struct call *c = u->c;

	/* Closed inside, or the command has ended: what else comes is not read, and the result says the rest. */
	int r = len ? exec_write(c->exec, p, len, NULL) : 0;

	/* Another client writes to the same stdin, and its queue is full: the command must not miss a part of it. */
	if (r == -EAGAIN)
		exec_signal(c->exec, SIGKILL, EXEC_TREE, NULL);
	if (r < 0)
		return;
	if (exec_write_queued(c->exec) > QUEUE_HIGH)
		http_body_pause(c->q);
}

static void on_data(void *arg, const char *p, size_t len)
{
	struct input *u = arg;
	const char *nl = u->begun ? NULL : memchr(p, '\n', len);
	const size_t n = nl ? (size_t)(nl - p) : len;
	struct err e = { 0 };

	if (u->begun) {
		feed(u, p, len);
		return;
	}
	if (buf_add(&u->head, p, n) < 0) {
		err_set(&e, WHY_BODY_TOO_LARGE, -E2BIG,
			"the first line of the body, the request, is longer than 4 MiB");
		refuse(u, &e);
	} else if (nl && begin(u, &e) < 0) {
		refuse(u, &e);
	} else if (nl) {
		feed(u, nl + 1, len - n - 1);
	}
}

static void on_end(void *arg)
{
	struct input *u = arg;
	struct err e = { 0 };

	u->ended = true;
	if (!u->begun && begin(u, &e) < 0)
		refuse(u, &e);
	else
		exec_close_stdin(u->c->exec);
}

void exec_input(struct call *c)
{
	struct input *u = calloc(1, sizeof(*u));

	if (!u)
		abort();
	*u = (struct input){ .c = c, .head = BUF_INIT(API_BODY_MAX) };
	c->data = u;
	c->gone = on_gone;
	http_stream_body(c->q, on_data, on_end, u);
}
