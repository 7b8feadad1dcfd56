/* What /proc and /sys tell inside: the sandbox's own limits, never the host's size. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* How many CPUs a sandbox with this quota shows; 0 milli = all of the host's. */
unsigned truth_cpus(uint32_t cpu_milli);
/* A mask of @n of the CPUs we may use, starting at a place that differs from sandbox to sandbox. 0 = leave. */
uint64_t truth_cpu_mask(unsigned n, uint32_t seed);
/* Each fills @buf and returns the length. */
size_t truth_meminfo(char *buf, size_t size, uint64_t limit, uint64_t used);
size_t truth_stat(char *buf, size_t size, unsigned cpus);
size_t truth_online(char *buf, size_t size, unsigned cpus);
/* The host's cpuinfo text cut to its first @cpus processors, renumbered. */
size_t truth_cpuinfo(const char *host, char *buf, size_t size, unsigned cpus);
