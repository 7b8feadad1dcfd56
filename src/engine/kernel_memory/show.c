/* Writes what a sandbox is shown of its memory and load. */
#include "engine/kernel_memory/show.h"
#include "base/base.h"
#include "base/clock.h"
#include "engine/image/procfs.h"
#include "engine/rootfs/shown.h"
#include "linux/cgroup_parse.h"

#define LOAD_NS (SHOW_LOAD_S * 1000000000ULL)
#define PERIODS_MAX 2000U /* after these the longest average has forgotten all that was before */

void show_init(struct show *v, const struct cgroup_host *h, const struct cgroup *c)
{
	*v = (struct show){ .meminfo = -1,
			    .loadavg = -1,
			    .load_ns = clock_mono_ns(),
			    .counted = h->version == 2 || c->mask & CGROUP_BIT(CGROUP_CPUACCT) };
}

void show_done(struct show *v)
{
	fd_close(TAKE_FD(v->meminfo));
	fd_close(TAKE_FD(v->loadavg));
}

static uint64_t number(const struct cgroup_host *h, const struct cgroup *c, enum cgroup_controller id, const char *name)
{
	unsigned long long n = 0;
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", c->name, name);
	return fd_get_u64(h->base[h->version == 2 ? 0 : id], path, &n) < 0 ? 0 : n;
}

static void read_memory(const struct cgroup_host *h, const struct cgroup *c, struct procfs_memory *ret)
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

void show_average(uint32_t load[3], uint32_t active, uint64_t periods)
{
	/* of SHOW_FIXED: e to the power of -5/60, -5/300, -5/900 */
	static const uint32_t keep[3] = { 1884, 2014, 2037 };

	for (unsigned p = 0; p < (periods < PERIODS_MAX ? periods : PERIODS_MAX); p++)
		for (unsigned i = 0; i < 3; i++) {
			uint64_t sum = (uint64_t)load[i] * keep[i] + (uint64_t)active * (SHOW_FIXED - keep[i]);

			/* As the kernel does: what rises gets to the top, what falls to 0. */
			load[i] = (uint32_t)((sum + (active >= load[i] ? SHOW_FIXED - 1 : 0)) / SHOW_FIXED);
		}
}

/*
 * The kernel's own averages are of tasks that run or wait for a processor, and no group counts those. These are of processors
 * that were in use.
 */
static void show_load(struct show *v, const struct cgroup_host *h, const struct cgroup *c, uint64_t cpu, uint64_t now)
{
	const uint64_t periods = (now - v->load_ns) / LOAD_NS,
		       used = v->begun && cpu > v->load_cpu ? cpu - v->load_cpu : 0;
	const uint64_t active = used * SHOW_FIXED * 1000 / (now - v->load_ns);
	unsigned long long tasks;
	unsigned parts[6];
	char text[96];
	int n;

	v->load_ns = now;
	v->load_cpu = cpu;
	/* At first what is there may be of an earlier process like this one. */
	if (v->begun && !active && !v->load[0] && !v->load[1] && !v->load[2])
		return;
	v->begun = true;
	show_average(v->load, (uint32_t)active, periods);
	for (unsigned i = 0; i < 3; i++) {
		const uint32_t hundredths = (v->load[i] * 100 + SHOW_FIXED / 2) / SHOW_FIXED;

		parts[2 * i] = hundredths / 100;
		parts[2 * i + 1] = hundredths % 100;
	}
	tasks = c->mask & CGROUP_BIT(CGROUP_PIDS) ? number(h, c, CGROUP_PIDS, "pids.current") : 1;
	n = snprintf(text, sizeof(text), "%u.%02u %u.%02u %u.%02u %llu/%llu %llu\n", parts[0], parts[1], parts[2],
		     parts[3], parts[4], parts[5], 1 + (unsigned long long)active / SHOW_FIXED, tasks, tasks);
	shown_rewrite(v->loadavg, text, (size_t)n);
}

void show_tick(struct show *v, const struct cgroup_host *h, const struct cgroup *c, uint64_t limit, uint64_t cpu)
{
	const uint64_t now = clock_mono_ns();

	if (v->meminfo < 0)
		return;
	if (now - v->load_ns >= LOAD_NS)
		show_load(v, h, c, cpu, now);
	/* What does not run takes no memory. */
	if ((cpu != v->memory_cpu || !v->counted) && now - v->memory_ns >= SHOW_MS * 1000000ULL) {
		struct procfs_memory m = { .limit = limit };
		char text[PROCFS_MAX];

		v->memory_ns = now;
		v->memory_cpu = cpu;
		read_memory(h, c, &m);
		shown_rewrite(v->meminfo, text, procfs_meminfo(text, sizeof(text), &m));
	}
}
