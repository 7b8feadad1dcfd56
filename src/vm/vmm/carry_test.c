/* Two of them with a socket as the port, real pipes, sockets and files; frames are an agent's. */
#include "vm/vmm/carry.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct pair {
	struct carry host, guest;
	int api, agent; /* the far ends of their ->ctl */
	int fds[6]; /* all ends that carries do not own */
	int r; /* how it ended, 0: not yet */
};

static bool pair_open(struct pair *p)
{
	int port[2], a[2], b[2];
	const int flags = SOCK_STREAM | SOCK_CLOEXEC;

	*p = (struct pair){ 0 };
	if (sys_socketpair(AF_UNIX, flags | SOCK_NONBLOCK, 0, port) < 0 || sys_socketpair(AF_UNIX, flags, 0, a) < 0 ||
	    sys_socketpair(AF_UNIX, flags, 0, b) < 0)
		return false;
	memcpy(p->fds, (int[]){ port[0], port[1], a[0], a[1], b[0], b[1] }, sizeof(p->fds));
	p->api = a[0];
	p->agent = b[0];
	return carry_init(&p->host, CARRY_HOST, port[0], a[1], 1) == 0 &&
	       carry_init(&p->guest, CARRY_GUEST, port[1], b[1], 1) == 0;
}

static void pair_close(struct pair *p)
{
	carry_done(&p->host);
	carry_done(&p->guest);
	fd_close_many(p->fds, 6);
}

/* Lets both work until nothing happens any more. */
static void settle(struct pair *p)
{
	for (unsigned i = 0; i < 200 && !p->r; i++) {
		p->r = carry_turn(&p->host, NULL, 0, 0);
		if (!p->r)
			p->r = carry_turn(&p->guest, NULL, 0, 0);
	}
}

static int send_frame(int sock, enum frame_type type, uint32_t id, const void *payload, size_t len, const int *fds,
		      size_t n)
{
	static uint8_t out[FRAME_HEAD + FRAME_PAYLOAD_MAX];

	frame_head(out, type, (uint8_t)n, id, (uint32_t)len);
	if (len)
		memcpy(out + FRAME_HEAD, payload, len);
	return fd_send(sock, out, FRAME_HEAD + len, fds, n);
}

static size_t recv_frame(int sock, struct frame *ret, int *fds)
{
	static uint8_t in[FRAME_HEAD + FRAME_PAYLOAD_MAX];
	struct pollfd p = { .fd = sock, .events = POLLIN };
	size_t n = 0;

	*ret = (struct frame){ 0 };
	if (poll(&p, 1, 0) == 1) {
		ssize_t len = fd_recv(sock, in, sizeof(in), fds, FRAME_FDS_MAX, &n);

		if (len > 0)
			frame_decode(in, (size_t)len, ret);
	}
	return n;
}

static bool text_at(int fd, const char *want)
{
	char got[256] = "";
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n = poll(&p, 1, 0) == 1 ? read(fd, got, sizeof(got) - 1) : 0;

	return n == (ssize_t)strlen(want) && !strcmp(got, want);
}

TEST(frames_pass_both_ways_as_they_are)
{
	struct pair p;
	struct frame f;
	int fds[FRAME_FDS_MAX];

	CHECK(pair_open(&p));
	CHECK_EQ(send_frame(p.api, FRAME_PING, 77, NULL, 0, NULL, 0), 0);
	CHECK_EQ(send_frame(p.agent, FRAME_PONG, 78, NULL, 0, NULL, 0), 0);
	settle(&p);
	CHECK_EQ(p.r, 0);
	recv_frame(p.agent, &f, fds);
	CHECK(f.type == FRAME_PING && f.id == 77);
	recv_frame(p.api, &f, fds);
	CHECK(f.type == FRAME_PONG && f.id == 78);
	pair_close(&p);
}

TEST(pipes_files_and_sockets_become_the_same_on_the_other_side)
{
	struct pair p;
	struct frame f;
	int in[2], out[2], sock[2], fds[FRAME_FDS_MAX], file = sys_memfd_create("f", 0), got[4];
	char byte;

	CHECK(pair_open(&p));
	CHECK(sys_pipe2(in, 0) == 0 && sys_pipe2(out, 0) == 0 && sys_socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0);
	CHECK_EQ(write(file, "program", 7), 7);
	CHECK_EQ(send_frame(p.api, FRAME_EXEC, 5, "xx", 2, (int[]){ in[0], out[1], sock[1], file }, 4), 0);
	fd_close_many((int[]){ in[0], out[1], sock[1], file }, 4);
	settle(&p);
	CHECK_EQ(recv_frame(p.agent, &f, fds), 4);
	CHECK(f.type == FRAME_EXEC && f.id == 5 && f.len == 2);
	memcpy(got, fds, sizeof(got));
	CHECK_EQ(pread(got[3], &byte, 1, 3), 1);
	CHECK_EQ(byte, 'g');
	CHECK_EQ(write(in[1], "to stdin", 8), 8);
	CHECK_EQ(write(got[1], "to stdout", 9), 9);
	CHECK_EQ(write(sock[0], "there", 5), 5);
	CHECK_EQ(write(got[2], "back", 4), 4);
	settle(&p);
	CHECK(text_at(got[0], "to stdin"));
	CHECK(text_at(out[0], "to stdout"));
	CHECK(text_at(got[2], "there"));
	CHECK(text_at(sock[0], "back"));
	/* Ends are heard of, and the numbers are free again. */
	fd_close(in[1]);
	fd_close(got[1]);
	fd_close(sock[0]);
	settle(&p);
	CHECK_EQ(read(got[0], &byte, 1), 0);
	CHECK_EQ(read(out[0], &byte, 1), 0);
	CHECK_EQ(read(got[2], &byte, 1), 0);
	fd_close(got[2]);
	fd_close(got[0]);
	settle(&p);
	CHECK_EQ(p.r, 0);
	for (unsigned i = 1; i < MUX_CHANNELS; i++)
		CHECK(!p.host.chan[i].used && !p.guest.chan[i].used);
	fd_close(got[3]);
	fd_close(out[0]);
	pair_close(&p);
}

/* A stdin may be a file, small or large. */
TEST(a_file_is_read_from_its_beginning_to_its_end)
{
	static char data[200000], got[sizeof(data)];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i % 251);
	for (unsigned round = 0; round < 3; round++) {
		const size_t len = round == 2 ? 0 : round ? sizeof(data) : 100;
		int file = round == 2 ? sys_openat(AT_FDCWD, "/dev/null", O_RDONLY, 0) : sys_memfd_create("f", 0),
		    fds[FRAME_FDS_MAX];
		struct pair p;
		struct frame f;
		size_t have = 0;
		ssize_t n = 1;

		CHECK(pair_open(&p));
		CHECK(round == 2 || (write(file, data, len) == (ssize_t)len && lseek(file, 0, SEEK_SET) == 0));
		CHECK_EQ(send_frame(p.api, FRAME_EXEC, 5, NULL, 0, &file, 1), 0);
		fd_close(file);
		settle(&p);
		CHECK_EQ(recv_frame(p.agent, &f, fds), 1);
		for (unsigned i = 0; i < 100 && n > 0; i++) {
			n = read(fds[0], got + have, sizeof(got) - have);
			have += n > 0 ? (size_t)n : 0;
			settle(&p);
		}
		CHECK(have == len && !memcmp(got, data, len) && !p.r);
		fd_close(fds[0]);
		pair_close(&p);
	}
}

TEST(a_reader_that_goes_away_is_heard_of_by_the_writer)
{
	struct pair p;
	struct frame f;
	int out[2], fds[FRAME_FDS_MAX];

	CHECK(pair_open(&p));
	CHECK(sys_pipe2(out, 0) == 0);
	CHECK_EQ(send_frame(p.api, FRAME_EXEC, 5, NULL, 0, &out[1], 1), 0);
	fd_close(out[1]);
	settle(&p);
	CHECK_EQ(recv_frame(p.agent, &f, fds), 1);
	fd_close(out[0]);
	settle(&p);
	signal(SIGPIPE, SIG_IGN);
	CHECK_EQ(write(fds[0], "x", 1), -1);
	CHECK_EQ(errno, EPIPE);
	fd_close(fds[0]);
	settle(&p);
	CHECK(!p.host.chan[1].used && !p.guest.chan[1].used);
	pair_close(&p);
}

/* A slow reader holds the writer up, with bounded memory in between, and nothing is lost or changes its order. */
TEST(more_than_all_buffers_waits_and_arrives_whole)
{
	const size_t total = 3000000;
	struct pair p;
	struct frame f;
	int out[2], fds[FRAME_FDS_MAX];
	size_t sent = 0, got = 0;
	static uint8_t data[8192];
	bool same = true;

	CHECK(pair_open(&p));
	CHECK(sys_pipe2(out, O_NONBLOCK) == 0);
	CHECK_EQ(send_frame(p.api, FRAME_EXEC, 5, NULL, 0, &out[1], 1), 0);
	fd_close(out[1]);
	settle(&p);
	CHECK_EQ(recv_frame(p.agent, &f, fds), 1);
	CHECK_EQ(fd_set_nonblock(fds[0]), 0);
	for (unsigned round = 0; round < 100000 && got < total && !p.r; round++) {
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)((sent + i) % 251);
		ssize_t n = sent < total ?
				    write(fds[0], data, total - sent < sizeof(data) ? total - sent : sizeof(data)) :
				    0;

		sent += n > 0 ? (size_t)n : 0;
		p.r = carry_turn(&p.host, NULL, 0, 0);
		p.r = p.r ? p.r : carry_turn(&p.guest, NULL, 0, 0);
		CHECK(sent - got <= 4 * 65536 + 2 * (CARRY_OUT + MUX_WINDOW) + 1000000);
		if (round % 3)
			continue;
		n = read(out[0], data, 5000);
		for (ssize_t i = 0; i < n; i++)
			same = same && data[i] == (uint8_t)((got + (size_t)i) % 251);
		got += n > 0 ? (size_t)n : 0;
	}
	CHECK_EQ(p.r, 0);
	CHECK_EQ(got, total);
	CHECK(same);
	fd_close(fds[0]);
	fd_close(out[0]);
	pair_close(&p);
}

TEST(exited_does_not_overtake_what_was_written)
{
	struct frame_exited x = { .status = 0 };
	uint8_t payload[64];
	long len = frame_exited_encode(&x, payload, sizeof(payload));
	struct pair p;
	struct frame f;
	int out[2], fds[FRAME_FDS_MAX];
	static char text[65536];
	size_t got = 0;

	CHECK(pair_open(&p));
	CHECK(sys_pipe2(out, O_NONBLOCK) == 0);
	CHECK_EQ(send_frame(p.api, FRAME_EXEC, 9, NULL, 0, &out[1], 1), 0);
	fd_close(out[1]);
	settle(&p);
	CHECK_EQ(recv_frame(p.agent, &f, fds), 1);
	CHECK_EQ(fd_set_nonblock(fds[0]), 0);
	/* No side reads: pipes and windows are full, and then the command ends. */
	for (unsigned i = 0; i < 64; i++) {
		if (write(fds[0], text, sizeof(text)) < 0)
			settle(&p);
	}
	CHECK_EQ(send_frame(p.agent, FRAME_EXITED, 9, payload, (size_t)len, NULL, 0), 0);
	CHECK_EQ(send_frame(p.agent, FRAME_PONG, 1, NULL, 0, NULL, 0), 0);
	fd_close(fds[0]);
	settle(&p);
	recv_frame(p.api, &f, fds);
	CHECK_EQ(f.type, FRAME_PONG); /* others are not held up */
	while (got < 10000000) {
		ssize_t n = read(out[0], text, sizeof(text));

		if (n == 0)
			break;
		got += n > 0 ? (size_t)n : 0;
		recv_frame(p.api, &f, fds);
		CHECK(f.type != FRAME_EXITED || n < 0 || read(out[0], text, sizeof(text)) >= 0);
		if (f.type == FRAME_EXITED)
			break;
		settle(&p);
	}
	settle(&p);
	if (f.type != FRAME_EXITED)
		recv_frame(p.api, &f, fds);
	CHECK_EQ(f.type, FRAME_EXITED);
	CHECK_EQ(p.r, 0);
	fd_close(out[0]);
	pair_close(&p);
}

TEST(a_frame_larger_than_a_window_passes)
{
	static uint8_t big[300000];
	struct pair p;
	size_t got = 0;

	CHECK(pair_open(&p));
	CHECK_EQ(fd_set_nonblock(p.agent), 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(send_frame(p.api, FRAME_EXEC, 3, big, sizeof(big), NULL, 0) < 0);
	for (uint64_t end = clock_mono_ns() + 20000000000ULL;
	     got < sizeof(big) + FRAME_HEAD && clock_mono_ns() < end && !p.r;) {
		static uint8_t in[65536];
		ssize_t n = read(p.agent, in, sizeof(in));

		got += n > 0 ? (size_t)n : 0;
		settle(&p);
	}
	waitpid(pid, NULL, 0);
	CHECK_EQ(p.r, 0);
	CHECK_EQ(got, sizeof(big) + FRAME_HEAD);
	pair_close(&p);
}

/* What a hostile guest may send: each ends the connection, and nothing else. */
TEST(nonsense_from_the_guest_ends_it)
{
	static uint8_t data[MUX_HEAD + MUX_PAYLOAD_MAX];
	const struct {
		enum mux_type type;
		uint32_t channel, len, first;
	} bad[] = {
		{ MUX_DATA, 5, 10, 0 },	     { MUX_CREDIT, 0, 4, 1 },	   { MUX_CREDIT, 0, 3, 0 },
		{ MUX_OPEN, 1, 4, MUX_TTY }, { MUX_OPEN, 2, 4, MUX_BOTH }, { MUX_OPEN, 2, 4, 99 },
		{ MUX_OPEN, 0, 4, MUX_TTY }, { MUX_END, 0, 0, 0 },	   { MUX_CLOSED, 2, 0, 0 },
		{ MUX_SIZE, 2, 8, 0 },	     { MUX_DATA, 0, 0, 0 },	   { MUX_DATA, 0, 40000, 0xffffffff },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct pair p;

		CHECK(pair_open(&p));
		mux_head(data, bad[i].type, 1, bad[i].channel, bad[i].len);
		memcpy(data + MUX_HEAD, &bad[i].first, 4);
		CHECK_EQ(fd_send(p.guest.port, data, MUX_HEAD + bad[i].len, NULL, 0), 0);
		for (unsigned k = 0; k < 20 && !p.r; k++)
			p.r = carry_turn(&p.host, NULL, 0, 0);
		CHECK_EQ(p.r, -EBADMSG);
		pair_close(&p);
	}
}

TEST(a_guest_that_sends_past_its_window_is_ended)
{
	static uint8_t data[MUX_HEAD + MUX_DATA_MAX];
	struct pair p;
	int out[2];

	CHECK(pair_open(&p));
	CHECK(sys_pipe2(out, 0) == 0);
	CHECK_EQ(send_frame(p.api, FRAME_EXEC, 5, NULL, 0, &out[1], 1), 0);
	fd_close(out[1]);
	for (unsigned k = 0; k < 5; k++)
		CHECK_EQ(carry_turn(&p.host, NULL, 0, 0), 0);
	mux_head(data, MUX_DATA, 1, 1, MUX_DATA_MAX);
	/* The pipe takes one window's worth, and is not read. */
	for (unsigned k = 0; k < 64 && !p.r; k++) {
		send(p.guest.port, data, sizeof(data), MSG_DONTWAIT);
		p.r = carry_turn(&p.host, NULL, 0, 0);
	}
	CHECK_EQ(p.r, -EBADMSG);
	fd_close(out[0]);
	pair_close(&p);
}

TEST(after_garbage_the_stream_is_found_again)
{
	static uint8_t junk[5000];
	struct pair p;
	struct frame f;
	int fds[FRAME_FDS_MAX];

	CHECK(pair_open(&p));
	for (size_t i = 0; i < sizeof(junk); i++)
		junk[i] = (uint8_t)(i * 7919 >> 3);
	CHECK_EQ(fd_send(p.guest.port, junk, sizeof(junk), NULL, 0), 0);
	mux_head(junk, MUX_DATA, 99, 200, 12); /* of another epoch: not for us, whatever it says */
	CHECK_EQ(fd_send(p.guest.port, junk, MUX_HEAD + 12, NULL, 0), 0);
	CHECK_EQ(send_frame(p.agent, FRAME_PONG, 4, NULL, 0, NULL, 0), 0);
	settle(&p);
	recv_frame(p.api, &f, fds);
	CHECK(f.type == FRAME_PONG && f.id == 4);
	CHECK_EQ(p.r, 0);
	pair_close(&p);
}

/* An agent: it reads all frames until the PING of this test, which it answers behind another frame. */
static int obeys(int sock)
{
	static uint8_t in[4096];
	size_t len = 0, fds;
	struct frame f;

	for (;;) {
		ssize_t got = fd_recv(sock, in + len, sizeof(in) - len, NULL, 0, &fds);
		long n;

		if (got <= 0)
			return 1;
		len += (size_t)got;
		while ((n = frame_decode(in, len, &f)) > 0) {
			if (f.type == FRAME_PING && f.id != 77)
				return send_frame(sock, FRAME_PONG, 5, NULL, 0, NULL, 0) ||
				       send_frame(sock, FRAME_PONG, f.id, NULL, 0, NULL, 0);
			len -= (size_t)n;
			memmove(in, in + n, len);
		}
	}
}

TEST(an_agent_is_waited_for_until_it_has_done_what_it_was_told)
{
	int fds[FRAME_FDS_MAX], status = -1;
	struct frame f;
	struct pair p;
	pid_t pid;

	CHECK(pair_open(&p));
	CHECK_EQ(carry_settle(&p.guest, 50), -ETIMEDOUT);
	recv_frame(p.agent, &f, fds);
	CHECK_EQ(f.type, FRAME_PING);
	/* An answer that comes late is not taken for the next one's. */
	CHECK_EQ(send_frame(p.agent, FRAME_PONG, f.id, NULL, 0, NULL, 0), 0);
	CHECK_EQ(carry_settle(&p.guest, 50), -ETIMEDOUT);
	recv_frame(p.agent, &f, fds);

	CHECK_EQ(send_frame(p.api, FRAME_PING, 77, NULL, 0, NULL, 0), 0);
	settle(&p);
	recv_frame(p.api, &f, fds); /* the late one */
	pid = fork();
	if (pid == 0)
		_exit(obeys(p.agent));
	CHECK(pid > 0);
	CHECK_EQ(carry_settle(&p.guest, 20000), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	settle(&p);
	CHECK_EQ(p.r, 0);
	recv_frame(p.api, &f, fds);
	CHECK(f.type == FRAME_PONG && f.id == 5);
	recv_frame(p.api, &f, fds);
	CHECK_EQ(f.type, 0);

	shutdown(p.agent, SHUT_RDWR);
	CHECK_EQ(carry_settle(&p.guest, 20000), -ECONNRESET);
	pair_close(&p);
}
