/*
 * What a sandbox is shown of its memory and load in /proc/meminfo and /proc/loadavg, from its control groups, in files that are
 * open for writing (engine/rootfs/shown.h).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "linux/cgroup.h"

#define SHOW_MS 200 /* how often meminfo is written, while something runs */
#define SHOW_LOAD_S 5 /* how often the load is averaged, as the kernel does */
#define SHOW_FIXED 2048U

struct show {
	int meminfo, loadavg; /* owned; -1: nothing is shown */
	bool counted; /* CPU time is; else meminfo is written however little happens, and there is no load */
	bool begun; /* ->load_cpu is known */
	uint64_t memory_ns, memory_cpu; /* when meminfo was written, and the CPU time used by then */
	uint64_t load_ns, load_cpu; /* when the load was averaged, and the CPU time used by then */
	uint32_t load[3]; /* over 1, 5 and 15 minutes, in parts of SHOW_FIXED */
};

/* Without files. */
void show_init(struct show *v, const struct cgroup_host *h, const struct cgroup *c);
void show_done(struct show *v);
/* Writes what is due. @cpu: µs that the sandbox has used so far. @limit: of its memory. */
void show_tick(struct show *v, const struct cgroup_host *h, const struct cgroup *c, uint64_t limit, uint64_t cpu);
/* The averages after @periods more in which @active parts of SHOW_FIXED processors were in use. */
void show_average(uint32_t load[3], uint32_t active, uint64_t periods);
