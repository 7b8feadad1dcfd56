/* Writes the texts of /proc. */
#include "engine/image/procfs.h"
#include "base/base.h"

#include <sched.h>
#include <sys/sysinfo.h>

static unsigned usable(cpu_set_t *set)
{
	unsigned n = 0;

	CPU_ZERO(set);
	if (sched_getaffinity(0, sizeof(*set), set) < 0)
		return 1;
	/* libc counts bit by bit, a thousand of them, and this is asked several times for each sandbox. */
	for (size_t i = 0; i < sizeof(*set) / sizeof(unsigned long); i++)
		n += (unsigned)__builtin_popcountl(((const unsigned long *)(const void *)set)[i]);
	return n;
}

unsigned procfs_cpus(uint32_t cpu_milli)
{
	cpu_set_t set;
	unsigned host = usable(&set), want = (cpu_milli + 999) / 1000;

	return !want || want > host ? host : want;
}

uint64_t procfs_cpu_mask(unsigned n, uint32_t seed)
{
	cpu_set_t set;
	unsigned host = usable(&set), skip, left = n;
	uint64_t mask = 0;

	if (n >= host)
		return 0;
	skip = seed % host;
	for (unsigned turn = 0; turn < 2 && left; turn++) {
		for (unsigned c = 0; c < 64 && left; c++) {
			if (!CPU_ISSET(c, &set) || mask & (1ULL << c))
				continue;
			if (skip) {
				skip--;
				continue;
			}
			mask |= 1ULL << c;
			left--;
		}
	}
	return left ? 0 : mask; /* more than 64 CPUs: the quota alone limits */
}

size_t procfs_meminfo(char *buf, size_t size, const struct procfs_memory *m)
{
	struct sysinfo si;
	uint64_t total, used, avail;

	sysinfo(&si);
	total = (uint64_t)si.totalram * si.mem_unit;
	if (m->limit && m->limit < total)
		total = m->limit;
	used = m->used < total ? m->used : total;
	/*
	 * Memory that the kernel frees when it is needed. The values were not read at one moment, so the sum is
	 * bounded.
	 */
	avail = total - used + m->active_file + m->inactive_file + m->slab_reclaimable;
	avail = avail < total ? avail : total;
	const struct {
		const char *name;
		uint64_t bytes;
	} lines[] = {
		{ "MemTotal:", total },
		{ "MemFree:", total - used },
		{ "MemAvailable:", avail },
		{ "Buffers:", 0 },
		{ "Cached:", m->cache },
		{ "SwapCached:", 0 },
		{ "Active:", m->active_anon + m->active_file },
		{ "Inactive:", m->inactive_anon + m->inactive_file },
		{ "Active(anon):", m->active_anon },
		{ "Inactive(anon):", m->inactive_anon },
		{ "Active(file):", m->active_file },
		{ "Inactive(file):", m->inactive_file },
		{ "SwapTotal:", 0 },
		{ "SwapFree:", 0 },
		{ "Dirty:", m->dirty },
		{ "Writeback:", m->writeback },
		{ "AnonPages:", m->anon },
		{ "Mapped:", m->mapped },
		{ "Shmem:", m->shmem },
		{ "Slab:", m->slab },
		{ "SReclaimable:", m->slab_reclaimable },
		{ "SUnreclaim:", m->slab > m->slab_reclaimable ? m->slab - m->slab_reclaimable : 0 },
		{ "CommitLimit:", total },
		{ "Committed_AS:", used },
	};
	const int digits = snprintf(NULL, 0, "%llu", (unsigned long long)(total / 1024)),
		  width = digits > 8 ? digits : 8;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		const uint64_t bytes = lines[i].bytes < total ? lines[i].bytes : total;
		const int len = snprintf(buf + n, size - n, "%-16s%*llu kB\n", lines[i].name, width,
					 (unsigned long long)(bytes / 1024));

		if (len < 0 || (size_t)len >= size - n)
			break;
		n += (size_t)len;
	}
	return n;
}

size_t procfs_cpu_max(char *buf, size_t size, uint32_t cpu_milli)
{
	/* As linux/cgroup_v1.c limits. */
	const unsigned long long period = cpu_milli && cpu_milli < 10 ? 1000000 : 100000;
	const int n = cpu_milli ? snprintf(buf, size, "%llu %llu\n", period * cpu_milli / 1000, period) :
				  snprintf(buf, size, "max %llu\n", period);

	return n < 0 ? 0 : (size_t)n;
}
