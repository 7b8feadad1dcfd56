/*
 * How eager we are to run. A process that is woken takes the processor from the one that woke it: right for a byte that
 * somebody waits for, and wasteful when a fast sender on this host wakes us for each of its packets, since then both go
 * on in small pieces, with cold caches. So while a lot of bytes flow we ask to be batched (SCHED_BATCH: on a processor
 * that is free we run at once as ever, but nobody is interrupted for us), and no longer when they have ceased to flow.
 */
#pragma once
#include "egress/loop.h"

#include <stdbool.h>

struct sched_batch {
	struct loop_timer timer; /* set while ->batch; first */
	struct loop *loop;
	uint64_t since, moved; /* ns; bytes since then */
	bool batch;
	bool fixed; /* it was somebody's choice, or may not be changed: it stays as it is */
};

void sched_batch_init(struct sched_batch *h, struct loop *loop);
/* Behind each turn, with ->moved counted up by its bytes. */
void sched_batch_turn(struct sched_batch *h);
