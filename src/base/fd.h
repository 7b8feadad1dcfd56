/* File descriptors: closing, whole small files, and messages that carry descriptors. */
#pragma once
#include <stddef.h>
#include <sys/types.h>

/* Ignores -1. Never retried: after EINTR the descriptor is already gone. */
void fd_close(int fd);
void fd_closep(int *fd);
void fd_close_many(int *fds, size_t n); /* and sets each to -1 */

/* Write @text to an existing file (cgroup, /proc) in one write. Returns 0 or -errno; a short write is -EIO. */
int fd_put(int dirfd, const char *path, const char *text);
/* Read a small file into @buf, NUL-terminated. Returns the length, or -errno; -EFBIG when it does not fit. */
ssize_t fd_get(int dirfd, const char *path, char *buf, size_t size);
/* Read one decimal number; "max" is UINT64_MAX. */
int fd_get_u64(int dirfd, const char *path, unsigned long long *ret);

/* Write all of @len, waiting when the descriptor is non-blocking. Returns 0 or -errno. Never raises SIGPIPE on
 * sockets. */
int fd_write_all(int fd, const void *data, size_t len);

#define FD_MSG_MAX 144
/* One message with up to FD_MSG_MAX descriptors. Blocks until all of it is sent. Returns 0 or -errno. */
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds);
/* As fd_send, but never waits: -EAGAIN when there is no room. On a stream, for what is small enough to go at once. */
int fd_send_now(int sock, const void *data, size_t len, const int *fds, size_t nfds);
/*
 * One recvmsg. Returns bytes (0 at end of file) or -errno. Descriptors arrive close-on-exec in @fds, their number in
 * *nfds; more than @max of them is -EMSGSIZE and all are closed.
 */
ssize_t fd_recv(int sock, void *data, size_t len, int *fds, size_t max, size_t *nfds);

int fd_set_nonblock(int fd);
