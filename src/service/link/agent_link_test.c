/* The link, against a socket at whose other end the test takes the agent's place. */
#include "service/link/agent_link.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/socket.h>
#include <unistd.h>

static struct {
	uv_loop_t loop;
	struct agent_link link;
	int agent;
	unsigned frames, ends;
	int end; /* why it ended */
	bool hangs_up, answers;
} k;

static void on_frame(void *arg, int r, const struct frame *f, int *fds, size_t nfds)
{
	(void)arg;
	(void)fds;
	(void)nfds;
	if (r < 0) {
		k.ends++;
		k.end = r;
		return;
	}
	k.frames += f->type == FRAME_READY;
	if (k.hangs_up)
		agent_link_close(&k.link);
	else if (k.answers)
		agent_link_send(&k.link, FRAME_PING, 1, NULL, 0, NULL, 0);
}

static bool begin(void)
{
	int pair[2];

	memset(&k, 0, sizeof(k));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || uv_loop_init(&k.loop) < 0)
		return false;
	k.agent = pair[1];
	return agent_link_open(&k.link, &k.loop, pair[0], on_frame, NULL, NULL) == 0;
}

static void say_ready(unsigned times)
{
	uint8_t out[FRAME_HEAD];

	frame_head(out, FRAME_READY, 0, 0, 0);
	while (times--)
		(void)!send(k.agent, out, sizeof(out), 0);
}

static void over(void)
{
	agent_link_close(&k.link);
	uv_run(&k.loop, UV_RUN_DEFAULT);
	CHECK_EQ(uv_loop_close(&k.loop), 0);
}

/* Returns when nothing is watched any more: then no event can come, however long one waits. */
static void run(void)
{
	uv_run(&k.loop, UV_RUN_DEFAULT);
}

TEST(an_agent_that_ends_is_noticed_after_all_its_frames)
{
	CHECK(begin());
	say_ready(3);
	close(k.agent);
	run();
	CHECK_EQ(k.frames, 3);
	CHECK_EQ(k.ends, 1);
	CHECK_EQ(k.end, -EPIPE);
	over();
}

TEST(an_agent_that_is_killed_before_it_has_read_everything_is_noticed)
{
	CHECK(begin());
	CHECK_EQ(agent_link_send(&k.link, FRAME_PING, 1, NULL, 0, NULL, 0), 0);
	close(k.agent);
	run();
	CHECK_EQ(k.ends, 1);
	CHECK_EQ(k.end, -EPIPE);
	over();
}

TEST(frames_of_an_agent_that_is_killed_before_it_has_read_everything_come_before_its_end)
{
	CHECK(begin());
	CHECK_EQ(agent_link_send(&k.link, FRAME_PING, 1, NULL, 0, NULL, 0), 0);
	say_ready(2);
	close(k.agent);
	run();
	CHECK_EQ(k.frames, 2);
	CHECK_EQ(k.ends, 1);
	CHECK_EQ(k.end, -EPIPE);
	over();
}

/* A send takes the error off the socket. */
TEST(its_end_is_noticed_when_a_frame_of_it_is_answered_at_once)
{
	CHECK(begin());
	k.answers = true;
	CHECK_EQ(agent_link_send(&k.link, FRAME_PING, 1, NULL, 0, NULL, 0), 0);
	say_ready(1);
	close(k.agent);
	run();
	CHECK_EQ(k.frames, 1);
	CHECK_EQ(k.ends, 1);
	over();
}

/* More frames than are read in one event. */
TEST(many_frames_of_a_killed_agent_are_all_handed_out)
{
	CHECK(begin());
	CHECK_EQ(agent_link_send(&k.link, FRAME_PING, 1, NULL, 0, NULL, 0), 0);
	/* As many as fit: a full socket would block this process. */
	say_ready(100);
	close(k.agent);
	run();
	CHECK_EQ(k.frames, 100);
	CHECK_EQ(k.ends, 1);
	over();
}

TEST(a_link_that_is_closed_by_a_frame_of_a_killed_agent_stays_closed)
{
	CHECK(begin());
	k.hangs_up = true;
	CHECK_EQ(agent_link_send(&k.link, FRAME_PING, 1, NULL, 0, NULL, 0), 0);
	say_ready(2);
	close(k.agent);
	run();
	CHECK_EQ(k.frames, 1);
	CHECK_EQ(k.ends, 0);
	CHECK(!k.link.poll);
	over();
}
