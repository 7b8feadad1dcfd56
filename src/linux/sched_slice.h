/*
 * How long the scheduler lets a thread run before it looks for another. Who has a long slice gives way to anybody who
 * wakes up with a shorter one, and waits for no longer than its fair part of the CPU: for work that nobody waits for. A
 * short one is for who only hands things to the disk or the network and waits again.
 * Children inherit it. Before Linux 6.12 there is one slice for all, and nothing happens.
 */
#pragma once

/* Some times the usual slice (0.7 to 2.8 ms), and not so long that what has it starves on a busy host. */
#define SLICE_LONG_NS 12000000ULL

/* Much less than the usual one, and the least that kernels take. */
#define SLICE_SHORT_NS 100000ULL

/* For this thread and whom it starts. 0 or -errno; then all is as it was. */
int sched_slice_long(void);
int sched_slice_short(void);
/* Back to the usual one, if it is ours that is long. */
int sched_slice_usual(void);
