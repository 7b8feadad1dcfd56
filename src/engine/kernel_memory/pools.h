/*
 * Pools of the kernel that the whole host shares, and that neither a namespace nor a group divides. A sandbox is bounded by its own
 * limits; all of one tenant's together may take a share of each pool, in percent. What the host has taken of a pool is one
 * small file to read. Only when that is more than one tenant's share, the sandboxes are asked one by one (engine/kernel_memory/watch.c).
 */
#pragma once
#include <stdint.h>

#include "engine/kernel_memory/watch.h"

#define KERNEL_POOLS_PERCENT 50

/* Times in nanoseconds. All zero before the first look, but for ->percent. */
struct kernel_pools {
	unsigned percent;
	uint64_t share[KERNEL_POOLS_COUNT]; /* 0: the pool has no end, or it is not known */
	uint64_t read_ns; /* when the sizes of the pools were read */
};

/* A bit for each pool of which the host has taken more than one tenant may. KERNEL_POOL_FILTERS is never one of them. */
unsigned kernel_pools_scarce(struct kernel_pools *p);
/* What a sandbox has taken of a pool, or more where that cannot be told. @u: what the watch found in it last. */
uint64_t kernel_pools_taken(enum kernel_pool_id id, const struct kernel_look *l, const struct kernel_usage *u);
