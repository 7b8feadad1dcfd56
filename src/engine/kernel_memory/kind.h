/* Kinds of kernel memory that a sandbox's memory group does not count, and that the warden watches. */
#pragma once
#include <stdint.h>

#define KERNEL_KINDS(X)                                                                                                \
	X(SOCKETS, "sockets")                                                                                          \
	X(LOCKS, "locks")                                                                                              \
	X(LISTINGS, "listings")                                                                                        \
	X(DESCRIPTORS, "descriptors")                                                                                  \
	X(FILTERS, "filters")

enum kernel_kind_id {
#define X(id, name) KERNEL_##id,
	KERNEL_KINDS(X)
#undef X
		KERNEL_KINDS_COUNT
};
#define KERNEL_KINDS_MAX 6 /* room for them in messages */

/*
 * Pools of the host that the sandboxes of a tenant may take a share of (engine/kernel_memory/pools.h). Names of 15
 * characters at most.
 */
#define KERNEL_POOLS(X)                                                                                                \
	X(TCP, "tenant_tcp")                                                                                           \
	X(ORPHANS, "tenant_orphans")                                                                                   \
	X(TASKS, "tenant_tasks")                                                                                       \
	X(FILES, "tenant_files")                                                                                       \
	X(PTYS, "tenant_ptys")                                                                                         \
	X(FILTERS, "tenant_filters")

enum kernel_pool_id {
#define X(id, name) KERNEL_POOL_##id,
	KERNEL_POOLS(X)
#undef X
		KERNEL_POOLS_COUNT
};
#define KERNEL_POOLS_FIRST 32U /* the first value of killed_by for pools */

/* The figures of one sandbox. Only 64-bit numbers: it is part of a message. */
struct kernel_usage {
	uint64_t kills; /* how often the warden ended its processes because of them */
	/* cause of the last kill: 1 + enum kernel_kind_id, KERNEL_POOLS_FIRST + enum kernel_pool_id; 0 = none */
	uint64_t killed_by;
	uint64_t bytes[KERNEL_KINDS_MAX]; /* at the last look */
};

/*
 * The number of internet sockets of a sandbox with that memory limit, where BPF bounds them (linux/socket_bpf.h): with
 * full buffers they take half of it.
 */
static inline uint64_t kernel_sockets_most(uint64_t memory)
{
	const uint64_t n = memory / (2 * 212992U);

	return n < 64 ? 64 : n > 16384 ? 16384 : n;
}

/* The name of ->killed_by; "memory" for 0: then it was the memory group. */
const char *kernel_kind_name(uint64_t killed_by);
/* Logs that the processes of a sandbox were ended, and why. */
struct kernel_act;
void kernel_kind_log(const char *group, const struct kernel_act *a);
