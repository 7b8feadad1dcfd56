/*
 * Kernel memory that no memory group counts: what a sandbox is charged and what its kinds hold must stay below its
 * memory limit and KERNEL_WATCH_OVER. Above that, what runs in it is ended, with the verdict `oom` and the name of the
 * kind that held the most. Where all sandboxes of a tenant have taken more than its share of a pool of the host
 * (engine/kernel_memory/pools.h), what runs in the one that has taken the most is ended likewise.
 *
 * A looker measures the memory (engine/kernel_memory/looker.h); it may be another process. The watch knows the
 * sandboxes and ends what runs in them; the looker also writes the files that show them their usage.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/kernel_memory/kind.h"
#include "engine/kernel_memory/looker.h"
#include "linux/cgroup.h"

struct kernel_watch;
struct kernel_watched;

struct kernel_watch_opts {
	const struct kernel_looker *looker;
	const struct cgroup_host *host;
	int net; /* the caller's own network namespace; stays the caller's */
	int program; /* cloche-watch, for the looker that needs it; likewise */
	bool rootless;
	unsigned sockets; /* internet sockets that BPF allows; 0 = kernel_sockets_most() */
	bool persist; /* sandboxes outlive their execs: ends the execs, and the sandbox only when that does not help */
	unsigned percent; /* share of the host's pools for all sandboxes of a tenant; 0 = KERNEL_POOLS_PERCENT */
};
/* A looker process runs when this returns; a looker thread starts with the first sandbox. */
int kernel_watch_new(const struct kernel_watch_opts *o, struct kernel_watch **ret, struct err *e);
void kernel_watch_free(struct kernel_watch *w);

struct kernel_watch_add {
	pid_t pid; /* its first process */
	int pidfd; /* its pidfd; stays the caller's, and open until the removal */
	const struct cgroup *cgroup;
	uint64_t memory; /* its memory limit, not 0 */
	uint64_t tenant;
	/* the folder of its writable layer, for files that show its usage (engine/rootfs/shown.h); -1: none */
	int writable;
	/*
	 * Its agent is about to restore processes in it. The CPU time of that does not count, so the first look comes
	 * when it has used more, or a tenth of a second later. Otherwise ten copies of one fork would be looked at, by
	 * a thread with high priority, while they are being made.
	 */
	bool restores;
};
/*
 * NULL: it cannot be watched, and must not run. Where the kernel can bound sockets, its are bounded when this returns.
 */
struct kernel_watched *kernel_watch_add(struct kernel_watch *w, const struct kernel_watch_add *o);
/* Ends the watching. Waits for work on it, but not for a look at it. NULL: does nothing. */
void kernel_watch_remove(struct kernel_watch *w, struct kernel_watched *x);
/* Changes the limit to watch; the caller sets it for the group. The bound of its sockets stays. */
void kernel_watch_limit(struct kernel_watch *w, struct kernel_watched *x, uint64_t memory);
/* Finds the process below @first that has a socket, as socket_owner_find(). Waits for a second at most. */
bool kernel_watch_owner(struct kernel_watch *w, pid_t first, uint64_t inode, struct socket_owner *ret);
/* Repairs the memory limit of a sandbox that another warden has watched, whenever that one died. 0 or -errno. */
int kernel_watch_mend(const struct kernel_watch *w, const struct kernel_watched *x);
/* The bound on its internet sockets, where the kernel enforces one (linux/socket_bpf.h); 0: none. */
uint32_t kernel_watch_bound(const struct kernel_watched *x);
/* Share of the host's pools for all sandboxes of a tenant, in percent; 0: for a single sandbox. */
unsigned kernel_watch_share(const struct kernel_watch *w);
void kernel_watch_usage(struct kernel_watch *w, const struct kernel_watched *x, struct kernel_usage *ret);
