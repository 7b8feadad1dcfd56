/* Writes the texts of /proc that depend on the number of processors alone. */
#include "engine/image/procfs.h"
#include "base/base.h"
#include "base/clock.h"

size_t procfs_stat(char *buf, size_t size, unsigned cpus)
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

size_t procfs_online(char *buf, size_t size, unsigned cpus)
{
	int n = cpus > 1 ? snprintf(buf, size, "0-%u\n", cpus - 1) : snprintf(buf, size, "0\n");

	return n < 0 ? 0 : (size_t)n;
}

size_t procfs_cpuinfo(const char *host, char *buf, size_t size, unsigned cpus)
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
