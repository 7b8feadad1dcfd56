/* Measures the whole machine's uncounted kernel memory, and its growth. */
#include "engine/kernel_memory/machine.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTLE_NS 500000000ULL /* growth is measured from the least value of this span */
#define FRESH_NS 2000000ULL /* a value is used for this long before it is read again */

void kernel_machine_init(struct kernel_machine *m, const struct cgroup_host *c)
{
	m->cgroups = c;
	m->vmstat = openat(AT_FDCWD, "/proc/vmstat", O_RDONLY | O_CLOEXEC);
	m->least[0] = m->least[1] = m->least_code = m->mark = INT64_MAX;
}

void kernel_machine_done(struct kernel_machine *m)
{
	fd_close(m->vmstat);
}

ssize_t kernel_text_of(int dirfd, const char *path, char *buf, size_t size)
{
	const int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n = 0;

	if (fd < 0)
		return -1;
	while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	buf[len] = 0;
	return n < 0 ? -1 : (ssize_t)len;
}

int64_t kernel_text_field(const char *text, const char *key)
{
	const size_t n = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, key, n) && p[n] == ' ')
			return strtoll(p + n + 1, NULL, 10);
	return 0;
}

/* Kernel memory that sandboxes are charged for. */
static int64_t charged(struct kernel_machine *m)
{
	const bool v2 = m->cgroups->version == 2;
	const int base = m->cgroups->base[v2 ? 0 : CGROUP_MEMORY];

	if (base < 0)
		return 0;
	if (!v2)
		return kernel_text_of(base, "memory.kmem.usage_in_bytes", m->text, sizeof(m->text)) < 0 ?
			       0 :
			       strtoll(m->text, NULL, 10);
	return kernel_text_of(base, "memory.stat", m->text, sizeof(m->text)) < 0 ? 0 :
										   kernel_text_field(m->text, "kernel");
}

/*
 * Pages in the processors' own lists, which do not count as free: up to a sixteenth of the memory, so that a sandbox
 * could take as much before the free pages decrease. With many processors the file is long: reading it takes a tenth of
 * a core at most.
 */
static int64_t at_cpus(struct kernel_machine *m)
{
	const uint64_t now = clock_mono_ns();
	int64_t pages = 0;
	ssize_t n;
	int fd;

	if (m->at_cpus_ns && now - m->at_cpus_ns < 9 * m->at_cpus_cost_ns)
		return m->at_cpus;
	fd = openat(AT_FDCWD, "/proc/zoneinfo", O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && (n = read(fd, m->text, sizeof(m->text) - 1)) > 0) {
		m->text[n] = 0;
		for (const char *p = m->text; (p = strstr(p, " count:")); p++)
			pages += strtoll(p + strlen(" count:"), NULL, 10);
	}
	fd_close(fd);
	m->at_cpus = pages;
	m->at_cpus_ns = clock_mono_ns();
	m->at_cpus_cost_ns = m->at_cpus_ns - now;
	return pages;
}

/* Pages that are neither free, nor a process's or file's, nor charged: only changes of this value are meaningful. */
static int64_t uncounted(struct kernel_machine *m)
{
	static const char *const others[] = { "nr_free_pages",	  "nr_inactive_anon", "nr_active_anon",
					      "nr_inactive_file", "nr_active_file",   "nr_unevictable" };
	const int64_t have = charged(m);
	int64_t pages = at_cpus(m);
	ssize_t n = m->vmstat < 0 ? -1 : pread(m->vmstat, m->text, sizeof(m->text) - 1, 0);

	if (n <= 0)
		return 0;
	m->text[n] = 0;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		pages += kernel_text_field(m->text, others[i]);
	return -pages * sysconf(_SC_PAGESIZE) - have;
}

int64_t kernel_machine_code(struct kernel_machine *m)
{
	int64_t now;

	if (kernel_text_of(AT_FDCWD, "/proc/meminfo", m->text, sizeof(m->text)) <= 0)
		return 0;
	now = (kernel_text_field(m->text, "VmallocUsed:") - kernel_text_field(m->text, "KernelStack:")) * KIB;
	m->least_code = now < m->least_code ? now : m->least_code;
	return now;
}

int64_t kernel_machine_growth(struct kernel_machine *m, uint64_t now_ns)
{
	const int64_t now = m->have;

	if (now_ns - m->span_ns > SETTLE_NS) {
		m->span_ns = now_ns;
		m->least[1] = m->least[0];
		m->least[0] = now;
	}
	if (now < m->least[0])
		m->least[0] = now;
	return now - (m->least[1] < m->least[0] ? m->least[1] : m->least[0]);
}

void kernel_machine_read(struct kernel_machine *m, uint64_t now)
{
	if (m->have_ns && now - m->have_ns <= FRESH_NS)
		return;
	m->have = uncounted(m);
	m->have_ns = now;
}

bool kernel_machine_grown(struct kernel_machine *m, int64_t bytes)
{
	kernel_machine_read(m, clock_mono_ns());
	m->mark = m->have < m->mark ? m->have : m->mark;
	return m->vmstat < 0 || m->have - m->mark >= bytes;
}

void kernel_machine_mark(struct kernel_machine *m)
{
	m->have_ns = 0;
	kernel_machine_read(m, clock_mono_ns());
	m->mark = m->have;
}
