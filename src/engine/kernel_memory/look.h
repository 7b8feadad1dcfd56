/* What the functions that look at kernel memory know of a sandbox, and how they are asked for one kind of it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/kernel_memory/kind.h"
#include "linux/cgroup.h"

/* The sandbox that is looked at. */
struct kernel_look {
	pid_t pid; /* the sandbox's first process */
	int pidfd;
	const struct cgroup_host *host;
	const struct cgroup *cgroup; /* parked (linux/cgroup.h): files are opened by name */
	uint64_t memory; /* its memory limit */
	bool rootless;
	int net; /* the caller's own network namespace, to return to; -1: sandboxes' cannot be entered */
	int diag; /* socket_diag_open() in the sandbox's namespace; -1: not made yet */
	struct kernel_files_host *files_host; /* engine/kernel_memory/files.h */
	struct kernel_files *files;
	uint32_t sockets; /* how many sockets it may make, by BPF; 0: no bound */
	uint64_t *unsure; /* bytes in hidden sockets at the last look (engine/kernel_memory/sockets.c) */
};

/*
 * Measures one kind: *ret is the bytes that no memory group counts. Called by one thread only, often: takes well below
 * a millisecond. 0 or -errno.
 */
struct kernel_kind {
	int (*bytes)(struct kernel_look *l, uint64_t *ret);
	uint64_t most; /* a bound by the machine's total, whatever the memory limit. 0: none */
};
