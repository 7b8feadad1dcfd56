/* Moves bytes from one socket to another. */
#include "egress/relay.h"
#include "base/base.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LARGE 16384 /* a read that counts as large */
#define LARGE_ROW 3 /* so many of them, and it is worth a pipe */
/*
 * The larger, the fewer turns and wakeups a byte costs. But a user's pipes have a bound together (64 MiB as a rule), past
 * which new ones hold next to nothing: when many are in use, the later ones are smaller.
 */
#define PIPE_SIZE (1024 * 1024)
#define PIPE_SIZE_MANY (256 * 1024)
#define PIPES_MANY 16U

int relay_init(struct relay *r)
{
	*r = (struct relay){ .bytes = malloc(RELAY_READ), .most = UINT32_MAX };
	return r->bytes ? 0 : -ENOMEM;
}

void relay_done(struct relay *r)
{
	while (r->pipes) {
		r->pipes--;
		close(r->pipe[r->pipes][0]);
		close(r->pipe[r->pipes][1]);
	}
	free(r->bytes);
	r->bytes = NULL;
}

void relay_half_init(struct relay_half *h)
{
	*h = (struct relay_half){ .pipe = { -1, -1 }, .most = PIPE_SIZE };
}

static int take_pipe(struct relay *r, struct relay_half *h)
{
	if (h->pipe[0] >= 0)
		return 0;
	if (r->pipes) {
		memcpy(h->pipe, r->pipe[--r->pipes], sizeof(h->pipe));
		return 0;
	}
	if (r->open >= r->most || pipe2(h->pipe, O_NONBLOCK | O_CLOEXEC) < 0) {
		h->pipe[0] = h->pipe[1] = -1;
		return -EMFILE;
	}
	/* Or as it is, where that is not allowed: slower, and nothing else. */
	fcntl(h->pipe[1], F_SETPIPE_SZ, r->open < PIPES_MANY ? PIPE_SIZE : PIPE_SIZE_MANY);
	r->open++;
	return 0;
}

static void give_pipe(struct relay *r, struct relay_half *h)
{
	if (h->pipe[0] < 0)
		return;
	if (h->in_pipe || r->pipes == RELAY_PIPES) {
		r->open--;
		close(h->pipe[0]);
		close(h->pipe[1]);
	} else {
		memcpy(r->pipe[r->pipes++], h->pipe, sizeof(h->pipe));
	}
	h->pipe[0] = h->pipe[1] = -1;
	h->in_pipe = 0;
}

static void drop_buf(struct relay_half *h)
{
	free(h->buf);
	h->buf = NULL;
	h->off = h->len = h->pass = 0;
}

void relay_half_done(struct relay *r, struct relay_half *h)
{
	give_pipe(r, h);
	drop_buf(h);
}

int relay_put(struct relay_half *h, const void *data, size_t len)
{
	char *buf = malloc(h->len + len);

	if (!buf || h->len + len > UINT32_MAX) {
		free(buf);
		return -ENOMEM;
	}
	if (h->len)
		memcpy(buf, h->buf + h->off, h->len);
	memcpy(buf + h->len, data, len);
	free(h->buf);
	h->buf = buf;
	h->off = 0;
	h->len += (uint32_t)len;
	return 0;
}

ssize_t relay_hold(struct relay *r, struct relay_half *h, struct relay_side *src, size_t max)
{
	size_t room = max > h->len ? max - h->len : 0;
	ssize_t n;

	if (!room)
		return -ENOBUFS;
	if (room > RELAY_READ)
		room = RELAY_READ;
	n = recv(src->fd, r->bytes, room, MSG_DONTWAIT);
	if (n < 0) {
		if (errno == EAGAIN)
			src->in = false;
		return -errno;
	}
	if (n == 0) {
		h->eof = true;
		src->in = false;
		return 0;
	}
	if ((size_t)n < room && !src->hup)
		src->in = false;
	return relay_put(h, r->bytes, (size_t)n) < 0 ? -ENOMEM : n;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* 1: all that may go is gone; 0: the destination is full; -errno. */
static int write_waiting(struct relay_half *h, struct relay_side *dst)
{
	while (h->in_pipe || h->pass) {
		ssize_t n;

		if (!dst->out)
			return 0;
		if (h->pass)
			n = send(dst->fd, h->buf + h->off, h->pass, MSG_DONTWAIT | MSG_NOSIGNAL);
		else
			n = splice(h->pipe[0], NULL, dst->fd, NULL, h->in_pipe, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		if (n < 0) {
			if (errno != EAGAIN)
				return -errno;
			dst->out = false;
			return 0;
		}
		if (h->pass) {
			h->pass -= (uint32_t)n;
			h->off += (uint32_t)n;
			h->len -= (uint32_t)n;
			if (!h->len)
				drop_buf(h);
		} else {
			h->in_pipe -= (uint32_t)n;
		}
	}
	return 1;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Straight from socket to socket; what the destination does not take waits. Bytes read, 0 at the end, or -errno. */
static ssize_t copy(struct relay *r, struct relay_half *h, struct relay_side *src, struct relay_side *dst, size_t most)
{
	size_t want = most < RELAY_READ ? most : RELAY_READ;
	ssize_t n = recv(src->fd, r->bytes, want, MSG_DONTWAIT), k = 0;

	if (n <= 0)
		return n < 0 ? -errno : 0;
	if ((size_t)n < want && !src->hup)
		src->in = false; /* nothing is left: epoll reports more */
	h->large = n >= LARGE ? (uint8_t)(h->large + 1) : 0;
	if (dst->out) {
		k = send(dst->fd, r->bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (k < 0 && errno != EAGAIN)
			h->broken = true;
		if (k < 0)
			k = 0;
		dst->out = k == n;
	}
	if (k < n && !h->broken) {
		if (relay_put(h, r->bytes + k, (size_t)(n - k)) < 0)
			return -ENOMEM;
		h->pass = h->len;
	}
	return n;
}

static ssize_t splice_in(struct relay *r, struct relay_half *h, struct relay_side *src, size_t most)
{
	ssize_t n;

	if (take_pipe(r, h) < 0) {
		h->large = 0; /* the other direction needs no pipe */
		return -EINTR;
	}
	if (most > h->most)
		most = h->most;
	n = splice(src->fd, NULL, h->pipe[1], NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0)
		return -errno;
	h->in_pipe = (uint32_t)n;
	if (n > 0 && n < 4096)
		h->large--; /* small ones are copied again */
	return n;
}

enum relay_state relay_pump(struct relay *r, struct relay_half *h, struct relay_side *src, struct relay_side *dst,
			    size_t most, uint64_t plain, size_t *ret_read)
{
	*ret_read = 0;
	for (;;) {
		size_t room = most - *ret_read;
		int w = h->broken ? 0 : write_waiting(h, dst);
		ssize_t n;

		if (w < 0) {
			h->broken = true;
			return RELAY_DST_BROKE;
		}
		if (w == 0)
			return RELAY_IDLE;
		if (h->eof) {
			if (!h->shut && !h->len) {
				h->shut = true;
				shutdown(dst->fd, SHUT_WR);
			}
			break;
		}
		if (h->held || h->len || !src->in || *ret_read >= plain)
			break;
		if (!room)
			return RELAY_MORE;
		if (plain - *ret_read < room)
			room = (size_t)(plain - *ret_read);
		if (h->large >= LARGE_ROW)
			n = splice_in(r, h, src, room);
		else
			n = copy(r, h, src, dst, room);
		if (n == -EAGAIN)
			src->in = false;
		else if (n == 0)
			h->eof = true;
		else if (n < 0 && n != -EINTR)
			return RELAY_SRC_BROKE;
		else if (n > 0)
			*ret_read += (size_t)n;
		if (h->broken)
			return RELAY_DST_BROKE;
	}
	if (!h->in_pipe)
		give_pipe(r, h);
	return RELAY_IDLE;
}
