/*
 * Kernel memory that belongs to open files and that no memory group counts: locks, listings of merged folders, timers and other
 * objects behind descriptors; and the machine code of system call filters that processes have installed. The kernel tells none of
 * it by sandbox. So we go through the processes of a sandbox and their descriptors, which costs some milliseconds, and do so only
 *
 *   when the whole machine's uncounted kernel memory has grown: this is one file to read,
 *   when a sandbox held much the last time, and
 *   four times a second for a sandbox that runs, so that one that takes little at a time is seen as well.
 *
 * The walks take at most a twentieth of a core, and a quarter while memory grows fast.
 */
#pragma once
#include <stdint.h>

#include "warden/kernel_watch.h"

/* Of one sandbox: what was found last, in bytes. All zero before the first look. */
struct kernel_files {
	uint64_t locks, listings, descriptors, filters;
	uint64_t listed; /* listings, at the last look alone */
	uint64_t looked_ns; /* when */
	int64_t least; /* of the machine's uncounted memory, since the first look */
};

struct kernel_files_host; /* what all sandboxes of a warden share */

/* NULL: no memory. @c stays the caller's. */
struct kernel_files_host *kernel_files_host_new(const struct cgroup_host *c);
void kernel_files_host_free(struct kernel_files_host *h);
/* Brings @f up to date, if it is time; the group @name is the sandbox's. Costs one read when it is not. One thread at a time. */
void kernel_files_look(struct kernel_files_host *h, const char *name, struct kernel_files *f);

/* As kinds of kernel memory. The first one looks. */
int kernel_locks_bytes(const struct kernel_look *l, uint64_t *ret);
int kernel_listings_bytes(const struct kernel_look *l, uint64_t *ret);
int kernel_descriptors_bytes(const struct kernel_look *l, uint64_t *ret);
int kernel_filters_bytes(const struct kernel_look *l, uint64_t *ret);
#define KERNEL_LOCKS_MOST (16U << 20) /* some 70,000, which all that lock or list locks have to go through */
#define KERNEL_FILTERS_MOST (32U << 20) /* of bpf_jit_limit, out of which the filters of new sandboxes come as well */
