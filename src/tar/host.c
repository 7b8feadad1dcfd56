/* Asks a file worker, with several requests under way. */
#include "tar/tar.h"
#include "base/base.h"
#include "base/sys.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static int lost(struct err *e, const char *what)
{
	return err_set(e, ERR_LOST, -EREMOTEIO, "the sandbox's file worker %s", what);
}

/* One that takes nothing is as stuck as one that says nothing. */
static int write_out(const struct host *h, size_t len)
{
	const uint8_t *p = h->out;

	if (!h->patience)
		return fd_write_all(h->fd, p, len);
	while (len) {
		struct pollfd ready = { .fd = h->fd, .events = POLLOUT };
		ssize_t n;

		if (poll(&ready, 1, h->patience) == 0)
			return -ETIMEDOUT;
		n = send(h->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return -EPIPE;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int host_send(struct host *h, enum file_type type, const void *data, size_t len, struct err *e)
{
	file_head(h->out, type, 0, h->tag, (uint32_t)len);
	if (len)
		memcpy(h->out + FILE_HEAD, data, len);
	return write_out(h, FILE_HEAD + len) < 0 ? lost(e, "has ended") : 0;
}

int host_ask(struct host *h, enum file_type type, unsigned flags, const struct file_request *q, struct err *e)
{
	long n = file_request_encode(q, h->out + FILE_HEAD, FILE_SMALL_MAX);

	if (n < 0)
		return err_set(e, ERR_INVALID, (int)n, "a path is too long");
	h->expect = ++h->tag;
	file_head(h->out, type, flags, h->tag, (uint32_t)n);
	return write_out(h, FILE_HEAD + (size_t)n) < 0 ? lost(e, "has ended") : 0;
}

int host_dress(struct host *h, const struct file_dress *x, unsigned flags, struct err *e)
{
	long n = file_dress_encode(x, h->out + FILE_HEAD, FILE_DATA_MAX);

	if (n < 0)
		return err_set(e, ERR_INVALID, (int)n, "a path is too long, or its attributes");
	h->expect = ++h->tag;
	file_head(h->out, FILE_DRESS, flags, h->tag, (uint32_t)n);
	return write_out(h, FILE_HEAD + (size_t)n) < 0 ? lost(e, "has ended") : 0;
}

static int read_exact(const struct host *h, uint8_t *to, size_t len)
{
	while (len) {
		struct pollfd p = { .fd = h->fd, .events = POLLIN };
		/* A process of the same user inside can stop a worker, which is not reported. */
		ssize_t n = h->patience && poll(&p, 1, h->patience) == 0 ? 0 : read(h->fd, to, len);

		if (n < 0 && errno == EAGAIN) {
			poll(&p, 1, -1);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -EREMOTEIO;
		to += n;
		len -= (size_t)n;
	}
	return 0;
}

int host_next(struct host *h, struct file_frame *ret, struct err *e)
{
	uint32_t len;
	long n;

	if (read_exact(h, h->in, FILE_HEAD) < 0)
		return lost(e, "has ended, or makes no progress");
	n = file_decode(FILE_FROM_WORKER, h->in, FILE_HEAD, ret);
	if (n == 0) {
		memcpy(&len, h->in + 8, sizeof(len)); /* checked: not beyond what a frame may have */
		if (read_exact(h, h->in + FILE_HEAD, len) < 0)
			return lost(e, "has ended");
		n = file_decode(FILE_FROM_WORKER, h->in, FILE_HEAD + len, ret);
	}
	if (n <= 0 || ret->tag != h->expect)
		return lost(e, "sent an invalid message");
	if (ret->type == FILE_END) {
		if (file_end_decode(ret, &h->end) < 0)
			return lost(e, "sent an invalid message");
		h->end_flags = ret->flags;
	}
	return 0;
}

int host_wait(struct host *h, struct err *e)
{
	struct file_frame f;

	do {
		int r = host_next(h, &f, e);

		if (r < 0)
			return r;
	} while (f.type != FILE_END);
	return -(int)h->end.errnum;
}

bool host_answered(const struct host *h)
{
	struct pollfd p = { .fd = h->fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}
