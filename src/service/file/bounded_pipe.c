/* Copies from pipe to pipe, up to a maximum. */
#include "service/file/bounded_pipe.h"
#include "base/base.h"

#include <fcntl.h>
#include <unistd.h>

#define ROOM 65536U

struct bounded_pipe {
	struct bounded_pipe_opts o;
	int from, to;
	uv_poll_t in, out;
	uv_timer_t timer, all;
	unsigned handles;
	uint64_t bytes;
	size_t at, len; /* of ->buf */
	bool closing;
	char buf[ROOM];
};

static void on_closed(uv_handle_t *h)
{
	struct bounded_pipe *x = h->data;

	if (--x->handles == 0)
		free(x);
}

void bounded_pipe_free(struct bounded_pipe *x)
{
	if (!x || x->closing)
		return;
	x->closing = true;
	uv_close((uv_handle_t *)&x->in, on_closed);
	uv_close((uv_handle_t *)&x->out, on_closed);
	uv_close((uv_handle_t *)&x->timer, on_closed);
	uv_close((uv_handle_t *)&x->all, on_closed);
	/* The loop does not know them any more. */
	fd_close(x->from);
	fd_close(x->to);
}

static void end(struct bounded_pipe *x)
{
	void (*over)(void *arg) = x->o.over;
	void *arg = x->o.arg;

	bounded_pipe_free(x);
	over(arg);
}

static void on_late(uv_timer_t *t)
{
	end(t->data);
}

static void on_readable(uv_poll_t *p, int status, int events);
static void on_writable(uv_poll_t *p, int status, int events);

/* For what is next: bytes to come, or room for those that are there. That its reader is gone shows in any case. */
static void wait_next(struct bounded_pipe *x)
{
	const bool full = x->len > x->at;

	if (full)
		uv_poll_stop(&x->in);
	else
		uv_poll_start(&x->in, UV_READABLE, on_readable);
	uv_poll_start(&x->out, full ? UV_WRITABLE : UV_DISCONNECT, on_writable);
	uv_timer_start(&x->timer, on_late, full ? x->o.unread_ms : x->o.silent_ms, 0);
}

/* False: it is over. */
static bool give(struct bounded_pipe *x)
{
	ssize_t n;

	while (x->at < x->len) {
		n = write(x->to, x->buf + x->at, x->len - x->at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			end(x);
			return false;
		}
		x->at += (size_t)n;
	}
	return true;
}

static void on_writable(uv_poll_t *p, int status, int events)
{
	struct bounded_pipe *x = p->data;

	if (status < 0 || events & UV_DISCONNECT) {
		end(x);
		return;
	}
	if (give(x))
		wait_next(x);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct bounded_pipe *x = p->data;
	ssize_t n = read(x->from, x->buf, sizeof(x->buf));

	(void)status;
	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || (uint64_t)n > x->o.max - x->bytes) {
		end(x);
		return;
	}
	x->bytes += (uint64_t)n;
	x->at = 0;
	x->len = (size_t)n;
	if (give(x))
		wait_next(x);
}

int bounded_pipe_open(uv_loop_t *loop, int from, const struct bounded_pipe_opts *o, struct bounded_pipe **ret,
		      int *ret_fd)
{
	struct bounded_pipe *x;
	int pipes[2], r;

	r = fd_set_nonblock(from);
	if (r < 0)
		return r;
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct bounded_pipe){ .o = *o, .from = from, .to = pipes[1], .handles = 4 };
	if (fd_set_nonblock(x->to) < 0 || uv_poll_init(loop, &x->in, x->from) < 0 ||
	    uv_poll_init(loop, &x->out, x->to) < 0 || uv_timer_init(loop, &x->timer) < 0 ||
	    uv_timer_init(loop, &x->all) < 0)
		abort(); /* both are pipes, and new: this cannot be */
	x->in.data = x->out.data = x->timer.data = x->all.data = x;
	if (o->all_ms)
		uv_timer_start(&x->all, on_late, o->all_ms, 0);
	wait_next(x);
	*ret = x;
	*ret_fd = pipes[0];
	return 0;
}
