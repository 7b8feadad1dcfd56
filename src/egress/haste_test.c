#include "egress/haste.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB (1000U * 1000U)

/* As if so many bytes had been moved since the last turn, which ends @later. */
static void turn(struct haste *h, uint64_t bytes, uint64_t later)
{
	h->moved += bytes;
	h->loop->now += later;
	haste_turn(h);
}

TEST(who_moves_a_lot_interrupts_nobody_and_does_so_again_when_it_is_over)
{
	struct loop l;
	struct haste h;

	CHECK_EQ(loop_init(&l), 0);
	haste_init(&h, &l);
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	turn(&h, 1000 * MB, LOOP_MS); /* too short to tell */
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	turn(&h, 1, LOOP_MS);
	CHECK_EQ(sched_getscheduler(0), SCHED_BATCH);
	CHECK_EQ(l.timers, 1);
	/* A lot comes, and then nothing any more, which only a timer tells. */
	h.since = clock_mono_ns();
	h.moved = 1000 * MB;
	CHECK_EQ(loop_timer_set(&l, &h.timer, h.since), 0);
	CHECK_EQ(loop_turn(&l, -1), 0);
	CHECK_EQ(sched_getscheduler(0), SCHED_BATCH);
	while (l.timers)
		CHECK_EQ(loop_turn(&l, -1), 0);
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	turn(&h, 2 * MB, 8 * LOOP_MS); /* 2 Gb/s */
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	loop_done(&l);
}

/* A connection over whose first end a byte came from @cpu. */
static bool byte_from(unsigned cpu, const cpu_set_t *all, int ret[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cpu_set_t one;
	char c = 'x';
	bool ok;

	ret[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ok = bind(server, (struct sockaddr *)&a, len) == 0 && listen(server, 1) == 0 &&
	     getsockname(server, (struct sockaddr *)&a, &len) == 0 && connect(ret[1], (struct sockaddr *)&a, len) == 0;
	ret[0] = ok ? accept4(server, NULL, NULL, SOCK_CLOEXEC) : -1;
	close(server);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return ok && sched_setaffinity(0, sizeof(one), &one) == 0 && send(ret[1], &c, 1, 0) == 1 &&
	       recv(ret[0], &c, 1, 0) == 1 && sched_setaffinity(0, sizeof(*all), all) == 0;
}

TEST(who_moves_a_lot_stays_beside_its_sender_and_roams_again_when_it_is_over)
{
	cpu_set_t all, now;
	struct loop l;
	struct haste h;
	unsigned cpu = CPU_SETSIZE;
	int pair[2];

	CHECK_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(--cpu, &all))
		;
	CHECK_EQ(loop_init(&l), 0);
	haste_init(&h, &l);
	CHECK_EQ(h.two, CPU_COUNT(&all) == 2);
	h.two = true;
	CHECK(byte_from(cpu, &all, pair));
	h.source = pair[0];
	turn(&h, 1000 * MB, 2 * LOOP_MS);
	CHECK_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
	CHECK(CPU_COUNT(&now) == 1 && CPU_ISSET(cpu, &now));
	close(pair[0]);
	close(pair[1]);
	while (l.timers)
		CHECK_EQ(loop_turn(&l, -1), 0);
	CHECK_EQ(sched_getaffinity(0, sizeof(now), &now), 0);
	CHECK(CPU_EQUAL(&now, &all));
	/* A socket that is none any more leads nowhere. */
	h.source = 1 << 20;
	turn(&h, 1000 * MB, 2 * LOOP_MS);
	CHECK(h.batch && h.cpu == -1);
	loop_done(&l);
}

TEST(what_somebody_chose_stays)
{
	const struct sched_param none = { 0 };
	struct haste h;
	struct loop l;
	int status = -1;
	pid_t pid = fork(); /* there is no way back from SCHED_IDLE for everybody */

	if (pid == 0) {
		bool ok = loop_init(&l) == 0 && sched_setscheduler(0, SCHED_IDLE, &none) == 0;

		haste_init(&h, &l);
		turn(&h, 1000 * MB, 2 * LOOP_MS);
		ok = ok && sched_getscheduler(0) == SCHED_IDLE && !l.timers;
		loop_done(&l);
		_exit(!ok);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
