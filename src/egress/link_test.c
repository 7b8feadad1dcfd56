#include "egress/link.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct side {
	struct loop loop;
	struct link link;
	struct sockaddr_un addr;
	socklen_t addr_len;
	unsigned joined, left, messages;
	struct egress_msg last;
};

static void on_join(void *ctx)
{
	struct side *s = ctx;
	uint8_t p[64];
	long n = egress_plain_encode(EGRESS_HAVE, 0, 0, 0, p, sizeof(p));

	s->joined++;
	link_send(&s->link, p, (size_t)n);
}

static int on_message(void *ctx, const struct egress_msg *m, int *fds, size_t nfds)
{
	struct side *s = ctx;

	(void)fds, (void)nfds;
	s->messages++;
	s->last = *m;
	return m->type == EGRESS_THEY ? -EBADMSG : 0;
}

static void on_left(void *ctx)
{
	((struct side *)ctx)->left++;
}

static const struct link_ops ops = { on_join, on_message, on_left };

static bool begin(struct side *s)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	memset(s, 0, sizeof(*s));
	s->addr.sun_family = AF_UNIX;
	s->addr_len = sizeof(sa_family_t); /* the kernel chooses */
	if (fd < 0 || bind(fd, (struct sockaddr *)&s->addr, s->addr_len) < 0)
		return false;
	s->addr_len = sizeof(s->addr);
	return !getsockname(fd, (struct sockaddr *)&s->addr, &s->addr_len) && !listen(fd, 4) &&
	       loop_init(&s->loop) == 0 && link_init(&s->link, &s->loop, fd, -1, &ops, s) == 0;
}

static void finish(struct side *s)
{
	link_done(&s->link);
	loop_done(&s->loop);
}

static int dial(struct side *s)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&s->addr, s->addr_len) < 0)
		return -1;
	loop_turn(&s->loop, 1000);
	return fd;
}

static int take(int fd, struct egress_msg *m)
{
	static uint8_t p[EGRESS_MSG_MAX];
	ssize_t n = recv(fd, p, sizeof(p), 0);

	return n > 0 ? egress_decode(p, (size_t)n, m) : -1;
}

TEST(an_owner_is_greeted_and_a_second_one_ends_the_first)
{
	struct side s;
	struct egress_msg m;
	int a, b;
	char c;

	CHECK(begin(&s));
	a = dial(&s);
	CHECK(a >= 0);
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.type, EGRESS_HELLO);
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.type, EGRESS_HAVE);
	b = dial(&s);
	CHECK_EQ(s.left, 1);
	CHECK_EQ(s.joined, 2);
	CHECK_EQ(recv(a, &c, 1, 0), 0);
	CHECK_EQ(take(b, &m), 0);
	CHECK_EQ(m.type, EGRESS_HELLO);
	close(a);
	close(b);
	finish(&s);
}

TEST(what_makes_no_sense_ends_the_connection_and_nothing_else)
{
	struct side s;
	struct egress_they y = { .sandbox = 1, .command = "" };
	uint8_t p[128];
	char c;
	int a;

	CHECK(begin(&s));
	a = dial(&s);
	CHECK_EQ(send(a, "nonsense", 8, 0), 8);
	loop_turn(&s.loop, 1000);
	CHECK_EQ(s.left, 1);
	close(a);
	a = dial(&s);
	CHECK_EQ(send(a, p, (size_t)egress_they_encode(&y, 1, p, sizeof(p)), 0) > 0, 1);
	loop_turn(&s.loop, 1000);
	CHECK_EQ(s.left, 2);
	CHECK_EQ(s.messages, 1);
	while (recv(a, p, sizeof(p), 0) > 0)
		;
	CHECK_EQ(recv(a, &c, 1, 0), 0);
	close(a);
	finish(&s);
}

TEST(reports_wait_for_an_owner_in_order_and_what_is_too_much_is_counted)
{
	struct side s;
	struct egress_msg m;
	uint8_t p[64];
	uint64_t sent = 0, told = 0, n = 0;
	int a;

	CHECK(begin(&s));
	while (!told) {
		long len = egress_plain_encode(EGRESS_DONE, 0, ++sent, 0, p, sizeof(p));

		if (link_send(&s.link, p, (size_t)len) < 0)
			told = s.link.dropped;
	}
	CHECK_EQ(told, 1);
	CHECK_EQ(sent, LINK_WAITING / (EGRESS_HEAD + 16) + 1);
	CHECK(!link_has_room(&s.link));
	a = dial(&s);
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.type, EGRESS_HELLO);
	CHECK_EQ(m.arg, 1);
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.type, EGRESS_HAVE);
	for (;;) {
		if (take(a, &m) < 0) {
			if (!s.link.first)
				break;
			loop_turn(&s.loop, 1000);
			continue;
		}
		CHECK_EQ(m.sandbox, ++n);
	}
	CHECK_EQ(n, sent - 1);
	CHECK_EQ(s.link.waiting, 0);
	close(a);
	finish(&s);
}

TEST(what_comes_often_is_told_together_and_before_what_follows)
{
	struct side s;
	struct egress_msg m;
	uint8_t p[64];
	int a;

	CHECK(begin(&s));
	a = dial(&s);
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(take(a, &m), 0);
	s.link.told = 0; /* long ago */
	for (uint64_t i = 1; i <= 4; i++) {
		long len = egress_plain_encode(EGRESS_DONE, 0, i, 0, p, sizeof(p));

		CHECK_EQ(link_send_soon(&s.link, p, (size_t)len), 0);
	}
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.sandbox, 1);
	CHECK(take(a, &m) < 0);
	for (int i = 0; i < 100 && s.link.first; i++)
		loop_turn(&s.loop, 1000);
	for (uint64_t i = 2; i <= 4; i++) {
		CHECK_EQ(take(a, &m), 0);
		CHECK_EQ(m.sandbox, i);
	}
	CHECK(take(a, &m) < 0);
	/* What is urgent takes along what was put aside, in order; and so does the end. */
	s.link.told = s.loop.now;
	for (uint64_t i = 5; i <= 7; i++) {
		long len = egress_plain_encode(EGRESS_DONE, 0, i, 0, p, sizeof(p));

		CHECK_EQ(i == 6 ? link_send(&s.link, p, (size_t)len) : link_send_soon(&s.link, p, (size_t)len), 0);
	}
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.sandbox, 5);
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.sandbox, 6);
	CHECK(take(a, &m) < 0);
	finish(&s);
	CHECK_EQ(take(a, &m), 0);
	CHECK_EQ(m.sandbox, 7);
	close(a);
}
