#include "cli/stream.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static int in[2], out[2];
static char back[100000];

static void start(struct out_stream *s, uint64_t limit, size_t head)
{
	signal(SIGPIPE, SIG_IGN);
	*s = (struct out_stream){ .from = -1, .to = -1 };
	if (pipe2(in, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0) {
		s->from = in[0];
		s->to = out[1];
	}
	capture_init(&s->capture, limit, head);
}

static void stop(struct out_stream *s)
{
	capture_done(&s->capture);
	fd_close(s->from);
	close(in[1]);
	close(out[0]);
	close(out[1]);
}

static void got(size_t n)
{
	ssize_t r = read(out[0], back, sizeof(back) - 1);

	back[r > 0 ? r : 0] = '\0';
	CHECK_EQ(r > 0 ? r : 0, n);
}

TEST(bytes_pass_at_once_until_the_limit_and_the_tail_at_the_end)
{
	struct out_stream s;

	start(&s, 8, 5);
	CHECK_EQ(write(in[1], "abc", 3), 3);
	CHECK_EQ(out_stream_read(&s), 1);
	got(3);
	CHECK_EQ(write(in[1], "defghijklmno", 12), 12);
	CHECK_EQ(out_stream_read(&s), 1);
	got(2);
	CHECK_STR(back, "de");
	CHECK_EQ(out_stream_read(&s), 1); /* nothing there: more may follow */
	CHECK_EQ(out_stream_finish(&s), 0);
	got(3);
	CHECK_STR(back, "mno");
	CHECK_EQ(capture_dropped(&s.capture), 7);
	stop(&s);
}

TEST(the_end_of_the_writer_ends_the_stream)
{
	struct out_stream s;

	start(&s, 0, 0);
	CHECK_EQ(write(in[1], "abc", 3), 3);
	close(in[1]);
	CHECK_EQ(out_stream_read(&s), 1);
	CHECK_EQ(out_stream_read(&s), 0);
	CHECK_EQ(s.from, -1);
	in[1] = -1;
	got(3);
	stop(&s);
}

TEST(a_reader_that_went_away_is_no_error)
{
	struct out_stream s;

	start(&s, 0, 0);
	close(out[0]);
	CHECK_EQ(write(in[1], "abc", 3), 3);
	CHECK_EQ(out_stream_read(&s), 1);
	CHECK(s.broken && s.error == 0);
	CHECK_EQ(write(in[1], "abc", 3), 3);
	CHECK_EQ(out_stream_read(&s), 0); /* and the command will see it too */
	CHECK_EQ(write(in[1], "abc", 3), -1);
	stop(&s);
}

TEST(a_place_that_is_full_is_an_error)
{
	struct out_stream s;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	start(&s, 0, 0);
	s.to = full;
	CHECK_EQ(write(in[1], "abc", 3), 3);
	CHECK_EQ(out_stream_read(&s), 1);
	CHECK(s.broken);
	CHECK_EQ(s.error, -ENOSPC);
	close(full);
	stop(&s);
}

TEST(draining_takes_what_is_there_and_waits_for_nobody)
{
	struct out_stream s;

	start(&s, 0, 0);
	CHECK_EQ(write(in[1], "abc", 3), 3);
	CHECK_EQ(out_stream_drain(&s), 0); /* the writer still holds its end */
	got(3);
	stop(&s);
}

TEST(without_a_place_bytes_are_kept)
{
	struct out_stream s;

	start(&s, 100, 50);
	s.to = -1;
	CHECK_EQ(write(in[1], "abc", 3), 3);
	CHECK_EQ(out_stream_read(&s), 1);
	CHECK_STR(buf_str(&s.capture.head), "abc");
	stop(&s);
}

TEST(input_waits_for_room_and_loses_nothing)
{
	static struct in_stream s;
	static char data[300000];
	size_t have = 0, sent = 0;
	int from[2], to[2];

	CHECK_EQ(pipe2(from, O_CLOEXEC | O_NONBLOCK), 0);
	CHECK_EQ(pipe2(to, O_CLOEXEC | O_NONBLOCK), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 256);
	s = (struct in_stream){ .from = from[0], .to = to[1] };
	while (have < sizeof(data)) {
		ssize_t n = write(from[1], data + sent, sizeof(data) - sent);

		if (n > 0)
			sent += (size_t)n;
		if (sent == sizeof(data) && from[1] >= 0) {
			close(from[1]);
			from[1] = -1;
		}
		if (in_stream_wants_read(&s))
			in_stream_read(&s);
		else if (s.to >= 0)
			in_stream_write(&s);
		n = read(to[0], back, 1000);
		CHECK(n <= 0 || !memcmp(back, data + have, (size_t)n));
		have += n > 0 ? (size_t)n : 0;
	}
	in_stream_read(&s);
	CHECK_EQ(s.to, -1);
	CHECK_EQ(read(to[0], back, 1), 0); /* the command sees the end */
	close(from[0]);
	close(to[0]);
}

TEST(a_command_that_reads_no_more_ends_the_input)
{
	static struct in_stream s;
	int from[2], to[2];

	signal(SIGPIPE, SIG_IGN);
	CHECK_EQ(pipe2(from, O_CLOEXEC | O_NONBLOCK), 0);
	CHECK_EQ(pipe2(to, O_CLOEXEC | O_NONBLOCK), 0);
	s = (struct in_stream){ .from = from[0], .to = to[1] };
	close(to[0]);
	CHECK_EQ(write(from[1], "x", 1), 1);
	in_stream_read(&s);
	CHECK(s.to == -1 && s.from == -1);
	close(from[0]);
	close(from[1]);
}
