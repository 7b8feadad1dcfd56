/*
 * Pages that splice() and sendfile() put into pipes. What a program writes into a pipe is counted; pages that come from
 * a socket or a device are not. A byte in a pipe can keep all of the 32 KiB that the network takes at a time.
 *
 * How much is in a pipe can be asked only with the pipe's lock, which a program can hold for as long as it likes: it
 * calls splice() with a socket that gets nothing. So a thread of its own asks, and while that thread waits, all pipes
 * of the sandbox count as full.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define KERNEL_PIPES_SEEN 64 /* words of a bit table of counted pipes */
#define KERNEL_PIPES_FEW (4U << 20)
#define KERNEL_PIPES_FULL (512U << 10) /* bytes that a pipe of the usual size holds at most */

struct kernel_pipes_batch;

/* Pipes of one sandbox. All zero at first. */
struct kernel_pipes {
	uint64_t seen[KERNEL_PIPES_SEEN]; /* pipes of this walk */
	uint64_t count, last; /* pipes so far in this walk; pipes in the last complete one */
	struct kernel_pipes_batch *next, *asked; /* pipes that this walk has noted; pipes that a thread is measuring */
	uint64_t asked_ns; /* since when */
	uint64_t parted; /* part of ->count that earlier parts of this walk have noted */
	uint64_t found; /* bytes in these parts, as far as measured; while the thread waits, as if all were full */
	/* the machine's uncounted memory at the start of this walk, and of the one that ->bytes is from */
	int64_t walk_have, have;
	uint64_t bytes; /* bytes that they may hold, as far as known */
};

/*
 * Starts a walk, when the machine's uncounted memory is @have. Its pipes are noted, unless the thread is still busy
 * with the last ones.
 */
void kernel_pipes_begin(struct kernel_pipes *p, int64_t have);
/*
 * Notes the descriptor @number of @tid, a thread of @pid, which leads to @link, seen from the folder @fds. Ignored when
 * it is no pipe. Does not wait.
 */
void kernel_pipes_add(struct kernel_pipes *p, int fds, int pid, int tid, const char *number, const char *link);
/* Ends a walk, or its part if @cut: it continues later. */
void kernel_pipes_end(struct kernel_pipes *p, bool cut);
/* Has the thread measure what was noted, if it is not busy. Does not wait. */
void kernel_pipes_ask(struct kernel_pipes *p);
/*
 * Updates ->bytes. True: it includes all pipes of the last walk. Until then it is the larger of the old and the new
 * figure. Does not wait.
 */
bool kernel_pipes_take(struct kernel_pipes *p);
void kernel_pipes_done(struct kernel_pipes *p);
