/* What a connection still has to send. */
#include "http/conn.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"

#define IOV_AT_ONCE 64
#define COPY_MIN 4096U /* room of a node, so that small writes share one */

/* Bytes the socket took, 0 when it is full. A broken connection is killed, and nothing counts any more. */
static size_t push(struct conn *c, struct iovec *iov, size_t n)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = n };
	ssize_t r;

	do
		r = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	if (r < 0 && errno != EAGAIN)
		conn_kill(c);
	return r < 0 ? 0 : (size_t)r;
}

static void out_free(struct conn *c, struct out *o)
{
	TAILQ_REMOVE(&c->out, o, link);
	if (o->lent)
		c->lent--;
	free(o->own);
	free(o);
}

static void queued_more(struct conn *c, size_t n)
{
	c->queued += n;
	if (c->unsent)
		*c->unsent += n;
}

static void queued_less(struct conn *c, size_t n)
{
	c->queued -= n;
	if (c->unsent)
		*c->unsent -= n;
}

void conn_give(struct conn *c, unsigned *count, size_t *unsent)
{
	if (c->count) {
		--*c->count;
		*c->unsent -= c->queued;
	}
	c->count = count;
	c->unsent = unsent;
	if (count) {
		++*count;
		*unsent += c->queued;
	}
}

void conn_out_free(struct conn *c)
{
	while (!TAILQ_EMPTY(&c->out))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not see that TAILQ_REMOVE changes the first one */
		out_free(c, TAILQ_FIRST(&c->out));
	queued_less(c, c->queued);
}

static struct out *out_add(struct conn *c, size_t room)
{
	struct out *o = malloc(sizeof(*o) + room);

	if (!o)
		return NULL;
	*o = (struct out){ .room = room };
	o->data = o->copy;
	TAILQ_INSERT_TAIL(&c->out, o, link);
	return o;
}

/* -ENOMEM, or -E2BIG when the copies that wait exceed OUT_MAX. */
static int enqueue(struct conn *c, const struct out_piece *p)
{
	struct out *o = TAILQ_LAST(&c->out, outs);
	size_t len = p->len, part;
	const char *data = p->data;

	if (!p->lent && c->queued + len > OUT_MAX)
		return -E2BIG;
	queued_more(c, len);
	if (p->lent) {
		o = out_add(c, 0);
		if (!o)
			return -ENOMEM;
		o->data = data;
		o->len = len;
		o->lent = true;
		c->lent++;
		return 0;
	}
	if (o && o->room) {
		part = len < o->room ? len : o->room;
		memcpy(o->copy + (o->data - o->copy) + o->len, data, part);
		o->len += part;
		o->room -= part;
		data += part;
		len -= part;
	}
	if (!len)
		return 0;
	o = out_add(c, len < COPY_MIN ? COPY_MIN : len);
	if (!o)
		return -ENOMEM;
	memcpy(o->copy, data, len);
	o->len = len;
	o->room -= len;
	return 0;
}

void conn_write_raw(struct conn *c, const struct out_piece *p, size_t n)
{
	struct iovec iov[IOV_AT_ONCE];
	bool waited = c->queued;
	size_t sent = 0, used;

	if (c->state == CONN_DEAD)
		return;
	if (!waited) {
		for (used = 0; used < n && used < IOV_AT_ONCE; used++)
			iov[used] =
				(struct iovec){ .iov_base = (char *)(uintptr_t)p[used].data, .iov_len = p[used].len };
		sent = push(c, iov, used);
	}
	for (; n && c->state != CONN_DEAD; p++, n--) {
		struct out_piece rest = *p;
		size_t skip = sent < p->len ? sent : p->len;

		sent -= skip;
		rest.data = (const char *)p->data + skip;
		rest.len -= skip;
		if (rest.len && enqueue(c, &rest) < 0)
			conn_kill(c);
	}
	if (c->queued && !waited && c->state != CONN_DEAD)
		wait_set(&c->send, c, WAIT_SEND);
}

void conn_write(struct conn *c, const struct out_piece *p, size_t n)
{
	if (c->ssl)
		tls_write(c, p, n);
	else
		conn_write_raw(c, p, n);
}

void conn_write_own(struct conn *c, char *own, const char *data, size_t len)
{
	size_t sent = 0;
	struct out *o;

	if (c->ssl) {
		tls_write(c, &(struct out_piece){ .data = data, .len = len }, 1);
		free(own);
		return;
	}
	if (!c->queued && c->state != CONN_DEAD && len)
		sent = push(c, &(struct iovec){ .iov_base = (char *)(uintptr_t)data, .iov_len = len }, 1);
	if (sent == len || c->state == CONN_DEAD) {
		free(own);
		return;
	}
	o = out_add(c, 0);
	if (!o) {
		free(own);
		conn_kill(c);
		return;
	}
	o->own = own;
	o->data = data + sent;
	o->len = len - sent;
	if (!c->queued)
		wait_set(&c->send, c, WAIT_SEND);
	queued_more(c, o->len);
}

/* @n bytes from the queue's front have been sent. */
static void advance(struct conn *c, size_t n)
{
	queued_less(c, n);
	while (n) {
		struct out *o = TAILQ_FIRST(&c->out);

		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not see that TAILQ_REMOVE changes the first one */
		if (n < o->len) {
			o->data += n;
			o->len -= n;
			return;
		}
		n -= o->len;
		out_free(c, o);
	}
}

void conn_flush(struct conn *c)
{
	while (c->queued && c->state != CONN_DEAD) {
		struct iovec iov[IOV_AT_ONCE];
		size_t n = 0, all = 0, sent;
		struct out *o;

		TAILQ_FOREACH(o, &c->out, link)
		{
			if (n == IOV_AT_ONCE)
				break;
			iov[n++] = (struct iovec){ .iov_base = (char *)(uintptr_t)o->data, .iov_len = o->len };
			all += o->len;
		}
		sent = push(c, iov, n);
		if (!sent)
			return;
		advance(c, sent);
		if (c->queued)
			wait_set(&c->send, c, WAIT_SEND);
		else
			wait_off(&c->send);
		res_queue_fell(c);
		if (sent < all)
			return;
	}
}

void conn_unlend(struct conn *c)
{
	struct out *o, *copy;

	TAILQ_FOREACH(o, &c->out, link)
	{
		if (!o->lent)
			continue;
		copy = malloc(sizeof(*copy) + o->len);
		if (!copy) {
			conn_kill(c);
			return;
		}
		*copy = (struct out){ .data = copy->copy, .len = o->len };
		memcpy(copy->copy, o->data, o->len);
		TAILQ_INSERT_BEFORE(o, copy, link);
		out_free(c, o);
		o = copy;
	}
}
