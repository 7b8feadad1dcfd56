/*
 * Control groups: one sandbox's set of directories, over version 1, version 2 or a hybrid of both.
 *
 * On version 1 a task joins a group without the kernel's global lock (and its RCU wait of 6-20 ms) only when it moves
 * itself, alone: it writes "0" into `tasks` through a descriptor that root opened. So joining is handed to the child as
 * open descriptors (cgroup.join). On version 2 the child is born inside (CLONE_INTO_CGROUP with cgroup.dir).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum cgroup_controller {
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_CPU,
	CGROUP_CPUACCT,
	CGROUP_FREEZER,
	CGROUP_IO,
	CGROUP_CONTROLLERS
};
#define CGROUP_BIT(c) (1U << (c))
/* together with these, in messages that name an agent's groups: they are of version 2 */
#define CGROUP_SHOWN_V2 (1U << 16)
#define CGROUP_SHOWN_MADE (1U << 17) /* they are mounted in the base that it gets (engine/image/group_tree.h) */

/* Where groups are made on this host. Version 1: one folder per hierarchy (cpu and cpuacct may share one). */
struct cgroup_host {
	int version; /* 1 or 2; hybrid counts as 1 when the controllers are on version 1 */
	unsigned have; /* CGROUP_BIT()s that can be enforced here. v2: CPUACCT and FREEZER always count as had */
	/*
	 * v1: dirfd (O_PATH) of <hierarchy>/<own group>/cloche, -1 where missing; the same number twice where a
	 * hierarchy has several controllers, so close them only by cgroup_host_done. v2: [0] only.
	 */
	int base[CGROUP_CONTROLLERS];
	bool root; /* we were the host's root when it was opened */
	bool swap_accounted; /* v1: memory.memsw exists; v2: memory.swap.max exists */
};

struct cgroup_limits { /* 0 = not limited */
	uint64_t memory; /* bytes, swap excluded: no swap is allowed at all when this is set */
	uint32_t pids;
	uint32_t cpu_milli; /* 1000 = one core */
	uint64_t io_bps; /* bytes per second, reads and writes each, on every block device of @io_devs */
	struct {
		uint32_t major, minor;
	} io_dev[4];
	unsigned io_ndevs;
};

struct cgroup {
	char name[48];
	unsigned mask; /* controllers it was made with */
	/* O_PATH. v1: one each, the same number twice as in ->base; v2: [0] only; else -1. */
	int dir[CGROUP_CONTROLLERS];
	int join[CGROUP_CONTROLLERS]; /* v1: `tasks` opened for writing, in the first njoin places; v2: njoin == 0 */
	unsigned njoin;
	bool parked; /* none of these is open: each call opens what it needs */
	uint64_t cpu_base,
		throttled_base; /* v2: what an earlier sandbox used in the same group; cgroup_stat() leaves it out */
};

struct cgroup_stat { /* what the controllers in the mask report; 0 otherwise */
	uint64_t memory, memory_peak;
	uint64_t memory_files; /* tmpfs and other shared memory charged to the group */
	uint64_t oom_kills; /* processes killed by the memory limit so far */
	uint64_t pids, pids_peak, pids_refused; /* forks refused by the limit so far */
	uint64_t cpu_usec;
	uint64_t throttled_usec;
	uint64_t io_bytes;
};

/*
 * Finds the hierarchies (from /proc/self/cgroup and /proc/self/mountinfo), makes the `cloche` group below our own
 * group in each (v2: below the root of what we may write, enabling controllers there), and keeps its descriptors.
 * A missing controller is left out of ->have, which is not an error here: callers check ->have.
 * Without any writable hierarchy ->have is 0 and 0 is returned.
 * On a v1 host also keeps one group with a CPU quota, so that the scheduler's static key never toggles.
 */
int cgroup_host_open(struct cgroup_host *ret, struct err *e);
void cgroup_host_done(struct cgroup_host *h);
/*
 * From now on the CPU time of this thread and its children counts for the parent of all groups: work that is done for the
 * groups does not slow down other processes. -EOPNOTSUPP on version 2, where a group has either members or subgroups.
 */
int cgroup_host_join_cpu(const struct cgroup_host *h);

/*
 * Makes the group @name in every controller of @mask. -EEXIST when it is there already, -EOPNOTSUPP (ERR_UNSUPPORTED)
 * when @mask asks for more than ->have. Nothing is left on failure.
 */
int cgroup_make(const struct cgroup_host *h, const char *name, unsigned mask, struct cgroup *ret, struct err *e);
/* Opens an existing group; processes cannot join by it. -ENOENT when a part of it is missing. */
int cgroup_open(const struct cgroup_host *h, const char *name, unsigned mask, struct cgroup *ret);
void cgroup_init(struct cgroup *c); /* all descriptors -1 */
void cgroup_done(struct cgroup *c); /* closes descriptors, keeps the folders */
/*
 * Closes the descriptors of a group that remains in use, for a process that has many: later calls open the folder again
 * by its name. Processes can no longer join by it. Must not be called while another thread uses the group.
 */
void cgroup_park(struct cgroup *c);

/*
 * ERR_UNSUPPORTED with a remedy when a limit in @l has no controller in @c->mask, or when memory is to be limited while
 * the host has swap that cannot be forbidden. Limits that are not set are left as they are. May be called again.
 */
int cgroup_limit(const struct cgroup_host *h, const struct cgroup *c, const struct cgroup_limits *l, struct err *e);
int cgroup_stat(const struct cgroup_host *h, const struct cgroup *c, struct cgroup_stat *ret);
int cgroup_freeze(const struct cgroup_host *h, const struct cgroup *c, struct err *e); /* returns when frozen */
int cgroup_thaw(const struct cgroup_host *h, const struct cgroup *c, struct err *e);
/*
 * SIGKILL to every member, until none is left. Thaws. -ETIMEDOUT after ten seconds (a task stuck in the kernel),
 * -EDEADLK when the caller itself is a member, -ESRCH when a member is outside of our pid namespace.
 */
int cgroup_kill(const struct cgroup_host *h, const struct cgroup *c);

/*
 * Sends one SIGKILL to each member of the group @name, without waiting. The end of the first process of a pid namespace
 * also ends the others, but only when it gets to run; this does so at once.
 */
int cgroup_kill_now(const struct cgroup_host *h, const char *name);

/*
 * Makes a group without processes as good as a new one with the same limits: memory peak and CPU time at 0,
 * nothing charged to it. Time it was throttled (version 1), a peak of few processes and (version 2) a peak of little memory
 * stay. -EBUSY when it has a past: an OOM kill, a refused fork, members, memory that stays, a peak that is more than that. Then
 * it is to be removed.
 */
int cgroup_recycle(const struct cgroup_host *h, struct cgroup *c);

/*
 * Removes the folders, children first. -EBUSY while a member is left; the caller retries (cgroup_remove_wait does, for
 * up to @ms). Removing twice is fine.
 */
int cgroup_remove(const struct cgroup_host *h, const char *name, unsigned mask);
int cgroup_remove_wait(const struct cgroup_host *h, const char *name, unsigned mask, unsigned ms, struct err *e);

/*
 * Calls @fn for every group below `cloche` (any controller, each name once). @fn may remove it; anything but 0 from
 * @fn ends the walk and is returned. For sweeping up after a crash.
 */
int cgroup_each(const struct cgroup_host *h, int (*fn)(const char *name, void *arg), void *arg);

/*
 * Children of a group, to end some of its members together; they count and are limited by their parent alone. Named
 * x<number>. Version 1: in the pids hierarchy only. -EOPNOTSUPP where there is none.
 */
/*
 * Makes it, and returns the descriptor that members join by, or -errno; -EEXIST when it is there.
 *
 * The kernel checks the permission to move a process against the user that opened the descriptor, not against the user
 * that writes to it. So it is opened as user @by, since untrusted code may get the descriptor. Version 1: it moves only
 * processes of that user. Version 2: it moves threads that are in @c already, of any user. @by 0: as the caller, with
 * all of root's permissions. What joins has one thread.
 */
int cgroup_child_make(const struct cgroup_host *h, const struct cgroup *c, uint32_t n, uid_t by);
/* The same for one that is there. */
int cgroup_child_open(const struct cgroup_host *h, const struct cgroup *c, uint32_t n, uid_t by);
/*
 * Sends SIGKILL to every member; no fork escapes. Waits a short time for their end: a process that is stuck in the
 * kernel, or frozen on version 1, dies later, and until then the group accepts no new process.
 */
int cgroup_child_kill(const struct cgroup_host *h, const struct cgroup *c, uint32_t n);
/*
 * The same in one round and without waiting, for a thread beside the one that gives the group to others when it is empty: a second
 * round would end those. On version 1 a child that is being forked may be left to cgroup_child_reset(), and on version 2 there are
 * two rounds, while the group is frozen.
 */
int cgroup_child_kill_once(const struct cgroup_host *h, const struct cgroup *c, uint32_t n);
/* 1 when it has no member, 0 when it has, or -errno. */
int cgroup_child_empty(const struct cgroup_host *h, const struct cgroup *c, uint32_t n);
/* As good as new for other members: 0; -EBUSY when it still has some. */
int cgroup_child_reset(const struct cgroup_host *h, const struct cgroup *c, uint32_t n);
/*
 * For a sandbox that comes after: 0 when it is the only child, takes processes and was never refused one; -EBUSY when
 * not. The caller must know that it has no members, from the parent group, which counts them as well.
 */
int cgroup_child_recycle(const struct cgroup_host *h, const struct cgroup *c, uint32_t n);
/* -ENOENT: it is gone already. */
int cgroup_child_remove(const struct cgroup_host *h, const struct cgroup *c, uint32_t n);
/* The largest number there is, and how many. */
int cgroup_children(const struct cgroup_host *h, const struct cgroup *c, uint32_t *ret_last, uint32_t *ret_count);
int cgroup_children_remove(const struct cgroup_host *h, const struct cgroup *c);

/* For joining: writes "0" to each. Async-signal-safe; used between clone and exec. Returns 0 or -errno. */
int cgroup_join_self(const int *join, unsigned n);
/* The paths of these files, a line each, as far as they fit. */
#define CGROUP_WHERE_MAX 1024
void cgroup_where(const int *join, unsigned n, char *ret, size_t size);
