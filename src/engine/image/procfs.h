/* The files of /proc and /sys inside: the sandbox's own limits, never the host's size. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* How many CPUs a sandbox with this quota shows; 0 milli = all of the host's. */
unsigned procfs_cpus(uint32_t cpu_milli);
/* A mask of @n of the CPUs we may use, starting at a place that differs from sandbox to sandbox. 0 = leave. */
uint64_t procfs_cpu_mask(unsigned n, uint32_t seed);
/* What a sandbox uses, in bytes; a part that is not known is 0. */
#define PROCFS_MAX 2048 /* bytes of meminfo at most */
struct procfs_memory {
	uint64_t limit; /* 0: the host's memory */
	uint64_t used; /* all that is charged */
	uint64_t anon, cache, shmem, mapped, dirty, writeback; /* cache has shmem in it */
	uint64_t active_anon, inactive_anon, active_file, inactive_file;
	uint64_t slab, slab_reclaimable;
};
/* Each fills @buf and returns the length. That of meminfo depends on the limit alone, so that it can be written over. */
size_t procfs_meminfo(char *buf, size_t size, const struct procfs_memory *m);
size_t procfs_cpu_max(char *buf, size_t size, uint32_t cpu_milli);
size_t procfs_stat(char *buf, size_t size, unsigned cpus);
size_t procfs_online(char *buf, size_t size, unsigned cpus);
/* The host's cpuinfo text cut to its first @cpus processors, renumbered. */
size_t procfs_cpuinfo(const char *host, char *buf, size_t size, unsigned cpus);
