#include "warden/truth.h"
#include "base/base.h"
#include "base/clock.h"

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

unsigned truth_cpus(uint32_t cpu_milli)
{
	cpu_set_t set;
	unsigned host = usable(&set), want = (cpu_milli + 999) / 1000;

	return !want || want > host ? host : want;
}

uint64_t truth_cpu_mask(unsigned n, uint32_t seed)
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

size_t truth_meminfo(char *buf, size_t size, uint64_t limit, uint64_t used)
{
	unsigned long long total, avail;
	struct sysinfo si;
	int n;

	sysinfo(&si);
	total = (unsigned long long)si.totalram * si.mem_unit;
	if (limit && limit < total)
		total = limit;
	avail = used < total ? total - used : 0;
	total /= 1024;
	avail /= 1024;
	n = snprintf(buf, size,
		     "MemTotal:       %8llu kB\nMemFree:        %8llu kB\nMemAvailable:   %8llu kB\n"
		     "Buffers:               0 kB\nCached:                0 kB\nSwapCached:            0 kB\n"
		     "Active:                0 kB\nInactive:              0 kB\n"
		     "SwapTotal:             0 kB\nSwapFree:              0 kB\nDirty:                 0 kB\n"
		     "Writeback:             0 kB\nAnonPages:      %8llu kB\nMapped:                0 kB\n"
		     "Shmem:                 0 kB\nSlab:                  0 kB\nSReclaimable:          0 kB\n"
		     "SUnreclaim:            0 kB\nCommitLimit:    %8llu kB\nCommitted_AS:   %8llu kB\n",
		     total, avail, avail, total - avail, total, total - avail);
	return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

size_t truth_stat(char *buf, size_t size, unsigned cpus)
{
	size_t n = (size_t)snprintf(buf, size, "cpu  0 0 0 0 0 0 0 0 0 0\n");

	for (unsigned i = 0; i < cpus && n + 64 < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
	if (n + 96 < size)
		n += (size_t)snprintf(buf + n, size - n,
				      "intr 0\nctxt 0\nbtime %llu\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n",
				      (unsigned long long)clock_booted_s());
	return n;
}

size_t truth_online(char *buf, size_t size, unsigned cpus)
{
	int n = cpus > 1 ? snprintf(buf, size, "0-%u\n", cpus - 1) : snprintf(buf, size, "0\n");

	return n < 0 ? 0 : (size_t)n;
}

size_t truth_cpuinfo(const char *host, char *buf, size_t size, unsigned cpus)
{
	size_t n = 0;
	unsigned seen = 0;

	while (*host && seen < cpus) {
		const char *end = strstr(host, "\n\n");
		size_t len = end ? (size_t)(end - host) + 2 : strlen(host);

		if (n + len + 16 > size)
			break;
		if (!strncmp(host, "processor", 9)) {
			size_t line = strcspn(host, "\n");

			n += (size_t)snprintf(buf + n, size - n, "processor\t: %u", seen++);
			memcpy(buf + n, host + line, len - line);
			n += len - line;
		}
		host += len;
	}
	return n;
}
