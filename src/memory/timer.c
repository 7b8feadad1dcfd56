/*
 * Timers. They run while the processes are held. The time left of each is queried first, by a call that the process
 * makes itself; pending signals are read last, when all memory is copied. A timer that expired in between is in the
 * image as its signal. It must not be there as a running timer, too: the copy would get its signal twice.
 */
#include "memory/dump.h"
#include "base/base.h"
#include "base/clock.h"

#include <signal.h>
#include <sys/time.h>

#define INFO_SIZE 128U
#define ROUNDED 10000U /* ns: the kernel rounds what it reports */

struct waiting {
	int32_t signo, error, code, pad, timer;
};

/* Whether a signal waits in @s that a timer has sent: the POSIX timer @id, or for an alarm (-1) any SIGALRM, since one takes in others. */
static bool waits(const struct dump *d, struct mem_span s, int64_t id)
{
	for (uint64_t at = 0; at < s.len; at += INFO_SIZE) {
		struct waiting w;

		memcpy(&w, d->image.section[MEM_S_BYTES].data + s.off + at, sizeof(w));
		if (id < 0 ? w.signo == SIGALRM : w.code == SI_TIMER && w.timer == id)
			return true;
	}
	return false;
}

static const struct mem_span *queue_of(const struct proc *p, const struct mem_timer *t)
{
	for (size_t i = 0; t->tid && i < p->n_threads; i++)
		if (p->thread[i].tid == t->tid)
			return &p->thread[i].rec.pending;
	return &p->rec.pending;
}

void timer_settle(struct dump *d, struct proc *p)
{
	const uint64_t passed = clock_mono_ns() - p->asked + ROUNDED;
	uint64_t *alarm = p->rec.itimer[ITIMER_REAL], left = alarm[2] * 1000000000ULL + alarm[3] * 1000ULL;

	if (left && left <= passed && waits(d, p->rec.pending, -1)) {
		alarm[2] = 0;
		alarm[3] = alarm[0] || alarm[1]; /* it expires again when its signal is taken: see ask.c */
	}
	for (uint32_t i = 0; i < p->rec.timer.n; i++) {
		struct mem_timer *t = image_at(&d->image, MEM_S_TIMER, p->rec.timer.first + i);

		left = t->value_s * 1000000000ULL + t->value_ns;
		if (!left || left > passed || !waits(d, *queue_of(p, t), t->id))
			continue;
		/* A periodic timer fires again one period later. */
		left = t->interval_s || t->interval_ns ? left + t->interval_ns : 0;
		t->value_s = left ? t->interval_s + left / 1000000000ULL : 0;
		t->value_ns = left % 1000000000ULL;
	}
}
