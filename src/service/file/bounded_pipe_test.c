/* Real pipes on a real loop. */
#include "service/file/bounded_pipe.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <unistd.h>

static struct {
	uv_loop_t loop;
	int from, to; /* what is written into it comes out of it */
	struct bounded_pipe *x;
	unsigned overs;
} k;

static void over(void *arg)
{
	(void)arg;
	k.overs++;
}

static bool begin(uint64_t max, uint64_t silent_ms, uint64_t unread_ms)
{
	const struct bounded_pipe_opts o = { .max = max, .silent_ms = silent_ms, .unread_ms = unread_ms, .over = over };
	int pipes[2];

	memset(&k, 0, sizeof(k));
	uv_loop_init(&k.loop);
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return false;
	k.from = pipes[1];
	return bounded_pipe_open(&k.loop, pipes[0], &o, &k.x, &k.to) == 0;
}

/* Until nothing is left to be waited for. */
static void end(void)
{
	uv_run(&k.loop, UV_RUN_DEFAULT);
	CHECK_EQ(uv_loop_close(&k.loop), 0);
	fd_close(k.from);
	fd_close(k.to);
}

TEST(all_that_goes_in_comes_out_and_then_it_ends)
{
	static char in[300000], out[300000];
	size_t sent = 0, got = 0;

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 7 + i / 251);
	CHECK(begin(sizeof(in), 60000, 60000));
	fd_set_nonblock(k.from);
	fd_set_nonblock(k.to);
	while (got < sizeof(in)) {
		ssize_t n = sent < sizeof(in) ? write(k.from, in + sent, sizeof(in) - sent) : 0;

		sent += n > 0 ? (size_t)n : 0;
		uv_run(&k.loop, UV_RUN_NOWAIT);
		n = read(k.to, out + got, sizeof(out) - got);
		got += n > 0 ? (size_t)n : 0;
	}
	CHECK(!memcmp(in, out, sizeof(in)));
	CHECK_EQ(k.overs, 0);
	fd_close(TAKE_FD(k.from));
	end();
	CHECK_EQ(k.overs, 1);
}

TEST(a_byte_too_many_is_the_end)
{
	CHECK(begin(10, 60000, 60000));
	CHECK_EQ(write(k.from, "0123456789", 10), 10);
	uv_run(&k.loop, UV_RUN_ONCE);
	CHECK_EQ(k.overs, 0);
	CHECK_EQ(write(k.from, "x", 1), 1);
	end();
	CHECK_EQ(k.overs, 1);
}

TEST(silence_is_the_end)
{
	CHECK(begin(10, 20, 60000));
	end();
	CHECK_EQ(k.overs, 1);
}

TEST(a_stream_without_an_end_is_the_end_after_so_long)
{
	const struct bounded_pipe_opts o = {
		.max = UINT64_MAX, .silent_ms = 60000, .unread_ms = 60000, .all_ms = 50, .over = over
	};
	static char data[4096];
	int pipes[2];

	memset(&k, 0, sizeof(k));
	uv_loop_init(&k.loop);
	CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
	k.from = pipes[1];
	CHECK_EQ(bounded_pipe_open(&k.loop, pipes[0], &o, &k.x, &k.to), 0);
	fd_set_nonblock(k.from);
	fd_set_nonblock(k.to);
	while (!k.overs) {
		ssize_t n = write(k.from, data, sizeof(data));

		(void)n;
		uv_run(&k.loop, UV_RUN_NOWAIT);
		n = read(k.to, data, sizeof(data));
	}
	end();
	CHECK_EQ(k.overs, 1);
}

TEST(a_reader_that_is_gone_ends_it_at_once)
{
	CHECK(begin(10, 60000, 60000));
	uv_run(&k.loop, UV_RUN_NOWAIT);
	fd_close(TAKE_FD(k.to));
	end();
	CHECK_EQ(k.overs, 1);
}

TEST(a_reader_that_does_not_read_is_not_waited_for_for_ever)
{
	static const char block[65536];

	CHECK(begin(1 << 20, 60000, 20));
	fd_set_nonblock(k.from);
	for (unsigned i = 0; i < 8 && !k.overs; i++) {
		ssize_t n = write(k.from, block, sizeof(block));

		(void)n;
		uv_run(&k.loop, UV_RUN_NOWAIT);
	}
	end();
	CHECK_EQ(k.overs, 1);
}

TEST(it_can_be_given_up_without_a_word)
{
	CHECK(begin(10, 60000, 60000));
	bounded_pipe_free(k.x);
	end();
	CHECK_EQ(k.overs, 0);
}
