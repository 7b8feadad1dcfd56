/*
 * The interface between a looker and the watch (engine/kernel_memory/watch.h). A looker reads what the kernel shows of
 * a sandbox's processes and descriptors, and says what it holds and when it has too much. It
 * changes nothing but the files that show a sandbox its use: all else is done by the watch, which a looker asks for it. There are two:
 *
 *   kernel_looker_threads (engine/kernel_memory/looks.h) in this process, for one sandbox: `cloche run`, and a virtual
 *   machine's
 *   kernel_looker_process (engine/kernel_memory/link.h) in cloche-watch, for the warden, which stays root
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/kernel_memory/kind.h"
#include "engine/kernel_memory/socket_owner.h"
#include "linux/cgroup.h"

#define KERNEL_WATCH_MS 10 /* ms between two looks */
/*
 * A sandbox that is above its limit by more is ended, also if it would be so at the next look: so the excess stays
 * below 32 MiB.
 */
#define KERNEL_WATCH_OVER (16U << 20)
#define KERNEL_WATCH_SOON (24U << 20)
#define KERNEL_ROOM_MOST (16U << 20) /* bytes of page cache dropped at a time */
#define KERNEL_GROUP 48 /* bytes of the name of a sandbox's groups */

/* The values from which one sandbox's kernel memory is counted: what was there before is not its own. */
struct kernel_base {
	int64_t files, pipes, code; /* the least of the machine's figures since its first look */
	int64_t machine; /* for all sandboxes: the least of what may be machine code of filters */
};

/* Only 64-bit numbers and texts in these three structs: they are parts of messages. */
struct kernel_subject {
	uint64_t id; /* never 0, and unique among this watch's sandboxes, past and present */
	uint64_t tenant, memory; /* its tenant, and its limit */
	uint64_t ended_ns, ended_sum; /* when its processes were last ended, and its memory then; 0: never */
	uint64_t bytes[KERNEL_KINDS_MAX]; /* with KERNEL_SUBJECT_SEEN: figures of the last look by an earlier looker */
	struct kernel_base base; /* likewise */
	uint64_t pid, mask, sockets, flags;
	uint64_t fds; /* bits of enum kernel_fd: which come with it */
	char group[KERNEL_GROUP];
};
#define KERNEL_SUBJECT_SEEN 1U
#define KERNEL_SUBJECT_RESTORES 2U /* its agent is about to restore processes in it */

/* Descriptors of a sandbox for its looker: its first process, socket_diag_open() in its network, and its shown_live() files. */
enum kernel_fd { KERNEL_PIDFD, KERNEL_DIAG, KERNEL_MEMINFO, KERNEL_LOADAVG, KERNEL_FDS };

struct kernel_figures {
	uint64_t bytes[KERNEL_KINDS_MAX];
	struct kernel_base base;
};

enum kernel_act_kind {
	KERNEL_ACT_END, /* end its processes */
	KERNEL_ACT_ROOM, /* drop ->room bytes of its page cache */
};
struct kernel_act {
	uint64_t kind; /* enum kernel_act_kind */
	uint64_t by; /* as kernel_usage.killed_by: the kind above its limit */
	uint64_t memory; /* the limit that the decision is based on */
	uint64_t have; /* what its memory group is charged */
	uint64_t share, taken; /* of a pool: the tenant's share, and what it has taken */
	uint64_t room;
	uint64_t bytes[KERNEL_KINDS_MAX];
};

/* Functions that a looker calls, from a thread of its own that holds no lock then. An unknown @id is ignored. */
struct kernel_sink {
	void *arg;
	void (*figures)(void *arg, uint64_t id, const struct kernel_figures *f);
	/* Returns when it is done. False: it was not, since the sandbox is gone or has another limit by now. */
	bool (*act)(void *arg, uint64_t id, const struct kernel_act *a);
	/* The looker was restarted: all sandboxes must be added again. */
	void (*again)(void *arg);
	/* No looker has run for too long. */
	void (*blind)(void *arg);
};

struct kernel_looker_opts {
	const struct cgroup_host *host;
	int net; /* the caller's own network namespace; stays the caller's. -1: sandboxes' cannot be entered */
	bool rootless;
	unsigned percent; /* share of the host's pools for all sandboxes of a tenant */
	int program; /* cloche-watch; -1: not available */
	struct kernel_sink sink;
};

/* All functions but new and free: any thread, and none waits for a look to end. */
struct kernel_looker {
	bool apart; /* it cannot enter a sandbox's network namespace: kernel_looker.add() needs KERNEL_DIAG */
	int (*new)(const struct kernel_looker_opts *o, void **ret, struct err *e);
	/* Adding a known one again changes nothing. @fd stay the caller's; -1: none. 0 or -errno. */
	int (*add)(void *l, const struct kernel_subject *s, const int fd[KERNEL_FDS]);
	void (*remove)(void *l, uint64_t id);
	void (*limit)(void *l, uint64_t id, uint64_t memory);
	/* socket_owner_find(), and false if there is no answer in time. */
	bool (*owner)(void *l, pid_t first, uint64_t inode, struct socket_owner *ret);
	void (*free)(void *l); /* after this the sink is not called any more */
};
