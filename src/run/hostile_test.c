/* A real agent whose host sends invalid frames: it refuses them or ends, the host is notified, and nothing stays. */
#include "run/engine.h"
#include "base/base.h"
#include "base/test.h"
#include "proto/exec.h"
#include "warden/warden_test.h"

static struct engine *engine;
static struct engine_sandbox box;
static struct err e;
static uint8_t bytes[FRAME_HEAD + 70000];

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static bool up(void)
{
	struct sandbox_spec spec = { .uid = 1000,
				     .gid = 1000,
				     .limits = { .memory = 64 * MIB, .disk = 16 * MIB, .pids = 32 } };
	struct engine_opts o = { 0 };
	char agent[512];

	snprintf(spec.image, sizeof(spec.image), "host");
	snprintf(spec.workdir, sizeof(spec.workdir), "/home/user");
	if (!wt_program("cloche-agent", agent, sizeof(agent)))
		return false;
	o.agent = agent;
	e = (struct err){ 0 };
	if ((!engine && engine_new(&o, &engine, &e) < 0) || engine_create(engine, &spec, &box, &e) < 0) {
		printf("# %s\n", e.msg);
		return false;
	}
	if (engine_wait_up(&box, 10000, &e) < 0) {
		printf("# %s\n", e.msg);
		engine_destroy(&box, &e);
		return false;
	}
	return true;
}

/* The agent's answer, or its end: the type, -EPIPE, or 0 when it is silent. */
static int answer(struct frame *f, int ms)
{
	int fd = -1, r = link_next(&box.link, ms, f, &fd);

	fd_close(fd);
	return r == 1 ? f->type : r;
}

static bool alive(void)
{
	struct frame f;

	return link_send(&box.link, FRAME_PING, 42, NULL, 0, NULL, 0) == 0 && answer(&f, 5000) == FRAME_PONG &&
	       f.id == 42;
}

static bool ended(void)
{
	struct pollfd p = { .fd = box.pidfd, .events = POLLIN };

	return poll(&p, 1, 5000) == 1;
}

static size_t framed(enum frame_type type, uint8_t nfds, uint32_t len)
{
	frame_head(bytes, type, nfds, 7, len);
	return FRAME_HEAD + len;
}

TEST(what_can_be_no_frame_ends_the_agent)
{
	static const struct {
		const char *what, *bytes;
		size_t len;
	} cases[] = {
		{ "another protocol", "GET / HTTP/1.1\r\n\r\n", 18 },
		{ "version 2", "\2\4\0\0\0\0\0\0\0\0\0\0", 12 },
		{ "an unknown type", "\1\16\0\0\0\0\0\0\0\0\0\0", 12 },
		{ "one of its own types", "\1\20\0\0\0\0\0\0\0\0\0\0", 12 },
		{ "the reserved byte", "\1\4\0\1\0\0\0\0\0\0\0\0", 12 },
		{ "too many descriptors", "\1\4\377\0\0\0\0\0\0\0\0\0", 12 },
		{ "too long", "\1\4\0\0\0\0\0\0\377\377\377\377", 12 },
		{ "descriptors that did not come", "\1\4\1\0\0\0\0\0\0\0\0\0", 12 },
	};
	unsigned before = 0;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct frame f;

		CHECK(up());
		CHECK(alive());
		CHECK_EQ(write(box.link.sock, cases[i].bytes, cases[i].len), cases[i].len);
		if (!ended())
			TEST_FAIL("%s: the agent lives on", cases[i].what);
		CHECK_EQ(answer(&f, 1000), -EPIPE);
		CHECK_EQ(engine_destroy(&box, &e), 0);
		/* After the first round, each one leaves the host as it was. */
		CHECK(i == 0 || open_fds() == before);
		before = open_fds();
	}
}

TEST(a_frame_that_never_ends_keeps_nobody_from_ending_the_sandbox)
{
	CHECK(up());
	CHECK_EQ(write(box.link.sock, bytes, framed(FRAME_EXEC, 0, 60000) - 1000), FRAME_HEAD + 59000);
	CHECK_EQ(engine_destroy(&box, &e), 0);
}

TEST(payloads_of_garbage_are_refused_and_the_agent_stays)
{
	uint64_t x = 1;
	struct frame f;

	CHECK(up());
	for (unsigned i = 0; i < 300; i++) {
		uint32_t len = (uint32_t)(x >> 40) % (i % 10 ? 120 : 5000);
		const int fds[3] = { 0, 0, 0 };

		for (uint32_t k = 0; k < len; k++) {
			x = x * 6364136223846793005ULL + 1442695040888963407ULL;
			bytes[FRAME_HEAD + k] = i % 3 ? (uint8_t)(x >> 56) : (uint8_t)((x >> 56) & 3);
		}
		CHECK_EQ(fd_send(box.link.sock, bytes, framed(FRAME_EXEC, 3, len), fds, 3), 0);
		CHECK_EQ(answer(&f, 5000), FRAME_FAILED);
		CHECK_EQ(f.id, 7);
	}
	/* Invalid signals are not answered. */
	for (uint32_t len = 0; len < 12; len++) {
		memset(bytes + FRAME_HEAD, 0xff, len);
		CHECK_EQ(write(box.link.sock, bytes, framed(FRAME_SIGNAL, 0, len)), FRAME_HEAD + len);
	}
	CHECK(alive());
	CHECK_EQ(engine_destroy(&box, &e), 0);
}

TEST(a_keep_without_what_is_to_be_kept_ends_it)
{
	struct frame f;

	CHECK(up());
	CHECK_EQ(write(box.link.sock, bytes, framed(FRAME_KEEP, 0, 0)), FRAME_HEAD);
	CHECK_EQ(answer(&f, 5000), FRAME_FAILED);
	CHECK(ended());
	CHECK_EQ(engine_destroy(&box, &e), 0);
}

TEST(frames_about_execs_it_does_not_hold_are_ignored)
{
	static const enum frame_type types[] = { FRAME_RELEASE, FRAME_CLOSE_STDIN };
	struct frame f;

	CHECK(up());
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		CHECK_EQ(write(box.link.sock, bytes, framed(types[i], 0, 0)), FRAME_HEAD);
	CHECK_EQ(write(box.link.sock, bytes, framed(FRAME_SYNC, 0, 0)), FRAME_HEAD);
	CHECK_EQ(answer(&f, 5000), FRAME_SYNCED);
	CHECK(alive());
	CHECK_EQ(engine_destroy(&box, &e), 0);
}

TEST(a_second_setup_is_refused_for_good)
{
	struct frame_failed x;
	struct frame f;

	CHECK(up());
	memset(bytes + FRAME_HEAD, 0, 64);
	CHECK_EQ(write(box.link.sock, bytes, framed(FRAME_SETUP, 0, 64)), FRAME_HEAD + 64);
	CHECK_EQ(answer(&f, 5000), FRAME_FAILED);
	CHECK_EQ(frame_failed_decode(&f, &x), 0);
	CHECK_EQ(x.errnum, EALREADY);
	CHECK(ended());
	CHECK_EQ(engine_destroy(&box, &e), 0);
}

TEST(descriptors_nobody_asked_for_end_it_before_they_pile_up)
{
	const int fds[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
	int r = 0;

	CHECK(up());
	for (unsigned i = 0; r == 0 && i < 100; i++) {
		struct frame f;

		r = fd_send(box.link.sock, bytes, framed(FRAME_PING, 0, 0), fds, 8);
		if (r == 0 && answer(&f, 5000) != FRAME_PONG)
			r = -EPIPE;
	}
	CHECK_EQ(r, -EPIPE);
	CHECK(ended());
	CHECK_EQ(engine_destroy(&box, &e), 0);
}

TEST(a_frame_in_single_bytes_is_served)
{
	struct frame f;

	CHECK(up());
	framed(FRAME_PING, 0, 0);
	for (size_t i = 0; i < FRAME_HEAD; i++)
		CHECK_EQ(write(box.link.sock, bytes + i, 1), 1);
	CHECK_EQ(answer(&f, 5000), FRAME_PONG);
	CHECK_EQ(f.id, 7);
	CHECK_EQ(engine_destroy(&box, &e), 0);
}

TEST(the_engine_ends_clean)
{
	engine_free(engine);
	engine = NULL;
}
