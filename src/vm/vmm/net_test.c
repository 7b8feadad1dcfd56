/* Connections through a port: a guest's to the outside, a host's to the inside. Real ones, on loopback. */
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "vm/vmm/carry.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
	struct carry host, guest;
	int fds[6], api, agent, r;
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
	if (carry_init(&p->host, CARRY_HOST, port[0], a[1], 1) < 0 ||
	    carry_init(&p->guest, CARRY_GUEST, port[1], b[1], 1) < 0)
		return false;
	p->host.net = true;
	return true;
}

static void pair_close(struct pair *p)
{
	carry_done(&p->host);
	carry_done(&p->guest);
	fd_close_many(p->fds, 6);
}

static void settle(struct pair *p)
{
	for (unsigned i = 0; i < 100 && !p->r; i++) {
		p->r = carry_turn(&p->host, NULL, 0, 1);
		if (!p->r)
			p->r = carry_turn(&p->guest, NULL, 0, 0);
	}
}

/* A socket that listens on loopback, and its port. @backlog -1: bound, without listening. */
static int listener(int backlog, uint16_t *ret_port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) < 0 || getsockname(fd, (struct sockaddr *)&a, &len) < 0 ||
	    (backlog >= 0 && listen(fd, backlog) < 0))
		return -1;
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static int dial(uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 ? fd : -1;
}

/* Two ends of a TCP connection: a program's inside, and what the guest accepted of it. */
static bool program(int *ret_program, int *ret_accepted)
{
	uint16_t port;
	int l = listener(4, &port);

	*ret_program = l < 0 ? -1 : dial(port);
	*ret_accepted = *ret_program < 0 ? -1 : accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	fd_close(l);
	return *ret_accepted >= 0;
}

static bool all_free(const struct pair *p)
{
	for (unsigned i = 1; i < MUX_CHANNELS; i++)
		if (p->host.chan[i].used || p->guest.chan[i].used)
			return false;
	return true;
}

TEST(a_connection_of_the_guest_is_made_by_the_host)
{
	struct mux_net to = { .family = 4, .addr = { 127, 0, 0, 1 } };
	struct pair p;
	uint16_t port;
	int l, out, in, mine;
	char text[16] = "";

	CHECK(pair_open(&p));
	l = listener(4, &port);
	CHECK(l >= 0 && program(&mine, &in));
	to.port = port;
	CHECK_EQ(chan_open_net(&p.guest, in, &to), 0);
	CHECK_EQ(write(mine, "question", 8), 8); /* before it is connected */
	settle(&p);
	out = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	CHECK(out >= 0);
	CHECK(recv(out, text, sizeof(text), MSG_DONTWAIT) == 8 && !memcmp(text, "question", 8));
	CHECK_EQ(write(out, "answer", 6), 6);
	fd_close(out);
	settle(&p);
	CHECK(recv(mine, text, sizeof(text), MSG_DONTWAIT) == 6 && !memcmp(text, "answer", 6));
	CHECK_EQ(recv(mine, text, sizeof(text), MSG_DONTWAIT), 0);
	fd_close(mine);
	settle(&p);
	CHECK(!p.r && all_free(&p));
	fd_close(l);
	pair_close(&p);
}

TEST(what_is_refused_or_cut_outside_is_reset_inside)
{
	struct mux_net to = { .family = 4, .addr = { 127, 0, 0, 1 } };
	const struct linger now = { .l_onoff = 1 };
	struct pair p;
	uint16_t port;
	int l, out, in, mine;
	char byte;

	CHECK(pair_open(&p));
	l = listener(-1, &port);
	CHECK(l >= 0 && program(&mine, &in));
	to.port = port;
	CHECK_EQ(chan_open_net(&p.guest, in, &to), 0);
	settle(&p);
	CHECK(recv(mine, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
	fd_close(mine);
	CHECK(!p.r && all_free(&p));
	CHECK(listen(l, 4) == 0 && program(&mine, &in));
	CHECK_EQ(chan_open_net(&p.guest, in, &to), 0);
	settle(&p);
	out = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	setsockopt(out, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	fd_close(out);
	settle(&p);
	CHECK(recv(mine, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
	fd_close(mine);
	/* Likewise in the other direction. */
	CHECK(program(&mine, &in));
	CHECK_EQ(chan_open_net(&p.guest, in, &to), 0);
	settle(&p);
	out = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	setsockopt(mine, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	fd_close(mine);
	settle(&p);
	CHECK(recv(out, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET);
	fd_close(out);
	settle(&p);
	CHECK(!p.r && all_free(&p));
	fd_close(l);
	pair_close(&p);
}

TEST(what_a_guest_without_a_network_wants_is_refused_and_not_even_tried)
{
	struct mux_net to = { .family = 4, .addr = { 127, 0, 0, 1 } };
	struct pair p;
	uint16_t port;
	int in, mine, l = listener(4, &port);
	char got;

	to.port = port;
	CHECK(pair_open(&p));
	p.host.net = false;
	CHECK(program(&mine, &in));
	CHECK_EQ(chan_open_net(&p.guest, in, &to), 0);
	settle(&p);
	CHECK(!p.r && all_free(&p));
	CHECK(recv(mine, &got, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN);
	fd_set_nonblock(l);
	CHECK(accept4(l, NULL, NULL, SOCK_CLOEXEC) < 0 && errno == EAGAIN);
	fd_close(l);
	fd_close(mine);
	pair_close(&p);
}

static uint16_t inside_port;

/* As cloche-guest does with CONNECT. */
static int connect_in(void *arg, struct carry_frame *f)
{
	struct pair *p = arg;
	int r, fd = dial(inside_port);

	if (f->f.type != FRAME_CONNECT)
		return 0;
	if (fd >= 0)
		fd_set_nonblock(fd);
	r = chan_connect(&p->guest, f->chan[0], fd >= 0 ? fd : -ECONNREFUSED);
	return r < 0 ? r : CARRY_TAKEN;
}

TEST(a_connection_inwards_begins_with_a_byte_that_says_how_it_went)
{
	const struct frame_connect to = { .family = 4, .port = 1 };
	uint8_t out[FRAME_HEAD + 8], got[16];
	struct pair p;
	int l, inner, sock[2];

	CHECK(pair_open(&p));
	p.guest.hooks.to_ctl = connect_in;
	p.guest.hook_arg = &p;
	l = listener(4, &inside_port);
	frame_head(out, FRAME_CONNECT, 1, 0, 8);
	frame_connect_encode(&to, out + FRAME_HEAD, 8);
	for (unsigned round = 0; round < 2; round++) {
		CHECK(sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock) == 0);
		CHECK_EQ(fd_send(p.api, out, sizeof(out), &sock[1], 1), 0);
		fd_close(sock[1]);
		settle(&p);
		if (round == 1) {
			CHECK(recv(sock[0], got, sizeof(got), MSG_DONTWAIT) == 1 && got[0] == ECONNREFUSED);
			CHECK_EQ(recv(sock[0], got, sizeof(got), MSG_DONTWAIT), 0);
			fd_close(sock[0]);
			break;
		}
		inner = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		CHECK_EQ(write(inner, "banner", 6), 6);
		CHECK_EQ(write(sock[0], "hi", 2), 2);
		settle(&p);
		CHECK(recv(sock[0], got, sizeof(got), MSG_DONTWAIT) == 7 && !memcmp(got, "\0banner", 7));
		CHECK(recv(inner, got, sizeof(got), MSG_DONTWAIT) == 2);
		fd_close(inner);
		fd_close(sock[0]);
		fd_close(l); /* the next attempt finds no listener */
	}
	settle(&p);
	CHECK(!p.r && all_free(&p));
	pair_close(&p);
}
