/* Moves bytes of one stream, and stops reading when the other side does. */
#include "cli/stream.h"
#include "base/base.h"
#include "base/sys.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define WAIT_MS 20
#define PIECE 4096 /* what a pipe that can be written to takes without a wait */

static void wait_writable(const struct out_stream *s)
{
	struct pollfd p = { .fd = s->to, .events = POLLOUT };

	while (s->waiting && poll(&p, 1, WAIT_MS) == 0)
		s->waiting(s->arg);
}

static void pass(struct out_stream *s, const char *data, size_t len)
{
	while (!s->broken && s->to >= 0 && len) {
		size_t n = len < PIECE ? len : PIECE;
		int r;

		wait_writable(s);
		r = fd_write_all(s->to, data, n);
		if (r < 0) {
			s->broken = true;
			s->error = r == -EPIPE ? 0 : r;
		}
		data += n;
		len -= n;
	}
}

int out_stream_read(struct out_stream *s)
{
	char data[16384];
	ssize_t n = sys_read(s->from, data, sizeof(data));
	long head;

	if (n == -EAGAIN || n == -EINTR)
		return 1;
	/* EIO is how a terminal says that its last user is gone. */
	if (n <= 0 || s->broken) {
		fd_close(s->from);
		s->from = -1;
		return n < 0 && n != -EIO && !s->broken ? (int)n : 0;
	}
	head = capture_add(&s->capture, data, (size_t)n, s->to < 0);
	if (head < 0)
		return (int)head;
	pass(s, data, (size_t)head);
	return 1;
}

int out_stream_drain(struct out_stream *s)
{
	/* A process left behind may write for ever: take no more than a pipe can hold at most. */
	for (unsigned i = 0; s->from >= 0 && i < 64; i++) {
		char data[16384];
		ssize_t n = sys_read(s->from, data, sizeof(data));
		long head;

		if (n == -EINTR)
			continue;
		if (n < 0 && n != -EAGAIN && n != -EIO)
			return (int)n;
		if (n <= 0 || s->broken)
			break;
		head = capture_add(&s->capture, data, (size_t)n, s->to < 0);
		if (head < 0)
			return (int)head;
		pass(s, data, (size_t)head);
	}
	return 0;
}

static int pass_piece(void *arg, const char *data, size_t len)
{
	pass(arg, data, len);
	return 0;
}

int out_stream_finish(struct out_stream *s)
{
	return s->to < 0 ? 0 : capture_tail(&s->capture, pass_piece, s);
}

static void in_done(struct in_stream *s)
{
	fd_close(s->to);
	s->to = s->from = -1;
}

bool in_stream_wants_read(const struct in_stream *s)
{
	return s->from >= 0 && s->at == s->len;
}

void in_stream_read(struct in_stream *s)
{
	ssize_t n = sys_read(s->from, s->data, sizeof(s->data));

	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n <= 0) {
		/* A closed stdin is an empty one, and so is a terminal that is not ours to read from. */
		if (n < 0 && n != -EBADF && !isatty(s->from))
			fprintf(stderr, "cloche: read stdin: %s; the command received what was read before\n",
				strerror((int)-n));
		in_done(s);
		return;
	}
	s->len = (size_t)n;
	s->at = 0;
	in_stream_write(s);
}

void in_stream_write(struct in_stream *s)
{
	while (s->at < s->len) {
		ssize_t n = sys_write(s->to, s->data + s->at, s->len - s->at);

		if (n == -EAGAIN)
			return;
		if (n == -EINTR)
			continue;
		if (n <= 0) {
			in_done(s);
			return;
		}
		s->at += (size_t)n;
	}
}
