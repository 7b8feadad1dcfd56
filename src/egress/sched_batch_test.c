#include "egress/sched_batch.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB (1000U * 1000U)

/* As if so many bytes had been moved since the last turn, which ends @later. */
static void turn(struct sched_batch *h, uint64_t bytes, uint64_t later)
{
	h->moved += bytes;
	h->loop->now += later;
	sched_batch_turn(h);
}

TEST(who_moves_a_lot_interrupts_nobody_and_does_so_again_when_it_is_over)
{
	struct loop l;
	struct sched_batch h;

	CHECK_EQ(loop_init(&l), 0);
	sched_batch_init(&h, &l);
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	turn(&h, 1000 * MB, LOOP_MS); /* too short to judge */
	CHECK_EQ(sched_getscheduler(0), SCHED_OTHER);
	turn(&h, 1, LOOP_MS);
	CHECK_EQ(sched_getscheduler(0), SCHED_BATCH);
	CHECK_EQ(l.timers, 1);
	/* Many bytes come, and then none, which only the timer notices. */
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

TEST(what_somebody_chose_stays)
{
	const struct sched_param none = { 0 };
	struct sched_batch h;
	struct loop l;
	int status = -1;
	pid_t pid = fork(); /* the change to SCHED_IDLE cannot be undone without privileges */

	if (pid == 0) {
		bool ok = loop_init(&l) == 0 && sched_setscheduler(0, SCHED_IDLE, &none) == 0;

		sched_batch_init(&h, &l);
		turn(&h, 1000 * MB, 2 * LOOP_MS);
		ok = ok && sched_getscheduler(0) == SCHED_IDLE && !l.timers;
		loop_done(&l);
		_exit(!ok);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
