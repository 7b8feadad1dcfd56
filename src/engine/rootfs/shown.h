/*
 * What a sandbox is shown of its memory and load in /proc/meminfo and /proc/loadavg, from its control groups: written anew by the thread of
 * engine/kernel_memory/watch.c while the sandbox runs, so that a reader never waits. docs/design/0014-what-programs-see.md has the choice.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/image/procfs.h"
#include "linux/cgroup.h"

#define SHOWN_MS 200 /* how often meminfo is written, while something runs */
#define SHOWN_LOAD_S 5 /* how often the load is averaged, as the kernel does */
#define SHOWN_APART "shown" /* a folder in memory, in a writable layer on a disk, which has the texts then */
#define SHOWN_NO_LOAD "0.00 0.00 0.00 1/1 1\n"

struct shown {
	int writable; /* the sandbox's; -1 = nothing is shown */
	bool live; /* false: the files stay as they were made */
	bool begun; /* ->load_cpu is known */
	bool counted; /* CPU time is; else meminfo is written however little happens, and there is no load */
	uint64_t memory_ns, memory_cpu; /* when meminfo was written, and the CPU time used by then */
	uint64_t load_ns, load_cpu; /* likewise of the load */
	uint32_t load[3]; /* over 1, 5 and 15 minutes, in parts of SHOWN_FIXED */
};
#define SHOWN_FIXED 2048U

/* @writable: the folder of the writable layer, which stays the caller's, and open until shown_done(). */
void shown_init(struct shown *v, const struct cgroup_host *h, const struct cgroup *c, int writable);
void shown_done(struct shown *v);
/* Whether there is something to be written. Does not look at ->writable. */
bool shown_is_due(const struct shown *v, uint64_t cpu);
/* By the watch's thread, when it is due. @cpu: µs that the sandbox has used so far. */
void shown_tick(struct shown *v, const struct cgroup_host *h, const struct cgroup *c, uint64_t limit, uint64_t cpu);

/* What its groups tell now. @c may be parked. */
void shown_memory(const struct cgroup_host *h, const struct cgroup *c, struct procfs_memory *ret);
/* The averages after @periods more in which @active parts of SHOWN_FIXED processors were in use. */
void shown_average(uint32_t load[3], uint32_t active, uint64_t periods);
/* Opens the text @name. The descriptor or -errno. */
int shown_open(int writable, const char *name, int flags);
/* Writes a whole text over the one that is there. 0 or -errno. */
int shown_write(int writable, const char *name, const char *text, size_t n);
