/* The body of a request, fed into a stream socket: of an archive that a child unpacks, or the context of a build. */
#include "api/native/feed.h"
#include "base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#define QUEUE_MAX (4U * MIB)

static void feed_send(struct feed *f);

void feed_init(struct feed *f, uv_loop_t *loop, struct http_req *q)
{
	*f = (struct feed){ .loop = loop, .q = q, .fd = -1, .queue = BUF_INIT(QUEUE_MAX) };
}

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void feed_close(struct feed *f)
{
	if (f->poll) {
		uv_poll_stop(f->poll);
		uv_close((uv_handle_t *)f->poll, free_handle);
		f->poll = NULL;
	}
	fd_close(f->fd);
	f->fd = -1;
	f->over = true;
}

void feed_done(struct feed *f)
{
	feed_close(f);
	buf_done(&f->queue);
	if (f->q && !f->ended)
		http_body_drop(f->q);
	f->q = NULL;
}

static void body_resume(struct feed *f)
{
	if (!f->paused)
		return;
	f->paused = false;
	if (f->q)
		http_body_resume(f->q);
}

void feed_stop(struct feed *f)
{
	feed_close(f);
	buf_clear(&f->queue);
	body_resume(f);
}

static void on_writable(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	feed_send(p->data);
}

static void wait_writable(struct feed *f)
{
	if (!f->poll) {
		f->poll = malloc(sizeof(*f->poll));
		if (!f->poll || uv_poll_init(f->loop, f->poll, f->fd) < 0)
			abort();
		f->poll->data = f;
	}
	uv_poll_start(f->poll, UV_WRITABLE, on_writable);
}

static void feed_send(struct feed *f)
{
	while (f->queue.len) {
		ssize_t n = send(f->fd, f->queue.data, f->queue.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			wait_writable(f);
			return;
		}
		if (n < 0) { /* the reader wants no more; the reason is in its own report */
			feed_stop(f);
			return;
		}
		buf_drop(&f->queue, (size_t)n);
		f->moved = true;
	}
	if (f->poll)
		uv_poll_stop(f->poll);
	if (f->ended)
		feed_close(f);
	else
		body_resume(f);
}

void feed_open(struct feed *f, int fd)
{
	f->fd = fd;
	feed_send(f);
}

bool feed_queue(struct feed *f, const void *p, size_t len)
{
	if (!f->over && buf_add(&f->queue, p, len) < 0)
		feed_stop(f);
	return !f->over;
}

void feed_add(struct feed *f, const void *p, size_t len)
{
	if (!feed_queue(f, p, len) || f->fd < 0)
		return;
	feed_send(f);
	if (f->queue.len > QUEUE_MAX / 2 && f->q) {
		f->paused = true;
		http_body_pause(f->q);
	}
}

void feed_end(struct feed *f)
{
	f->ended = f->moved = true;
	if (f->fd >= 0)
		feed_send(f);
}

static void on_body(void *arg, const char *p, size_t len)
{
	feed_add(arg, p, len);
}

static void on_body_end(void *arg)
{
	feed_end(arg);
}

void feed_body(struct feed *f)
{
	http_stream_body(f->q, on_body, on_body_end, f);
}
