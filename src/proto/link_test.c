#include "proto/link.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];
static struct link l;
static uint8_t bytes[FRAME_HEAD + LINK_BUFFER];
static struct frame f;
static int got;

static void start(void)
{
	got = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0)
		link_init(&l, pair[0]);
}

static void stop(void)
{
	link_done(&l);
	close(pair[0]);
	close(pair[1]);
}

static unsigned open_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void send_bytes(size_t n, const int *fds, size_t nfds)
{
	fd_send(pair[1], bytes, n, fds, nfds);
}

TEST(a_frame_in_pieces_is_one_frame)
{
	start();
	frame_head(bytes, FRAME_STARTED, 0, 5, 4);
	memcpy(bytes + FRAME_HEAD, "\1\2\3\4", 4);
	for (size_t i = 0; i < FRAME_HEAD + 3; i++) {
		CHECK_EQ(write(pair[1], bytes + i, 1), 1);
		CHECK_EQ(link_next(&l, 0, &f, &got), 0);
	}
	CHECK_EQ(write(pair[1], bytes + FRAME_HEAD + 3, 1), 1);
	CHECK_EQ(link_next(&l, 0, &f, &got), 1);
	CHECK(f.type == FRAME_STARTED && f.id == 5 && f.len == 4 && !memcmp(f.payload, "\1\2\3\4", 4));
	CHECK_EQ(got, -1);
	CHECK_EQ(link_next(&l, 0, &f, &got), 0);
	stop();
}

TEST(several_frames_in_one_piece_come_one_by_one)
{
	start();
	for (uint32_t i = 0; i < 20; i++)
		frame_head(bytes + i * FRAME_HEAD, FRAME_PONG, 0, i, 0);
	send_bytes(20UL * FRAME_HEAD, NULL, 0);
	for (uint32_t i = 0; i < 20; i++) {
		CHECK_EQ(link_next(&l, 0, &f, &got), 1);
		CHECK_EQ(f.id, i);
	}
	CHECK_EQ(link_next(&l, 0, &f, &got), 0);
	stop();
}

TEST(a_descriptor_comes_with_its_frame)
{
	unsigned before = open_fds();
	int p[2];

	start();
	CHECK_EQ(pipe(p), 0);
	frame_head(bytes, FRAME_PONG, 0, 1, 0);
	frame_head(bytes + FRAME_HEAD, FRAME_STARTED, 1, 2, 0);
	send_bytes(2UL * FRAME_HEAD, &p[1], 1);
	close(p[1]);
	CHECK_EQ(link_next(&l, 0, &f, &got), 1);
	CHECK(f.id == 1 && got == -1);
	CHECK_EQ(link_next(&l, 0, &f, &got), 1);
	CHECK(f.id == 2 && got >= 0);
	CHECK(fcntl(got, F_GETFD) & FD_CLOEXEC);
	CHECK_EQ(write(got, "x", 1), 1);
	close(got);
	close(p[0]);
	stop();
	CHECK_EQ(open_fds(), before);
}

TEST(descriptors_promised_but_not_sent_are_nonsense)
{
	start();
	frame_head(bytes, FRAME_STARTED, 1, 2, 0);
	send_bytes(FRAME_HEAD, NULL, 0);
	CHECK_EQ(link_next(&l, 0, &f, &got), -EBADMSG);
	stop();
}

TEST(too_many_descriptors_are_nonsense_and_none_stays_open)
{
	unsigned before = open_fds();
	const int fds[] = { 0, 0, 0, 0, 0, 0, 0, 0 };

	for (size_t n = 1; n <= ARRAY_LEN(fds); n++) {
		int r;

		start();
		frame_head(bytes, FRAME_STARTED, (uint8_t)n, 2, 0);
		send_bytes(FRAME_HEAD, fds, n);
		r = link_next(&l, 0, &f, &got);
		CHECK_EQ(r, n <= ARRAY_LEN(l.fds) ? 1 : -EBADMSG);
		if (r == 1)
			close(got); /* the first is the caller's, the others are gone */
		stop();
		CHECK_EQ(open_fds(), before);
	}
	/* One by one with frames that do not claim them. */
	start();
	frame_head(bytes, FRAME_PONG, 0, 2, 0);
	for (size_t n = 0; n < ARRAY_LEN(fds); n++) {
		send_bytes(FRAME_HEAD, fds, 1);
		CHECK_EQ(link_next(&l, 0, &f, &got), n < ARRAY_LEN(l.fds) ? 1 : -EBADMSG);
		if (n >= ARRAY_LEN(l.fds))
			break;
	}
	stop();
	CHECK_EQ(open_fds(), before);
}

TEST(garbage_is_nonsense_at_once)
{
	static const char *const texts[] = { "GET / HTTP/1.1\r\n", "\2\1\0\0", "\1\377\0\0", "\1\20\0\1",
					     "\1\20\377\0" };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		start();
		CHECK(write(pair[1], texts[i], 4) == 4);
		CHECK_EQ(link_next(&l, 0, &f, &got), -EBADMSG);
		stop();
	}
}

TEST(a_frame_larger_than_any_agents_is_nonsense)
{
	start();
	memset(bytes, 'x', sizeof(bytes));
	frame_head(bytes, FRAME_STARTED, 0, 2, LINK_BUFFER);
	send_bytes(sizeof(bytes), NULL, 0);
	CHECK_EQ(link_next(&l, 0, &f, &got), -EBADMSG);
	stop();
}

TEST(an_agent_that_is_gone_is_told_apart)
{
	start();
	frame_head(bytes, FRAME_PONG, 0, 2, 0);
	send_bytes(FRAME_HEAD + 5, NULL, 0); /* one, and a bit of the next */
	shutdown(pair[1], SHUT_WR);
	CHECK_EQ(link_next(&l, 0, &f, &got), 1);
	CHECK_EQ(link_next(&l, 0, &f, &got), -EBADMSG); /* "\0..." is no version */
	stop();
	start();
	send_bytes(5, NULL, 0);
	shutdown(pair[1], SHUT_WR);
	CHECK_EQ(link_next(&l, 100, &f, &got), -EPIPE);
	stop();
}

TEST(what_is_sent_is_what_the_other_side_decodes)
{
	int p[2], fds[4];
	size_t nfds;
	ssize_t n;

	start();
	CHECK_EQ(pipe(p), 0);
	CHECK_EQ(link_send(&l, FRAME_EXEC, 9, (const uint8_t *)"abc", 3, p, 2), 0);
	CHECK_EQ(link_signal(&l, 9, SIGTERM, FRAME_SCOPE_GROUP), 0);
	n = fd_recv(pair[1], bytes, sizeof(bytes), fds, 4, &nfds);
	CHECK_EQ(nfds, 2);
	fd_close_many(fds, 2);
	while (n < 3 + 8 + 2L * FRAME_HEAD)
		n += fd_recv(pair[1], bytes + n, sizeof(bytes) - (size_t)n, fds, 4, &nfds);
	CHECK_EQ(frame_decode(bytes, (size_t)n, &f), FRAME_HEAD + 3);
	CHECK(f.nfds == 2 && f.id == 9 && !memcmp(f.payload, "abc", 3));
	CHECK_EQ(frame_decode(bytes + FRAME_HEAD + 3, (size_t)n, &f), FRAME_HEAD + 8);
	CHECK(f.type == FRAME_SIGNAL && !memcmp(f.payload, "\17\0\0\0\1\0\0\0", 8));
	close(p[0]);
	close(p[1]);
	stop();
}

TEST(failures_become_errors)
{
	static const struct {
		struct frame_failed x;
		enum err_reason why;
		int r;
	} cases[] = {
		{ { FRAME_STAGE_EXECVE, ENOENT, 0, NULL }, WHY_PROGRAM_MISSING, -ENOENT },
		{ { FRAME_STAGE_EXECVE, EACCES, 0, NULL }, WHY_NOT_EXECUTABLE, -EACCES },
		{ { FRAME_STAGE_EXECVE, ENOEXEC, 0, NULL }, WHY_NOT_A_PROGRAM, -ENOEXEC },
		{ { FRAME_STAGE_EXECVE, E2BIG, 0, NULL }, WHY_ARGUMENT_TOO_LONG, -E2BIG },
		{ { FRAME_STAGE_CWD, ENOENT, 0, NULL }, WHY_FOLDER_MISSING, -ENOENT },
		{ { FRAME_STAGE_CWD, ENOTDIR, 0, NULL }, WHY_NOT_A_FOLDER, -ENOTDIR },
		{ { FRAME_STAGE_CWD, EACCES, 0, NULL }, WHY_FOLDER_PERMISSION, -EACCES },
		{ { FRAME_STAGE_CLONE, EAGAIN, 0, NULL }, WHY_PROCESS_LIMIT, -EAGAIN },
		{ { FRAME_STAGE_TTY, ENOSPC, 0, NULL }, WHY_TERMINAL_LIMIT, -ENOSPC },
		{ { FRAME_STAGE_PIVOT, EPERM, 0, NULL }, WHY_UNSUPPORTED, -EPERM },
		{ { FRAME_STAGE_CLONE, ETIMEDOUT, 0, NULL }, WHY_NO_PROGRESS, -ETIMEDOUT },
		{ { FRAME_STAGE_PIVOT, 0, 0, NULL }, WHY_UNSUPPORTED, -EIO }, /* never a success */
	};
	struct frame_failed back;
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		long n = frame_failed_encode(&cases[i].x, bytes, sizeof(bytes));

		f = (struct frame){ .type = FRAME_FAILED, .len = (uint32_t)n, .payload = bytes };
		CHECK_EQ(link_error(&f, "it", &e, &back), cases[i].r);
		CHECK_EQ(err_reason(&e), cases[i].why);
		CHECK_CONTAINS(e.msg, frame_stage_text(cases[i].x.stage));
		CHECK_EQ(back.errnum, cases[i].x.errnum);
	}
	back = (struct frame_failed){ FRAME_STAGE_EXECVE, EACCES, 0, NULL };
	f.len = (uint32_t)frame_failed_encode(&back, bytes, sizeof(bytes));
	e = (struct err){ 0 };
	CHECK_EQ(link_error(&f, "it", &e, NULL), -EACCES);
	CHECK_CONTAINS(e.remedy, "chmod +x");
	back.errnum = ENOENT;
	f.len = (uint32_t)frame_failed_encode(&back, bytes, sizeof(bytes));
	e = (struct err){ 0 };
	CHECK_EQ(link_error(&f, "ls", &e, NULL), -ENOENT);
	CHECK_CONTAINS(e.remedy, "in the image");
	e = (struct err){ 0 };
	CHECK_EQ(link_error(&f, "ls -l", &e, NULL), -ENOENT); /* somebody gave a line where words belong */
	CHECK_CONTAINS(e.remedy, "sh -c");
	f.len = 5;
	CHECK_EQ(link_error(&f, "it", &e, NULL), -EBADMSG);
	CHECK_EQ(e.kind, ERR_LOST);
}
