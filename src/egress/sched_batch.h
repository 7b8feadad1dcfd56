/*
 * Scheduling of egress. A process that is woken preempts the one that woke it: right for a byte that a client waits
 * for, and wasteful when a fast sender on this host wakes egress for each of its packets, since both then run in small
 * pieces, with cold caches. So while many bytes flow, egress uses SCHED_BATCH (on a free processor it still runs at
 * once, but it preempts no other process), and the normal policy again when they have ceased to flow.
 */
#pragma once
#include "egress/loop.h"

#include <stdbool.h>

struct sched_batch {
	struct loop_timer timer; /* set while ->batch; first */
	struct loop *loop;
	uint64_t since, moved; /* ns; bytes since then */
	bool batch;
	bool fixed; /* the policy was set from outside, or may not be changed: it stays */
};

void sched_batch_init(struct sched_batch *h, struct loop *loop);
/* Behind each turn, with ->moved counted up by its bytes. */
void sched_batch_turn(struct sched_batch *h);
