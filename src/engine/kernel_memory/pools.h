/*
 * Pools of the kernel that the whole host shares, and that neither a namespace nor a group divides. A sandbox is
 * bounded by its own limits; all of one tenant's together may take a share of each pool, in percent. The host's total
 * is in one small file. Only when it is above one tenant's share, sandboxes are measured one by one
 * (engine/kernel_memory/looks.c).
 */
#pragma once
#include <stdint.h>

#include "engine/kernel_memory/look.h"

#define KERNEL_POOLS_PERCENT 50

/* All zero before the first look, except ->percent. Times in nanoseconds. */
struct kernel_pools {
	unsigned percent;
	uint64_t share[KERNEL_POOLS_COUNT]; /* a tenant's share; 0: the pool has no limit, or it is unknown */
	uint64_t read_ns; /* when the sizes of the pools were read */
};

/* A bit for each pool of which the host has taken more than one tenant's share. Never KERNEL_POOL_FILTERS. */
unsigned kernel_pools_scarce(struct kernel_pools *p);
/* What a sandbox has taken of a pool, or an upper bound. @u: the watch's last figures of it. */
uint64_t kernel_pools_taken(enum kernel_pool_id id, struct kernel_look *l, const struct kernel_usage *u);
