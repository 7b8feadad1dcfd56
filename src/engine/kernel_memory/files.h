/*
 * Kernel memory that belongs to open files and that no memory group counts: locks, listings of merged folders, timers
 * and other objects behind descriptors, pages that were put into pipes; and the machine code of system call filters
 * that processes have installed. The kernel shows none of it per sandbox. So the looker walks through the processes of
 * a sandbox and their descriptors, which costs some milliseconds, and is done only
 *
 *   when the whole machine's uncounted kernel memory has grown: this is one file to read,
 *   when a sandbox held much the last time, and
 *   four times a second for a sandbox that runs, so that one that takes little at a time is seen as well.
 *
 * A walk takes 20 ms at a time. Where that is not enough, the next one continues at the descriptor that was reached,
 * and until the end is reached the larger of the old and the new figures count. The walks of a sandbox take at most a
 * twentieth of a core, a quarter while memory grows fast, and half while it grows fast and a walk is cut. Walks that
 * are not urgent, or that take long, share that allowance.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/kernel_memory/locks.h"
#include "engine/kernel_memory/look.h"
#include "engine/kernel_memory/looker.h"
#include "engine/kernel_memory/pipes.h"

#define KERNEL_FILES_FOLDERS 64
#define KERNEL_FILES_TABLES 256
#define KERNEL_FILES_GROWN (4 << 20)

/* Bytes found by the present walk. */
struct kernel_files_sum {
	/* shared: locks on file systems that are not the sandbox's own */
	uint64_t locks, shared, listings, objects, filters;
	uint64_t sent; /* descriptors in the queues of unix sockets */
	uint64_t seen; /* descriptors that the walk has reached */
};

/* A merged folder that was measured. */
struct kernel_files_folder {
	uint64_t dev, ino, size, bytes;
};

/* The figures of one sandbox from the last look, in bytes. All zero before the first look. */
struct kernel_files {
	uint64_t locks, listings, descriptors, filters;
	uint64_t listed; /* listings, found by the last look alone */
	/* locks that descriptors show; and of these, those on file systems that are not its own */
	uint64_t shown, shared;
	struct kernel_locks_of hidden;
	uint64_t hid_ns; /* when it last had locks without descriptors */
	uint64_t unexplained_ns; /* since when the machine has lost more than was found; 0: it has not */
	uint64_t looked_ns, cost_ns; /* start and duration of the last walk */
	uint64_t whole_ns; /* when a walk was last complete; 0: never */
	uint64_t objects, sent; /* timers and other objects of descriptors; descriptors in queues */
	uint64_t open; /* number of descriptors, when the walk was cut */
	/*
	 * earliest time of a look that is due because memory grew; 0: none. Also for a sandbox that does not run any
	 * more
	 */
	uint64_t due_ns;
	int64_t least; /* least value of the machine's uncounted memory since the first look */
	int64_t least_pipes; /* the same, since its pipes held little */
	int64_t least_code; /* least value of the memory that may be filters' machine code */
	uint64_t id; /* unique among all sandboxes of this host, past and present */
	/* figures of an earlier look by a process that has ended; NULL: none. Not needed after the first look */
	const struct kernel_base *seen;
	bool stop; /* __atomic: end the look */
	/* the walk continues at ->pid, ->tid and, if that one is ->begun, at the position ->at of its descriptors */
	bool cut;
	bool begun;
	int pid, tid;
	long at;
	unsigned ndescriptors; /* descriptors of that table so far */
	struct kernel_files_sum sum;
	struct kernel_pipes pipes;
	unsigned ntables, nfolders;
	/* tasks, one for each table of descriptors that this walk has seen, sorted by kcmp */
	int table[KERNEL_FILES_TABLES];
	struct kernel_files_folder folder[KERNEL_FILES_FOLDERS]; /* the last ones measured */
};

struct kernel_files_host; /* what all sandboxes of a warden share */

/* NULL: no memory. @c stays the caller's. */
struct kernel_files_host *kernel_files_host_new(const struct cgroup_host *c);
void kernel_files_host_free(struct kernel_files_host *h);
/*
 * Whether the machine's uncounted memory has grown by KERNEL_FILES_GROWN above any value since kernel_files_mark().
 * Costs two reads. Same thread as kernel_files_look().
 */
bool kernel_files_grown(struct kernel_files_host *h);
void kernel_files_mark(struct kernel_files_host *h);
/* Brings @l->files up to date, if it is time. Costs one read when it is not. One thread at a time. */
void kernel_files_look(struct kernel_look *l);
/* Ends the present look at @f, and all later ones, at the next descriptor. Any thread. */
void kernel_files_stop(struct kernel_files *f);
/* To be called when no watch uses it any more. */
void kernel_files_done(struct kernel_files *f);

/* The values that its figures are counted from. Unknown before the first look. */
void kernel_files_base(struct kernel_look *l, struct kernel_base *ret);
/* The number of descriptors of all its processes. Same thread as kernel_files_look(). */
uint64_t kernel_files_open(struct kernel_look *l);
/*
 * An upper bound of the bytes of all sandboxes' filters: what the machine has more than at the first look. Same thread.
 */
uint64_t kernel_files_code(struct kernel_files_host *h);

/* Functions of kinds of kernel memory. The first of these that is called looks. */
int kernel_locks_bytes(struct kernel_look *l, uint64_t *ret);
int kernel_listings_bytes(struct kernel_look *l, uint64_t *ret);
int kernel_descriptors_bytes(struct kernel_look *l, uint64_t *ret);
int kernel_filters_bytes(struct kernel_look *l, uint64_t *ret);
#define KERNEL_LOCKS_MOST (16U << 20) /* some 70,000 locks, which every lock or listing of locks has to pass */
#define KERNEL_FILTERS_MOST (32U << 20) /* of bpf_jit_limit, out of which the filters of new sandboxes come as well */
