/*
 * Kernel memory that belongs to open files and that no memory group counts: locks, listings of merged folders, timers and other
 * objects behind descriptors, pages that were put into pipes; and the machine code of system call filters that processes have
 * installed. The kernel tells none of it by sandbox. So we go through the processes of a sandbox and their descriptors, which
 * costs some milliseconds, and do so only
 *
 *   when the whole machine's uncounted kernel memory has grown: this is one file to read,
 *   when a sandbox held much the last time, and
 *   four times a second for a sandbox that runs, so that one that takes little at a time is seen as well.
 *
 * A walk takes 20 ms at a time. Where that is not enough, the next one continues at the descriptor that was reached, and until
 * the end is reached the larger of the old and the new figures count. The walks of a sandbox take at most a twentieth of a core,
 * a quarter while memory grows fast, and half of one while that is so and a walk is cut. Those that nothing urges, or that take
 * long, take no more than that all together.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/kernel_memory/locks.h"
#include "engine/kernel_memory/pipes.h"
#include "engine/kernel_memory/watch.h"

#define KERNEL_FILES_FOLDERS 64
#define KERNEL_FILES_TABLES 256
#define KERNEL_FILES_GROWN (4 << 20)

/* Bytes found by the walk that is under way. */
struct kernel_files_sum {
	uint64_t locks, shared, listings, objects, filters; /* shared: of the locks, those on file systems that are not its own */
	uint64_t sent; /* descriptors in the queues of unix sockets */
	uint64_t seen; /* descriptors that the walk has come to */
};

/* A merged folder that was measured. */
struct kernel_files_folder {
	uint64_t dev, ino, size, bytes;
};

/* Of one sandbox: what was found last, in bytes. All zero before the first look. */
struct kernel_files {
	uint64_t locks, listings, descriptors, filters;
	uint64_t listed; /* listings, at the last look alone */
	uint64_t shown, shared; /* locks that descriptors show, and of these, on file systems that are not its own */
	struct kernel_locks_of hidden;
	uint64_t hid_ns; /* when it had such locks */
	uint64_t unexplained_ns; /* since when the machine has lost more than was found; 0: it has not */
	uint64_t looked_ns, cost_ns; /* when, and how long it took */
	uint64_t whole_ns; /* when a walk came to its end; 0: never */
	uint64_t objects, sent; /* of descriptors: timers and the like; as many were sent and not received */
	uint64_t open; /* descriptors, when the walk was cut */
	uint64_t due_ns; /* a look that is owed since memory grew, and when it may be; 0: none. Also for one that does not run any more */
	int64_t least; /* of the machine's uncounted memory, since the first look */
	int64_t least_pipes; /* the same, since its pipes held little */
	int64_t least_code; /* of what can be machine code of filters */
	uint64_t id; /* no other sandbox of this warden has or had it */
	bool stop; /* __atomic */
	bool cut; /* the walk continues at ->pid, ->tid and, if that one is ->begun, at the position ->at of its descriptors */
	bool begun;
	int pid, tid;
	long at;
	unsigned ndescriptors; /* of that table so far */
	struct kernel_files_sum sum;
	struct kernel_pipes pipes;
	unsigned ntables, nfolders;
	int table[KERNEL_FILES_TABLES]; /* tasks, one for each table of descriptors that this walk has seen, in the order of kcmp */
	struct kernel_files_folder folder[KERNEL_FILES_FOLDERS]; /* the last ones */
};

struct kernel_files_host; /* what all sandboxes of a warden share */

/* NULL: no memory. @c stays the caller's. */
struct kernel_files_host *kernel_files_host_new(const struct cgroup_host *c);
void kernel_files_host_free(struct kernel_files_host *h);
/*
 * Whether the machine's uncounted memory is by KERNEL_FILES_GROWN more than it was at some time since kernel_files_mark(). Costs two
 * reads. The same thread as kernel_files_look().
 */
bool kernel_files_grown(struct kernel_files_host *h);
void kernel_files_mark(struct kernel_files_host *h);
/* Brings @l->files up to date, if it is time. Costs one read when it is not. One thread at a time. */
void kernel_files_look(const struct kernel_look *l);
/* Ends a look at @f that is under way, and all later ones, at the next descriptor. Any thread. */
void kernel_files_stop(struct kernel_files *f);
/* No watch uses it any more. */
void kernel_files_done(struct kernel_files *f);

/* How many descriptors its processes have. The same thread. */
uint64_t kernel_files_open(const struct kernel_look *l);
/* Bytes that the filters of all sandboxes can have at most, by what the machine has more than it had since the first look. The same thread. */
uint64_t kernel_files_code(struct kernel_files_host *h);

/* As kinds of kernel memory. The first one looks. */
int kernel_locks_bytes(const struct kernel_look *l, uint64_t *ret);
int kernel_listings_bytes(const struct kernel_look *l, uint64_t *ret);
int kernel_descriptors_bytes(const struct kernel_look *l, uint64_t *ret);
int kernel_filters_bytes(const struct kernel_look *l, uint64_t *ret);
#define KERNEL_LOCKS_MOST (16U << 20) /* some 70,000, which all that lock or list locks have to go through */
#define KERNEL_FILTERS_MOST (32U << 20) /* of bpf_jit_limit, out of which the filters of new sandboxes come as well */
