/*
 * The streams of an exec: from its pipes or its terminal into spools or straight to one reader, and stdin the other
 * way.
 */
#include "base/base.h"
#include "base/log.h"
#include "service/exec/internal.h"
#include "service/secret/give.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIPE_LARGE (1 << 20)
#define TTY_MAX 65536U /* a terminal holds less */
#define TURNS 4 /* reads in one go, so that other streams get their turn */

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void close_poll(uv_poll_t **p)
{
	if (!*p)
		return;
	uv_poll_stop(*p);
	uv_close((uv_handle_t *)*p, free_handle);
	*p = NULL;
}

static void on_hashed(void *arg);
static bool has_room(const struct stream *st);

void stream_init(struct exec *x, enum exec_stream which)
{
	struct service *s = x->sandbox->service;
	struct stream *st = &x->stream[which];
	char path[320];

	snprintf(path, sizeof(path), "%s/spool/%s.%d", s->o.data, x->id, which == EXEC_OUT ? 1 : 2);
	*st = (struct stream){ .exec = x, .which = which, .fd = -1, .eof = true, .drained = true };
	digest_init(&st->digest, s->loop, on_hashed, st);
	spool_init(&st->spool, s->loop, path, s->o.spool_max, &s->spooled, &x->sandbox->tenant->spooled);
	/* So that one of them does not leave the others without. */
	x->sandbox->tenant->spooled.max = s->o.spool_total / 2;
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct stream *st = p->data;

	(void)status;
	(void)events;
	stream_pump(st);
}

/* Whether it is to be read now. */
static void watch(struct stream *st)
{
	bool want = st->poll && !st->eof && has_room(st);

	if (want == st->polling)
		return;
	st->polling = want;
	if (want)
		uv_poll_start(st->poll, UV_READABLE, on_readable);
	else if (st->poll)
		uv_poll_stop(st->poll);
}

int stream_arm(struct stream *st, struct err *e)
{
	int r;

	if (st->poll || st->fd < 0)
		return 0;
	st->poll = malloc(sizeof(*st->poll));
	r = st->poll ? uv_poll_init(st->exec->sandbox->service->loop, st->poll, st->fd) : -ENOMEM;
	if (r < 0) {
		free(st->poll);
		st->poll = NULL;
		return err_sys(e, ERR_EXHAUSTED, r, "watch the command's output");
	}
	st->poll->data = st;
	watch(st);
	return 0;
}

int stream_open(struct stream *st, int fd, bool later, struct err *e)
{
	int r;

	st->fd = fd;
	st->eof = st->drained = false;
	r = later ? 0 : stream_arm(st, e);
	if (r < 0) {
		st->fd = -1;
		st->eof = st->drained = true;
	}
	return r;
}

void stream_close(struct stream *st)
{
	close_poll(&st->poll);
	st->polling = false;
	fd_close(st->fd);
	st->fd = -1;
	st->eof = st->drained = true;
}

/* After reading: what comes next. */
static void stream_settle(struct stream *st)
{
	struct exec *x = st->exec;

	if (st->fd >= 0)
		watch(st);
	if (x->draining)
		exec_release(x);
	else
		exec_check_end(x);
}

/* A program that writes much gets a larger pipe, which needs fewer switches between it and this process. */
static void note_full(struct stream *st, size_t n)
{
	if (n >= 65536 && st->fd >= 0 && ++st->full == 4)
		fcntl(st->fd, F_SETPIPE_SZ, PIPE_LARGE); /* refused beyond the user's share: then it stays as it is */
}

static void on_spooled(void *arg)
{
	struct stream *st = arg;
	struct exec *x = st->exec;

	if (x->state == EXEC_ORPHANED) { /* it was deleted meanwhile */
		exec_unref(x);
		return;
	}
	exec_ref(x); /* a watcher may drop the last reference */
	exec_tell(x);
	if (st->late)
		stream_exited(st);
	stream_pump(st);
	exec_unref(x);
}

/* The hash has caught up: there is room for more of it, or it was the last thing the end waited for. */
static void on_hashed(void *arg)
{
	struct stream *st = arg;
	struct exec *x = st->exec;

	if (x->state == EXEC_ORPHANED) {
		exec_unref(x);
		return;
	}
	stream_pump(st);
}

bool stream_busy(const struct stream *st)
{
	return spool_busy(&st->spool) || digest_busy(&st->digest);
}

/* Whether it can take more now. */
static bool has_room(const struct stream *st)
{
	const struct exec *x = st->exec;

	return !spool_busy(&st->spool) && !digest_full(&st->digest) && (!x->held || !x->sink) && !x->sandbox->turning;
}

static void on_pulled(void *arg)
{
	struct stream *st = arg;
	struct exec *x = st->exec;
	ssize_t n = st->spool.pulled;

	if (x->state == EXEC_ORPHANED) {
		exec_unref(x);
		return;
	}
	exec_ref(x);
	if (n > 0) {
		if (exec_has_exited(x) && !st->late)
			st->left -= (uint64_t)n < st->left ? (uint64_t)n : st->left;
		if (st->spool.seen)
			digest_add(&st->digest, st->spool.seen, (size_t)n);
		else if (st->spool.show)
			st->digest.bad = true;
		note_full(st, (size_t)n);
		exec_tell(x);
	} else if (n == 0) {
		st->eof = st->drained = true;
	} else if (n == -EAGAIN && !st->late) {
		st->drained = exec_has_exited(x);
	}
	if (st->late)
		stream_exited(st);
	if (n == -EAGAIN)
		stream_settle(st); /* there was nothing: not at once again */
	else
		stream_pump(st);
	exec_unref(x);
}

/* Output that outlives us goes from the pipe to the file without a stay here. */
static bool pull(struct stream *st, size_t want)
{
	const struct exec *x = st->exec;

	/* What is masked has to come by here. */
	if (!x->request->background || x->sink || x->draining || sandbox_mask(x->sandbox) || st->mask)
		return false;
	st->spool.show = digest_wants(&st->digest);
	if (want == SCRATCH && !st->spool.show && !x->request->tty)
		want = PIPE_LARGE;
	return spool_pull(&st->spool, st->fd, x->request->tty ? SPOOL_TTY : SPOOL_PIPE, want, on_pulled, st) == 1;
}

/* Returns whether more can be taken now. */
static bool deliver(struct stream *st, const char *data, size_t len)
{
	struct exec *x = st->exec;

	if (x->draining)
		return true; /* after its end: read so that writers do not block, and dropped */
	digest_add(&st->digest, data, len);
	if (x->sink) {
		spool_skip(&st->spool, len);
		x->sink->data(x->sink->arg, st->which, data, len);
		return !x->held;
	}
	if (spool_add(&st->spool, data, len, x->request->background, on_spooled, st) == 0) {
		if (x->watches)
			exec_tell(x);
		return true;
	}
	return false;
}

/* --- masking --- */

#define TYPED 2U /* bytes of a value that a terminal shows: the echo of its first letters must be visible to the user */

static void mute(struct stream *st, int r)
{
	log_error("exec %s: its output can no longer be masked and is dropped: %s", st->exec->id, strerror(-r));
	st->muted = true;
	st->digest.bad = true;
}

/* Values may have been added since. */
static int mask_ready(struct stream *st, struct buf *out)
{
	struct mask *m = sandbox_mask(st->exec->sandbox);

	if (!st->mask) {
		st->mask = malloc(sizeof(*st->mask));
		if (!st->mask)
			return -ENOMEM;
		mask_stream_init(st->mask, m);
	}
	/* A sandbox in its place may have none: what this one was given stays masked. */
	return m && st->mask->m != m ? mask_stream_change(st->mask, m, out) : 0;
}

static bool deliver_masked(struct stream *st, const char *data, size_t len)
{
	AUTO(buf_done) struct buf out = BUF_INIT(len + 8 * MIB);
	int r = st->muted ? 0 : mask_ready(st, &out);

	if (st->muted)
		return true;
	if (r == 0)
		r = mask_feed(st->mask, data, len, &out);
	if (r == 0 && st->exec->request->tty && mask_begun(st->mask) <= TYPED)
		r = mask_show(st->mask, &out);
	if (r < 0)
		mute(st, r);
	return out.len ? deliver(st, out.data, out.len) : true;
}

void stream_end(struct stream *st)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * MIB);
	int r;

	if (!st->mask || st->muted || !mask_held(st->mask))
		return;
	r = mask_end(st->mask, &out);
	if (r < 0)
		mute(st, r);
	if (out.len)
		deliver(st, out.data, out.len);
}

void stream_unmask(struct stream *st)
{
	if (st->mask)
		mask_stream_done(st->mask);
	free(st->mask);
	st->mask = NULL;
}

/*
 * The agent holds the same open file and could make it one that waits: then the whole daemon would, for a sandbox whose
 * agent was taken over. A pipe can be asked not to wait each time; a terminal is looked at first.
 */
static ssize_t read_now(int fd, char *to, size_t len)
{
	struct iovec v = { .iov_base = to, .iov_len = len };
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n = preadv2(fd, &v, 1, -1, RWF_NOWAIT);

	if (n >= 0 || errno != EOPNOTSUPP)
		return n;
	if (poll(&p, 1, 0) == 1)
		return read(fd, to, len);
	errno = EAGAIN;
	return -1;
}

static ssize_t write_now(int fd, char *from, size_t len)
{
	struct iovec v = { .iov_base = from, .iov_len = len };
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	ssize_t n = pwritev2(fd, &v, 1, -1, RWF_NOWAIT);

	if (n >= 0 || errno != EOPNOTSUPP)
		return n;
	if (poll(&p, 1, 0) == 1)
		return write(fd, from, len);
	errno = EAGAIN;
	return -1;
}

/* One read. Returns whether to continue. */
static bool pump_once(struct stream *st)
{
	struct exec *x = st->exec;
	char *buf = x->sandbox->service->scratch;
	size_t want = SCRATCH;
	ssize_t n;

	if (exec_has_exited(x) && !x->draining && st->left < want)
		want = st->left;
	if (!want) {
		st->drained = true;
		return false;
	}
	if (pull(st, want))
		return false;
	do {
		n = read_now(st->fd, buf, want);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		st->drained = exec_has_exited(x);
		return false;
	}
	if (n <= 0) { /* a terminal whose last process is gone says EIO */
		st->eof = st->drained = true;
		return false;
	}
	if (exec_has_exited(x))
		st->left -= (uint64_t)n < st->left ? (uint64_t)n : st->left;
	note_full(st, (size_t)n);
	/* What a kernel says is masked by who reads it, value by value: its frames would not fit their lengths any more. */
	if (x->request->context && st->which == EXEC_OUT)
		return deliver(st, buf, (size_t)n);
	return st->mask || sandbox_mask(x->sandbox) ? deliver_masked(st, buf, (size_t)n) : deliver(st, buf, (size_t)n);
}

void stream_pump(struct stream *st)
{
	struct exec *x = st->exec;

	exec_ref(x);
	for (int i = 0; i < TURNS && st->fd >= 0 && !st->eof && has_room(st); i++)
		if (!pump_once(st))
			break;
	stream_settle(st);
	exec_unref(x);
}

bool stream_quiet(const struct stream *st)
{
	int n = 0;

	return ioctl(st->fd, FIONREAD, &n) == 0 && n == 0;
}

void stream_exited(struct stream *st)
{
	struct pollfd p = { .fd = st->fd, .events = POLLIN };
	int n = 0;

	if (st->fd < 0) {
		st->drained = true;
		return;
	}
	/* Bytes that the worker is moving from the pipe would be counted twice. */
	st->late = spool_busy(&st->spool);
	if (st->late)
		return;
	/* What others inherited and write from now on does not count: the exec is over when its process is. */
	st->left = ioctl(st->fd, FIONREAD, &n) == 0 && n > 0 ? (uint64_t)n : 0;
	/* What was written to a terminal may not have come through it yet; reading makes it. */
	if (st->exec->request->tty)
		st->left = TTY_MAX;
	if (!st->left) {
		/* Perhaps its end has come as well. */
		st->eof = poll(&p, 1, 0) == 1 && !(p.revents & POLLIN);
		st->drained = true;
		return;
	}
	for (int i = 0; i < 64 && !st->drained && has_room(st); i++)
		if (!pump_once(st))
			break;
	if (!st->drained && stream_arm(st, NULL) < 0)
		st->drained = true; /* the rest cannot be had */
}

/* --- a reader that sets the pace --- */

void exec_join(struct exec *x, struct exec_sink *sink)
{
	x->sink = sink;
}

void exec_hold(struct exec *x)
{
	x->held = true;
}

void exec_go(struct exec *x)
{
	if (!x->held)
		return;
	x->held = false;
	exec_ref(x);
	for (int i = 0; i < 2 && !x->held; i++)
		if (x->stream[i].fd >= 0)
			stream_pump(&x->stream[i]);
	for (int i = 0; i < 2; i++)
		if (x->stream[i].fd >= 0)
			watch(&x->stream[i]);
	exec_unref(x);
}

void exec_leave(struct exec *x, const struct exec_sink *sink)
{
	if (x->sink != sink)
		return;
	x->sink = NULL;
	exec_go(x);
	for (int i = 0; i < 2; i++)
		if (x->stream[i].fd >= 0)
			watch(&x->stream[i]);
}

/* --- stdin --- */

static void on_writable(uv_poll_t *p, int status, int events);

/* Writes what waits, as far as it goes. */
static void in_flush(struct exec *x)
{
	while (x->in_queue.len) {
		ssize_t n = write_now(x->in, x->in_queue.data, x->in_queue.len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (x->in_poll)
				uv_poll_start(x->in_poll, UV_WRITABLE, on_writable);
			return;
		}
		if (n < 0) { /* it reads no more */
			buf_clear(&x->in_queue);
			x->in_closing = true;
			break;
		}
		buf_drop(&x->in_queue, (size_t)n);
	}
	if (x->in_poll)
		uv_poll_stop(x->in_poll);
	if (x->in_closing && !x->request->tty)
		stdin_close(x);
}

static void on_writable(uv_poll_t *p, int status, int events)
{
	struct exec *x = p->data;

	(void)status;
	(void)events;
	exec_ref(x);
	in_flush(x);
	exec_tell(x);
	exec_unref(x);
}

void stdin_open(struct exec *x, int fd)
{
	x->in = fd;
	x->in_poll = malloc(sizeof(*x->in_poll));
	if (fd_set_nonblock(fd) < 0 || !x->in_poll || uv_poll_init(x->sandbox->service->loop, x->in_poll, fd) < 0) {
		log_warn("exec %s: cannot watch its stdin, which is closed", x->id);
		free(x->in_poll);
		x->in_poll = NULL;
		stdin_close(x);
		return;
	}
	x->in_poll->data = x;
	if (x->in_queue.len || x->in_closing) /* what came before it was started */
		in_flush(x);
}

/* A descriptor has one poll handle, and a terminal's master needs two: one for output and one for input. */
void stdin_open_terminal(struct exec *x)
{
	int fd = fcntl(x->stream[EXEC_OUT].fd, F_DUPFD_CLOEXEC, 3);

	if (fd < 0)
		log_warn("exec %s: %s: its terminal accepts no input", x->id, strerror(errno));
	else
		stdin_open(x, fd);
}

void stdin_close(struct exec *x)
{
	close_poll(&x->in_poll);
	if (x->in >= 0 && !x->request->tty)
		agent_link_send(&x->sandbox->link, FRAME_CLOSE_STDIN, x->number, NULL, 0, NULL, 0);
	fd_close(x->in);
	x->in = -1;
}

void exec_let_go(struct sandbox *b)
{
	b->let_go = b->hands_off = true;
	b->missed = b->ask_again = false;
	for (struct exec *x = b->execs; x; x = x->next) {
		if (x->draining) {
			x->draining = false;
			x->group_no = 0;
			exec_list_over(x);
		}
		x->seen_in_sync = false;
		stream_close(&x->stream[EXEC_OUT]);
		stream_close(&x->stream[EXEC_ERR]);
		close_poll(&x->in_poll);
		fd_close(x->in);
		x->in = -1;
	}
}

void exec_take_up(struct sandbox *b, bool ask)
{
	b->hands_off = false;
	if (ask && b->synced)
		exec_sync(b);
	else if (ask)
		b->ask_again =
			true; /* it is asked once, however often this is tried: one that is paused answers when it is resumed */
}

bool exec_any_read(const struct sandbox *b)
{
	for (const struct exec *x = b->execs; x; x = x->next)
		if (spool_busy(&x->stream[EXEC_OUT].spool) || spool_busy(&x->stream[EXEC_ERR].spool))
			return true;
	return false;
}

void exec_read_all(struct sandbox *b)
{
	struct exec *next;

	for (struct exec *x = b->execs; x; x = next) {
		exec_ref(x);
		for (int i = 0; i < 2; i++)
			if (x->stream[i].fd >= 0)
				stream_pump(&x->stream[i]);
		next = x->next;
		exec_unref(x);
	}
}

bool exec_any_between(const struct sandbox *b)
{
	for (const struct exec *x = b->execs; x; x = x->next)
		if (!x->ended_ns && (exec_has_exited(x) || (x->state == EXEC_WAITING && b->state == SANDBOX_RUNNING)))
			return true;
	return false;
}

/*
 * A client that knows the exec's id may write at once: its input waits until the command was sent, or its terminal
 * exists.
 */
static bool stdin_to_come(const struct exec *x)
{
	return x->request && (x->request->stdin_open || x->request->tty) && !exec_started(x);
}

int exec_write(struct exec *x, const char *data, size_t len, struct err *e)
{
	if ((x->in < 0 && !stdin_to_come(x)) || x->in_closing || exec_has_exited(x))
		return err_set(e, WHY_STDIN_CLOSED, -EPIPE, "the stdin of exec '%s' is not open", x->id);
	if (x->in_queue.len > MIB)
		return -EAGAIN;
	/* In one piece, if it fits: nobody sees half of it, whenever we die. */
	if (x->in >= 0 && len > PIPE_BUF && !x->request->tty)
		fcntl(x->in, F_SETPIPE_SZ, PIPE_LARGE); /* refused beyond the user's share: then it stays as it is */
	if (buf_add(&x->in_queue, data, len) < 0)
		return err_set(e, ERR_TOO_LARGE, -ENOBUFS, "stdin: more than 1 MiB is waiting to be read");
	if (x->in >= 0)
		in_flush(x);
	return 0;
}

size_t exec_write_queued(const struct exec *x)
{
	return x->in_queue.len;
}

void exec_close_stdin(struct exec *x)
{
	if (x->request->tty) {
		exec_write(x, "\x04", 1, NULL); /* what a terminal calls the end */
		return;
	}
	x->in_closing = true;
	if (x->in >= 0)
		in_flush(x);
}

int exec_resize(struct exec *x, uint32_t rows, uint32_t cols, struct err *e)
{
	struct winsize ws = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols };

	if (x->request->tty && !exec_has_exited(x) &&
	    !exec_started(x)) { /* sent with it, or when its terminal is there */
		x->request->rows = rows;
		x->request->cols = cols;
		x->resized = true;
		return 0;
	}
	if (!x->request->tty || x->stream[0].fd < 0)
		return err_set(e, WHY_NO_TERMINAL, -ENOTTY, "exec '%s' has no terminal", x->id);
	if (ioctl(x->stream[0].fd, TIOCSWINSZ, &ws) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "resize the terminal");
	return 0;
}
