/*
 * Pages that splice() and sendfile() put into pipes. What a program writes into a pipe is counted; pages that come from a socket or a
 * device are not. A byte in a pipe can keep all of the 32 KiB that the network takes at a time.
 *
 * How much is in a pipe can be asked only with the pipe's lock, which a program can hold for as long as it likes: it calls splice()
 * with a socket that gets nothing. So a thread of its own asks, and of a sandbox whose thread waits, all pipes count as full.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define KERNEL_PIPES_SEEN 64 /* words of a table of bits: pipes that were counted */
#define KERNEL_PIPES_FEW (4U << 20)
#define KERNEL_PIPES_FULL (512U << 10) /* what one of the usual size keeps at most */

struct kernel_pipes_batch;

/* Of one sandbox. All zero at first. */
struct kernel_pipes {
	uint64_t seen[KERNEL_PIPES_SEEN]; /* in this walk */
	uint64_t count, last; /* pipes so far in this walk; in the last whole one */
	struct kernel_pipes_batch *next, *asked; /* what this walk has noted; what a thread asks about */
	uint64_t asked_ns; /* since when */
	uint64_t parted; /* of ->count, those that earlier parts of this walk have noted */
	uint64_t found; /* bytes in these parts, as far as they have been asked about; while the thread waits: as if all were full */
	int64_t walk_have, have; /* the machine's uncounted memory when this walk began, and when the one began that ->bytes is of */
	uint64_t bytes; /* as much as they may keep, as far as that is known */
};

/* A walk begins, when the machine's uncounted memory is @have. Its pipes are noted, unless the thread is still busy with those of the last one. */
void kernel_pipes_begin(struct kernel_pipes *p, int64_t have);
/* The descriptor @number of @tid, a thread of @pid, leads to @link, seen from the folder @fds. Nothing when it is no pipe. Does not wait. */
void kernel_pipes_add(struct kernel_pipes *p, int fds, int pid, int tid, const char *number, const char *link);
/* The walk has ended, or @cut: it continues later. */
void kernel_pipes_end(struct kernel_pipes *p, bool cut);
/* The thread asks about what was noted and not asked about yet, if it is not busy. Does not wait. */
void kernel_pipes_ask(struct kernel_pipes *p);
/* Brings ->bytes up to date. True: all of what the last walk noted is in it. Until then, the larger of the old and the new figure. Does not wait. */
bool kernel_pipes_take(struct kernel_pipes *p);
void kernel_pipes_done(struct kernel_pipes *p);
