/*
 * Kernel memory that no memory group counts, watched by a thread of the warden's: what a sandbox is charged and what its kinds
 * hold must stay below its memory limit and KERNEL_WATCH_OVER. Above that, what runs in it is ended, with the verdict `oom`
 * and the name of the kind that held the most.
 *
 * Where all sandboxes of a tenant have taken more than its share of a pool of the host (engine/kernel_memory/pools.h), what runs in the one
 * that has taken the most is ended likewise.
 *
 * A sandbox that uses no CPU time fills nothing. So the thread reads one counter for all of them, and looks at those that have run.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/kernel_memory/kind.h"
#include "linux/cgroup.h"

#define KERNEL_WATCH_MS 10 /* how often */
/* More than that above the limit ends it, and what would be at the next look: so that it stays below 32 MiB. */
#define KERNEL_WATCH_OVER (16U << 20)
#define KERNEL_WATCH_SOON (24U << 20)

struct kernel_watch;
struct kernel_watched;

/* What a kind looks at. */
struct kernel_look {
	pid_t pid; /* the sandbox's first process */
	int pidfd;
	const struct cgroup_host *host;
	const struct cgroup *cgroup; /* parked: files are opened by name */
	uint64_t memory; /* its limit */
	bool rootless;
	int net; /* our own network namespace, to return to */
	struct kernel_files_host *files_host; /* engine/kernel_memory/files.h */
	struct kernel_files *files;
	uint32_t sockets; /* as many it may make, by BPF; 0: no bound */
	uint64_t *unsure; /* bytes in hidden sockets at the last look (engine/kernel_memory/sockets.c) */
};

/* *ret: bytes that no memory group counts. Called by the thread only, often: takes well below a millisecond. 0 or -errno. */
struct kernel_kind {
	int (*bytes)(const struct kernel_look *l, uint64_t *ret);
	uint64_t most; /* whatever the memory limit: a share of what the whole machine has. 0: none */
};

struct kernel_watch_opts {
	const struct cgroup_host *host;
	int net; /* stays the caller's */
	bool rootless;
	unsigned sockets; /* of the internet, by BPF; 0 = kernel_sockets_most() */
	bool persist; /* sandboxes outlive an exec: end the execs, and the sandbox only when that does not help */
	unsigned percent; /* of the host's pools, for all sandboxes of a tenant; 0 = KERNEL_POOLS_PERCENT */
};
/* NULL: no memory. The thread starts with the first sandbox. */
struct kernel_watch *kernel_watch_new(const struct kernel_watch_opts *o);
void kernel_watch_free(struct kernel_watch *w);
/*
 * @pidfd and @memory, its limit, not 0. NULL: it cannot be watched, and must not run. @pidfd stays open until the removal. Its
 * sockets are bounded before this returns, where the kernel itself can do that. @writable: the folder of its writable layer, where what it uses is
 * shown (engine/rootfs/shown.h); -1: nowhere.
 */
struct kernel_watched *kernel_watch_add(struct kernel_watch *w, pid_t pid, int pidfd, const struct cgroup *c, uint64_t memory, uint64_t tenant, int writable);
/*
 * Right behind kernel_watch_add(): its agent is about to restore processes in it. The CPU time that this takes is not theirs, so it is looked at
 * for the first time when it has used more than that, or a tenth of a second later. Ten copies of one fork would else be looked at, by a thread that
 * goes before all others, while they are being made.
 */
void kernel_watch_restores(struct kernel_watch *w, struct kernel_watched *x);
/*
 * From now on nothing is done to it. Does not wait for a look at it to end: when one is under way, the watch keeps *@pidfd until
 * then, and *@pidfd is another descriptor of the same process. NULL is nothing.
 */
void kernel_watch_remove(struct kernel_watch *w, struct kernel_watched *x, int *pidfd);
/* Its limit is another one from now on; the caller sets it for the group. The bound of its sockets stays. */
void kernel_watch_limit(struct kernel_watch *w, struct kernel_watched *x, uint64_t memory);
/* One that another warden has watched: its memory limit is what it should be, whenever that one died. 0 or -errno. */
int kernel_watch_mend(const struct kernel_watched *x);
/* How many internet sockets it may have, where the kernel itself bounds them (linux/socket_bpf.h); 0: it does not. */
uint32_t kernel_watch_bound(const struct kernel_watched *x);
/* Percent of the host's pools that all sandboxes of a tenant have; 0: there is one sandbox alone. */
unsigned kernel_watch_share(const struct kernel_watch *w);
void kernel_watch_usage(struct kernel_watch *w, const struct kernel_watched *x, struct kernel_usage *ret);
