/*
 * How long the scheduler lets a thread run before it looks for another. A thread with a long slice is preempted by any
 * thread that wakes up with a shorter one, and still gets its fair share of the CPU: for work in the background. A
 * short slice is for a thread that only passes work to the disk or the network and waits again. Children inherit it.
 * Before Linux 6.12 there is one slice for all, and these calls do nothing.
 */
#pragma once

/* Some times the usual slice (0.7 to 2.8 ms), and not so long that what has it starves on a busy host. */
#define SLICE_LONG_NS 12000000ULL

/* Much less than the usual one, and the least that kernels take. */
#define SLICE_SHORT_NS 100000ULL

/* For this thread and those it starts later. 0 or -errno; then nothing has changed. */
int sched_slice_long(void);
int sched_slice_short(void);
/* Back to the usual one, if it is ours that is long. */
int sched_slice_usual(void);
