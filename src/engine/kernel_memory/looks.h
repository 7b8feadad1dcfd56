/*
 * Looks at sandboxes, in a thread. What a sandbox is charged and what its kinds of kernel memory hold must stay below
 * its memory limit and KERNEL_WATCH_OVER; and where all sandboxes of a tenant have taken more than its share of a pool
 * of the host (engine/kernel_memory/pools.h), the one that has taken the most is ended.
 *
 * A sandbox that uses no CPU time fills no memory. So the thread reads one counter for all of them, and looks at those
 * that have run.
 */
#pragma once
#include "engine/kernel_memory/looker.h"

extern const struct kernel_looker kernel_looker_threads;

struct kernel_looks;

int kernel_looks_new(const struct kernel_looker_opts *o, struct kernel_looks **ret, struct err *e);
void kernel_looks_free(struct kernel_looks *w);
int kernel_looks_add(struct kernel_looks *w, const struct kernel_subject *s, const int fd[KERNEL_FDS]);
/*
 * It is not looked at any more; a present look ends at the next descriptor, and its result is ignored: the sink is not
 * called for it any more, except for a call that is just running.
 */
void kernel_looks_remove(struct kernel_looks *w, uint64_t id);
void kernel_looks_limit(struct kernel_looks *w, uint64_t id, uint64_t memory);
/* The number of complete rounds; UINT64_MAX while there is no sandbox. Any thread. */
uint64_t kernel_looks_rounds(struct kernel_looks *w);
