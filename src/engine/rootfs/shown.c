#include "engine/rootfs/shown.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "linux/cgroup_parse.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LOAD_NS (SHOWN_LOAD_S * 1000000000ULL)
#define PERIODS_MAX 2000U /* after these the longest average has forgotten all that was before */

static bool in_memory(int fd)
{
	struct statfs fs;

	return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

int shown_open(int writable, const char *name, int flags)
{
	char apart[32];
	int fd;

	if (in_memory(writable))
		return sys_openat(writable, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	snprintf(apart, sizeof(apart), SHOWN_APART "/%s", name);
	fd = sys_openat(writable, apart, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	return fd == -ENOENT ? sys_openat(writable, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0) : fd;
}

/* Files on a disk are left as they were made: a write there may wait, and who writes watches the memory of all sandboxes. */
static bool can_be_live(int writable)
{
	AUTO_CLOSE int fd = writable < 0 ? -1 : shown_open(writable, "meminfo", O_RDONLY);

	return in_memory(fd);
}

void shown_init(struct shown *v, const struct cgroup_host *h, const struct cgroup *c, int writable)
{
	*v = (struct shown){ .writable = writable, .live = can_be_live(writable), .load_ns = clock_mono_ns(),
			    .counted = h->version == 2 || c->mask & CGROUP_BIT(CGROUP_CPUACCT) };
}

void shown_done(struct shown *v)
{
	v->writable = -1;
}

int shown_write(int writable, const char *name, const char *text, size_t n)
{
	AUTO_CLOSE int fd = shown_open(writable, name, O_WRONLY);
	ssize_t w;

	if (fd < 0)
		return fd;
	w = pwrite(fd, text, n, 0);
	if (w != (ssize_t)n)
		return w < 0 ? -errno : -EIO;
	/* One that was longer. A reader in between sees an empty line more. */
	return ftruncate(fd, (off_t)n) < 0 ? -errno : 0;
}

static uint64_t number(const struct cgroup_host *h, const struct cgroup *c, enum cgroup_controller id, const char *name)
{
	unsigned long long n = 0;
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", c->name, name);
	return fd_get_u64(h->base[h->version == 2 ? 0 : id], path, &n) < 0 ? 0 : n;
}

void shown_memory(const struct cgroup_host *h, const struct cgroup *c, struct procfs_memory *ret)
{
	const bool v2 = h->version == 2;
	const struct {
		const char *v1, *v2;
		uint64_t *to;
	} parts[] = {
		{ "total_rss", "anon", &ret->anon },
		{ "total_cache", "file", &ret->cache },
		{ "total_shmem", "shmem", &ret->shmem },
		{ "total_mapped_file", "file_mapped", &ret->mapped },
		{ "total_dirty", "file_dirty", &ret->dirty },
		{ "total_writeback", "file_writeback", &ret->writeback },
		{ "total_active_anon", "active_anon", &ret->active_anon },
		{ "total_inactive_anon", "inactive_anon", &ret->inactive_anon },
		{ "total_active_file", "active_file", &ret->active_file },
		{ "total_inactive_file", "inactive_file", &ret->inactive_file },
		{ NULL, "slab", &ret->slab },
		{ NULL, "slab_reclaimable", &ret->slab_reclaimable },
	};
	char path[96], text[8 * KIB];

	if (!(c->mask & CGROUP_BIT(CGROUP_MEMORY)))
		return;
	ret->used = number(h, c, CGROUP_MEMORY, v2 ? "memory.current" : "memory.usage_in_bytes");
	snprintf(path, sizeof(path), "%s/memory.stat", c->name);
	if (fd_get(h->base[v2 ? 0 : CGROUP_MEMORY], path, text, sizeof(text)) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (v2 || parts[i].v1)
			cgroup_parse_kv(text, v2 ? parts[i].v2 : parts[i].v1, parts[i].to);
}

void shown_average(uint32_t load[3], uint32_t active, uint64_t periods)
{
	static const uint32_t keep[3] = { 1884, 2014, 2037 }; /* of SHOWN_FIXED: e to the power of -5/60, -5/300, -5/900 */

	for (unsigned p = 0; p < (periods < PERIODS_MAX ? periods : PERIODS_MAX); p++)
		for (unsigned i = 0; i < 3; i++) {
			uint64_t sum = (uint64_t)load[i] * keep[i] + (uint64_t)active * (SHOWN_FIXED - keep[i]);

			/* As the kernel does: what rises gets to the top, what falls to 0. */
			load[i] = (uint32_t)((sum + (active >= load[i] ? SHOWN_FIXED - 1 : 0)) / SHOWN_FIXED);
		}
}

/*
 * The kernel's own averages are of tasks that run or wait for a processor, and no group counts those. These are of processors that were in use.
 */
static void show_load(struct shown *v, const struct cgroup_host *h, const struct cgroup *c, uint64_t cpu, uint64_t now)
{
	const uint64_t periods = (now - v->load_ns) / LOAD_NS, used = cpu > v->load_cpu ? cpu - v->load_cpu : 0;
	const uint64_t active = used * SHOWN_FIXED * 1000 / (now - v->load_ns);
	unsigned long long tasks;
	unsigned parts[6];
	char text[96];
	int n;

	v->load_ns = now;
	v->load_cpu = cpu;
	if (!v->begun) { /* what it used before we looked */
		v->begun = true;
		return;
	}
	if (!active && !v->load[0] && !v->load[1] && !v->load[2])
		return; /* it says so already */
	shown_average(v->load, (uint32_t)active, periods);
	for (unsigned i = 0; i < 3; i++) {
		const uint32_t hundredths = (v->load[i] * 100 + SHOWN_FIXED / 2) / SHOWN_FIXED;

		parts[2 * i] = hundredths / 100;
		parts[2 * i + 1] = hundredths % 100;
	}
	tasks = c->mask & CGROUP_BIT(CGROUP_PIDS) ? number(h, c, CGROUP_PIDS, "pids.current") : 1;
	n = snprintf(text, sizeof(text), "%u.%02u %u.%02u %u.%02u %llu/%llu %llu\n", parts[0], parts[1], parts[2], parts[3], parts[4], parts[5],
		     1 + (unsigned long long)active / SHOWN_FIXED, tasks, tasks);
	shown_write(v->writable, "loadavg", text, (size_t)n);
}

/* What does not run takes no memory. */
static bool memory_is_due(const struct shown *v, uint64_t cpu, uint64_t now)
{
	return (cpu != v->memory_cpu || !v->counted) && now - v->memory_ns >= SHOWN_MS * 1000000ULL;
}

bool shown_is_due(const struct shown *v, uint64_t cpu)
{
	const uint64_t now = clock_mono_ns();

	return v->live && (now - v->load_ns >= LOAD_NS || memory_is_due(v, cpu, now));
}

void shown_tick(struct shown *v, const struct cgroup_host *h, const struct cgroup *c, uint64_t limit, uint64_t cpu)
{
	const uint64_t now = clock_mono_ns();

	if (v->writable < 0 || !v->live)
		return;
	if (now - v->load_ns >= LOAD_NS)
		show_load(v, h, c, cpu, now);
	if (memory_is_due(v, cpu, now)) {
		struct procfs_memory m = { .limit = limit };
		char text[PROCFS_MAX];

		v->memory_ns = now;
		v->memory_cpu = cpu;
		shown_memory(h, c, &m);
		shown_write(v->writable, "meminfo", text, procfs_meminfo(text, sizeof(text), &m));
	}
}
