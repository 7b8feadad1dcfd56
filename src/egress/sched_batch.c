/* Sets the scheduling class of cloche-egress. */
#include "egress/sched_batch.h"
#include "base/base.h"

#include <sched.h>

#define NS_A_BYTE 2 /* 4 Gb/s: what is slower does not keep a processor busy, neither ours nor a sender's */
#define WINDOW (2 * LOOP_MS)
/* It is over when it has become a lot less, for longer than a sender may have to wait for a processor. */
#define NS_A_BYTE_BATCH 8
#define WINDOW_BATCH (20 * LOOP_MS)

static void become(struct sched_batch *h, bool batch)
{
	const struct sched_param none = { 0 };

	if (h->batch == batch)
		return;
	if (sched_setscheduler(0, batch ? SCHED_BATCH : SCHED_OTHER, &none) < 0) {
		h->fixed = true; /* slower, and nothing else */
		batch = false;
	}
	h->batch = batch;
	if (!batch)
		loop_timer_stop(h->loop, &h->timer);
}

static void judge(struct sched_batch *h)
{
	bool many = h->moved * (h->batch ? NS_A_BYTE_BATCH : NS_A_BYTE) >= h->loop->now - h->since;

	h->since = h->loop->now;
	h->moved = 0;
	/* Only the timer notices that the flow has ceased; without it batching must not start. */
	if (many && loop_timer_set(h->loop, &h->timer, h->since + WINDOW_BATCH) < 0)
		many = false;
	become(h, many);
}

static void due(struct loop_timer *t)
{
	judge((struct sched_batch *)t);
}

void sched_batch_init(struct sched_batch *h, struct loop *loop)
{
	*h = (struct sched_batch){
		.timer = { .due = due }, .loop = loop, .since = loop->now, .fixed = sched_getscheduler(0) != SCHED_OTHER
	};
}

void sched_batch_turn(struct sched_batch *h)
{
	/* While batched it is the timer that judges. */
	if (!h->fixed && !h->batch && h->moved && h->loop->now - h->since >= WINDOW)
		judge(h);
}
