/* Reads, writes and sends whole messages, with descriptors. */
#include "base/fd.h"
#include "base/base.h"
#include "base/sys.h"

#include <poll.h>
#include <unistd.h>

void fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
}

void fd_closep(int *fd)
{
	fd_close(*fd);
}

void fd_close_many(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		fd_close(fds[i]);
		fds[i] = -1;
	}
}

int fd_put(int dirfd, const char *path, const char *text)
{
	AUTO_CLOSE int fd = sys_openat(dirfd, path, O_WRONLY | O_CLOEXEC, 0);
	size_t len = strlen(text);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = sys_write(fd, text, len);
	if (n < 0)
		return (int)n;
	return (size_t)n == len ? 0 : -EIO;
}

ssize_t fd_get(int dirfd, const char *path, char *buf, size_t size)
{
	AUTO_CLOSE int fd = sys_openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	size_t have = 0;

	if (fd < 0)
		return fd;
	for (;;) {
		ssize_t n = sys_read(fd, buf + have, size - have);

		if (n < 0)
			return n;
		if (n == 0)
			break;
		have += (size_t)n;
		if (have == size)
			return -EFBIG;
	}
	buf[have] = '\0';
	return (ssize_t)have;
}

int fd_get_u64(int dirfd, const char *path, unsigned long long *ret)
{
	char buf[64], *end;
	ssize_t n = fd_get(dirfd, path, buf, sizeof(buf));
	unsigned long long v;

	if (n < 0)
		return (int)n;
	if (!strncmp(buf, "max", 3)) {
		*ret = UINT64_MAX;
		return 0;
	}
	errno = 0;
	v = strtoull(buf, &end, 10);
	if (errno || end == buf)
		return -EINVAL;
	*ret = v;
	return 0;
}

static int wait_writable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	return poll(&p, 1, -1) < 0 && errno != EINTR ? -errno : 0;
}

int fd_write_all(int fd, const void *data, size_t len)
{
	const char *p = data;
	bool sock = true; /* assumed until ENOTSOCK: only sendmsg can suppress SIGPIPE */

	while (len) {
		struct iovec iov = { (void *)(uintptr_t)p, len };
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
		ssize_t n = sock ? sys_sendmsg(fd, &m, MSG_NOSIGNAL) : sys_write(fd, p, len);

		if (n == -ENOTSOCK) {
			sock = false;
			continue;
		}
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN) {
			int r = wait_writable(fd);

			if (r < 0)
				return r;
			continue;
		}
		if (n < 0)
			return (int)n;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

#define FD_CTL CMSG_SPACE(sizeof(int) * FD_MSG_MAX)

static void put_fds(struct msghdr *m, char *ctl, const int *fds, size_t nfds)
{
	struct cmsghdr *c = (struct cmsghdr *)(void *)ctl;

	assert(nfds <= FD_MSG_MAX);
	if (!nfds)
		return;
	m->msg_control = ctl;
	m->msg_controllen = (socklen_t)CMSG_SPACE(sizeof(int) * nfds);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = (socklen_t)CMSG_LEN(sizeof(int) * nfds);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
}

int fd_send_now(int sock, const void *data, size_t len, const int *fds, size_t nfds)
{
	_Alignas(struct cmsghdr) char ctl[FD_CTL] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)data, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	put_fds(&m, ctl, fds, nfds);
	do {
		n = sys_sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n == -EINTR);
	return n < 0 ? (int)n : (size_t)n == len ? 0 : -EIO;
}

int fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds)
{
	_Alignas(struct cmsghdr) char ctl[FD_CTL] = { 0 };
	struct iovec iov = { (void *)(uintptr_t)data, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	put_fds(&m, ctl, fds, nfds);
	while (iov.iov_len) {
		ssize_t n = sys_sendmsg(sock, &m, MSG_NOSIGNAL);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN) {
			int r = wait_writable(sock);

			if (r < 0)
				return r;
			continue;
		}
		if (n < 0)
			return (int)n;
		/* On a stream the first bytes took the descriptors along. */
		m.msg_control = NULL;
		m.msg_controllen = 0;
		iov.iov_base = (char *)iov.iov_base + n;
		iov.iov_len -= (size_t)n;
	}
	return 0;
}

ssize_t fd_recv(int sock, void *data, size_t len, int *fds, size_t max, size_t *nfds)
{
	_Alignas(struct cmsghdr) char ctl[CMSG_SPACE(sizeof(int) * FD_MSG_MAX)];
	struct iovec iov = { data, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl) };
	bool overflow = false;
	ssize_t n;

	*nfds = 0;
	do {
		n = sys_recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	} while (n == -EINTR);
	if (n < 0)
		return n;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (*nfds < max) {
				fds[(*nfds)++] = fd;
			} else {
				fd_close(fd);
				overflow = true;
			}
		}
	}
	if (overflow || (m.msg_flags & MSG_CTRUNC)) {
		fd_close_many(fds, *nfds);
		*nfds = 0;
		return -EMSGSIZE;
	}
	return n;
}

int fd_set_nonblock(int fd)
{
	int flags = sys_fcntl(fd, F_GETFL, 0);

	return flags < 0 ? flags : sys_fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}
