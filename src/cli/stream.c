#include "cli/stream.h"
#include "base/base.h"
#include "base/sys.h"

static void pass(struct out_stream *s, const char *data, size_t len)
{
	int r;

	if (s->broken || s->to < 0 || !len)
		return;
	r = fd_write_all(s->to, data, len);
	if (r < 0) {
		s->broken = true;
		s->error = r == -EPIPE ? 0 : r;
	}
}

int out_stream_read(struct out_stream *s)
{
	char data[65536];
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
		char data[65536];
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
