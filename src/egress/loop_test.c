#include "egress/loop.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

#include <sys/socket.h>
#include <unistd.h>

struct mark {
	struct loop_timer timer; /* first */
	unsigned n, order;
};

static unsigned count;

static void due(struct loop_timer *t)
{
	struct mark *m = (struct mark *)t;

	m->n++;
	m->order = ++count;
}

TEST(timers_fire_once_in_order_and_not_before_their_time)
{
	struct mark m[200] = { 0 };
	struct loop l;
	uint64_t start;

	CHECK_EQ(loop_init(&l), 0);
	start = clock_mono_ns();
	count = 0;
	for (unsigned i = 0; i < 200; i++) {
		m[i].timer.due = due;
		CHECK_EQ(loop_timer_set(&l, &m[i].timer, start + (i * 7919 % 200) * LOOP_MS / 10), 0);
	}
	for (unsigned i = 0; i < 200; i += 2)
		loop_timer_stop(&l, &m[i].timer);
	while (l.timers)
		CHECK_EQ(loop_turn(&l, -1), 0);
	CHECK(clock_mono_ns() >= start + 19 * LOOP_MS);
	CHECK_EQ(count, 100);
	for (unsigned i = 0; i < 200; i++) {
		CHECK_EQ(m[i].n, i % 2);
		for (unsigned k = 0; k < 200; k++)
			CHECK(!(i % 2 && k % 2 && m[i].timer.at < m[k].timer.at) || m[i].order < m[k].order);
	}
	loop_done(&l);
}

TEST(a_timer_can_be_moved_both_ways)
{
	struct mark m[3] = { 0 };
	struct loop l;
	uint64_t start;

	CHECK_EQ(loop_init(&l), 0);
	start = l.now;
	for (unsigned i = 0; i < 3; i++) {
		m[i].timer.due = due;
		loop_timer_set(&l, &m[i].timer, start + (i + 1) * LOOP_SEC * 100);
	}
	loop_timer_set(&l, &m[2].timer, start);
	loop_timer_set(&l, &m[0].timer, start + 1000 * LOOP_SEC);
	CHECK_EQ(loop_turn(&l, -1), 0);
	CHECK_EQ(m[2].n, 1);
	CHECK_EQ(m[0].n + m[1].n, 0);
	CHECK(l.heap[0] == &m[1].timer);
	loop_done(&l);
}

struct end {
	struct loop_fd f; /* first */
	struct loop *l;
	struct end *other;
	unsigned n;
};

static void closes_the_other(struct loop_fd *f, uint32_t events)
{
	struct end *e = (struct end *)f;

	(void)events;
	e->n++;
	if (e->other->f.fd >= 0)
		loop_close(e->l, &e->other->f);
}

TEST(an_event_for_what_was_closed_meanwhile_is_dropped)
{
	struct loop l;
	struct end a, b;
	int one[2], two[2];

	CHECK_EQ(loop_init(&l), 0);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, one) && !socketpair(AF_UNIX, SOCK_STREAM, 0, two));
	a = (struct end){ { closes_the_other, one[0] }, &l, &b, 0 };
	b = (struct end){ { closes_the_other, two[0] }, &l, &a, 0 };
	CHECK_EQ(loop_add(&l, &a.f, EPOLLIN), 0);
	CHECK_EQ(loop_add(&l, &b.f, EPOLLIN), 0);
	CHECK_EQ(write(one[1], "x", 1), 1);
	CHECK_EQ(write(two[1], "x", 1), 1);
	CHECK_EQ(loop_turn(&l, 1000), 0);
	CHECK_EQ(a.n + b.n, 1);
	CHECK_EQ((a.f.fd < 0) + (b.f.fd < 0), 1);
	fd_close(a.f.fd);
	fd_close(b.f.fd);
	close(one[1]);
	close(two[1]);
	loop_done(&l);
}
