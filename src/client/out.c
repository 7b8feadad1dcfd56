/* Queues what is printed, and writes it when there is room. */
#include "client/out.h"
#include "base/base.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (64 * KIB)

void out_init(struct out *o, int fd)
{
	struct stat st;
	char path[32];
	int own;

	*o = (struct out){ .fd = fd, .pending = BUF_INIT(OUT_MAX) };
	if (fstat(fd, &st) < 0)
		return;
	o->socket = S_ISSOCK(st.st_mode);
	if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
		return;
	/* O_NONBLOCK belongs to the description, which others share: so we open one of our own. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (own >= 0) {
		o->fd = own;
		o->own = true;
	}
}

void out_done(struct out *o)
{
	if (o->own)
		fd_close(o->fd);
	buf_done(&o->pending);
}

/* Bytes written, 0 when it would have to wait. */
static size_t put(struct out *o, const char *data, size_t len)
{
	ssize_t n;

	do {
		n = o->socket ? send(o->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) : write(o->fd, data, len);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return (size_t)n;
	if (errno != EAGAIN) {
		o->broken = true;
		o->error = errno == EPIPE ? 0 : -errno;
		buf_clear(&o->pending);
	}
	return 0;
}

void out_put(struct out *o, const void *data, size_t len)
{
	const char *p = data;
	size_t n = 1;

	while (len && n && !o->pending.len && !o->broken) {
		n = put(o, p, len < PIECE ? len : PIECE);
		p += n;
		len -= n;
	}
	if (len && !o->broken && buf_add(&o->pending, p, len) < 0) {
		o->broken = true;
		o->error = -ENOBUFS;
	}
}

void out_flush(struct out *o)
{
	size_t done = 0, n = 1;

	while (done < o->pending.len && n && !o->broken) {
		size_t left = o->pending.len - done;

		n = put(o, o->pending.data + done, left < PIECE ? left : PIECE);
		if (!o->broken)
			done += n;
	}
	if (!o->broken)
		buf_drop(&o->pending, done);
}
