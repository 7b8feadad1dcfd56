/*
 * How long the scheduler lets a thread run before it looks for another. Who has a long slice gives way to anybody who
 * wakes up with a shorter one, and waits for no longer than its fair part of the CPU. For work that nobody waits for.
 * Children inherit it. Before Linux 6.12 there is one slice for all, and nothing happens.
 */
#pragma once

/* Some times the usual slice (0.7 to 2.8 ms), and not so long that what has it starves on a busy host. */
#define SLICE_LONG_NS 12000000ULL

/* For this thread and whom it starts. 0 or -errno; then all is as it was. */
int slice_long(void);
/* Back to the usual one, if it is ours that is long. */
int slice_usual(void);
