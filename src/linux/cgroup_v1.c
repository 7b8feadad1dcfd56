/*
 * Version 1: a group is one folder in each hierarchy, and a hierarchy may carry several controllers (cpu,cpuacct). Such
 * controllers share one descriptor in ->base and ->dir, so that folders are made, joined and removed once.
 */
#include "linux/cgroup_impl.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/cgroup_parse.h"

static const char *const names[CGROUP_CONTROLLERS] = {
	[CGROUP_MEMORY] = "memory",   [CGROUP_PIDS] = "pids",	    [CGROUP_CPU] = "cpu",
	[CGROUP_CPUACCT] = "cpuacct", [CGROUP_FREEZER] = "freezer", [CGROUP_IO] = "blkio",
};

/*
 * The first quota on a host switches scheduler code on, the last one to go switches it off, and each switch patches
 * the running kernel: milliseconds. One group that keeps a quota for good makes it happen once.
 */
static void keep_key(int base)
{
	if (sys_mkdirat(base, CGROUP_KEY, 0755) < 0)
		return;
	if (fd_put(base, CGROUP_KEY "/cpu.cfs_quota_us", "1000") < 0)
		sys_unlinkat(base, CGROUP_KEY, AT_REMOVEDIR); /* so that the next one tries again */
}

void cgroup_v1_take(struct cgroup_host *h, const struct cgroup_seen *seen, const struct cgroup_mount *m)
{
	const unsigned fresh = m->controllers & ~h->have;
	char own[CGROUP_PATH_MAX], path[2 * CGROUP_PATH_MAX];
	const char *below;
	int fd;

	/* A hierarchy mounted twice has all of its controllers in both. */
	if (!fresh || fresh != m->controllers)
		return;
	if (cgroup_parse_own(seen->own, names[__builtin_ctz(fresh)], own, sizeof(own)) < 0)
		return;
	/* In a container that sees only a part, our group may be named from outside: then the part's top is ours. */
	below = cgroup_parse_below(m->root, own);
	snprintf(path, sizeof(path), "%s%s", m->point, below ? below : "");
	fd = cgroup_base_open(path, seen->base, "tasks");
	if (fd < 0)
		return;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (fresh & CGROUP_BIT(i))
			h->base[i] = fd;
	h->have |= fresh;
}

void cgroup_v1_finish(struct cgroup_host *h)
{
	h->version = 1;
	if (h->have & CGROUP_BIT(CGROUP_MEMORY)) {
		AUTO_CLOSE int fd =
			sys_openat(h->base[CGROUP_MEMORY], "memory.memsw.limit_in_bytes", O_WRONLY | O_CLOEXEC, 0);

		h->swap_accounted = fd != -ENOENT; /* there, but not for us: then setting the limit says so */
	}
	if (h->have & CGROUP_BIT(CGROUP_CPU)) {
		cgroup_weigh(h->base[CGROUP_CPU], "cpu.shares", 1024, 262144);
		keep_key(h->base[CGROUP_CPU]);
	}
}

/* The place in ->dir that already has the folder of @i's hierarchy, or -1. */
static int shared_with(const struct cgroup_host *h, unsigned mask, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (mask & CGROUP_BIT(j) && h->base[j] == h->base[i])
			return (int)j;
	return -1;
}

static int make(const struct cgroup_host *h, const char *name, unsigned mask, struct cgroup *c)
{
	unsigned made = 0;
	int r = 0;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		int other;

		if (!(mask & CGROUP_BIT(i)))
			continue;
		other = shared_with(h, mask, i);
		if (other >= 0) {
			c->dir[i] = c->dir[other];
			continue;
		}
		r = sys_mkdirat(h->base[i], name, 0755);
		if (r < 0)
			goto undo;
		made |= CGROUP_BIT(i);
		r = c->dir[i] = sys_openat(h->base[i], name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		if (r < 0)
			goto undo;
		r = c->join[c->njoin] = sys_openat(c->dir[i], "tasks", O_WRONLY | O_CLOEXEC, 0);
		if (r < 0)
			goto undo;
		c->njoin++;
	}
	return 0;
undo:
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (made & CGROUP_BIT(i))
			sys_unlinkat(h->base[i], name, AT_REMOVEDIR);
	return r;
}

#define SOCKETS_SHARE 4 /* of the memory limit, on top of it */

/*
 * Version 1 does not count what waits in TCP and UDP sockets as memory, unless it has a limit of its own. Without one,
 * a sandbox of 128 MiB could hold gigabytes on its loopback interface, and bring the machine's own connections to the
 * limit that all network namespaces share (tcp_mem, udp_mem).
 */
static int limit_sockets(int dir, uint64_t bytes)
{
	char text[24];
	int r;

	cgroup_text_u64(text, bytes / SOCKETS_SHARE);
	r = fd_put(dir, "memory.kmem.tcp.limit_in_bytes", text);
	return r == -ENOENT ? 0 : r; /* a kernel without TCP */
}

/*
 * The kernel requires memory ≤ memory+swap after every step, so the order depends on whether the limit rises or
 * falls.
 */
static int limit_memory(const struct cgroup_host *h, const struct cgroup *c, uint64_t bytes, struct err *e)
{
	const char *const plain = "memory.limit_in_bytes", *const both = "memory.memsw.limit_in_bytes";
	const int dir = c->dir[CGROUP_MEMORY];
	char text[24];
	int r;

	cgroup_text_u64(text, bytes);
	r = fd_put(dir, plain, text);
	if (h->swap_accounted) {
		const bool raise = r == -EINVAL;

		if (!r || raise)
			r = fd_put(dir, both, text);
		if (!r && raise)
			r = fd_put(dir, plain, text);
	} else if (!r) {
		fd_put(dir, "memory.swappiness", "0"); /* no swap now; and should some be added, use none */
	}
	if (!r) {
		r = limit_sockets(dir, bytes);
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "memory limit: write memory.kmem.tcp.limit_in_bytes");
	}
	if (r == -EBUSY)
		return err_set(e, ERR_CONFLICT, r, "memory limit: more than %llu bytes are in use and cannot be freed",
			       (unsigned long long)bytes);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "memory limit: write memory.limit_in_bytes") : 0;
}

static int limit_cpu(const struct cgroup *c, uint32_t milli, struct err *e)
{
	/* A quota is at least 1000 µs: a smaller share needs a longer period to be kept exactly. */
	const uint64_t period = milli < 10 ? 1000000 : 100000;
	const int dir = c->dir[CGROUP_CPU];
	char text[24];
	int r;

	cgroup_text_u64(text, period);
	r = fd_put(dir, "cpu.cfs_period_us", text);
	if (!r) {
		cgroup_text_u64(text, period * milli / 1000);
		r = fd_put(dir, "cpu.cfs_quota_us", text);
	}
	/* With such numbers this means that a group above allows less than was asked. Then that is what holds. */
	if (r == -EINVAL)
		r = fd_put(dir, "cpu.cfs_quota_us", "-1");
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "CPU limit: write cpu.cfs_quota_us") : 0;
}

static int limit_io(const struct cgroup *c, const struct cgroup_limits *l, struct err *e)
{
	const int dir = c->dir[CGROUP_IO];

	for (unsigned i = 0; i < l->io_ndevs; i++) {
		char text[64], *p;
		int r;

		p = cgroup_text_u64(text, l->io_dev[i].major);
		*p++ = ':';
		p = cgroup_text_u64(p, l->io_dev[i].minor);
		*p++ = ' ';
		cgroup_text_u64(p, l->io_bps);
		r = fd_put(dir, "blkio.throttle.read_bps_device", text);
		if (!r)
			r = fd_put(dir, "blkio.throttle.write_bps_device", text);
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "disk bandwidth limit: device %u:%u", l->io_dev[i].major,
				       l->io_dev[i].minor);
	}
	return 0;
}

static int get(int dir, const char *file, uint64_t *ret)
{
	unsigned long long v;
	int r = fd_get_u64(dir, file, &v);

	if (!r)
		*ret = v;
	return r;
}

static int get_kv(int dir, const char *file, const char *key, uint64_t *ret)
{
	char text[8 * KIB];
	ssize_t n = fd_get(dir, file, text, sizeof(text));

	return n < 0 ? (int)n : cgroup_parse_kv(text, key, ret);
}

static int stat_memory(int dir, struct cgroup_stat *s)
{
	int r;

	r = get(dir, "memory.usage_in_bytes", &s->memory);
	if (!r)
		r = get(dir, "memory.max_usage_in_bytes", &s->memory_peak);
	if (!r)
		r = get_kv(dir, "memory.stat", "total_shmem", &s->memory_files);
	if (r == -ENOENT)
		r = get_kv(dir, "memory.stat", "shmem", &s->memory_files);
	if (!r)
		r = get_kv(dir, "memory.oom_control", "oom_kill", &s->oom_kills);
	return r;
}

static int stat(const struct cgroup *c, struct cgroup_stat *s)
{
	int r = 0;

	if (c->mask & CGROUP_BIT(CGROUP_MEMORY))
		r = stat_memory(c->dir[CGROUP_MEMORY], s);
	if (!r && c->mask & CGROUP_BIT(CGROUP_CPUACCT)) {
		r = get(c->dir[CGROUP_CPUACCT], "cpuacct.usage", &s->cpu_usec);
		s->cpu_usec /= 1000;
	}
	if (!r && c->mask & CGROUP_BIT(CGROUP_CPU)) {
		r = get_kv(c->dir[CGROUP_CPU], "cpu.stat", "throttled_time", &s->throttled_usec);
		s->throttled_usec /= 1000;
	}
	/* The recursive file, as the other controllers count what is below, too. */
	if (!r && c->mask & CGROUP_BIT(CGROUP_IO))
		r = get_kv(c->dir[CGROUP_IO], "blkio.throttle.io_service_bytes_recursive", "Total", &s->io_bytes);
	return r;
}

#define RECYCLE_MEMORY (1024 * KIB) /* what the kernel itself holds a little longer: 400 to 1000 KiB after pandas */

static int recycle(struct cgroup *c)
{
	uint64_t used = 0, oom = 0;
	int r = 0;

	if (c->mask & CGROUP_BIT(CGROUP_MEMORY)) {
		const int dir = c->dir[CGROUP_MEMORY];

		r = get_kv(dir, "memory.oom_control", "oom_kill", &oom);
		if (!r)
			r = get(dir, "memory.usage_in_bytes", &used);
		if (!r && (oom || used > RECYCLE_MEMORY))
			return -EBUSY;
		if (!r)
			r = fd_put(dir, "memory.max_usage_in_bytes", "0");
	}
	if (!r && c->mask & CGROUP_BIT(CGROUP_CPUACCT))
		r = fd_put(c->dir[CGROUP_CPUACCT], "cpuacct.usage", "0");
	/* The bytes of block I/O cannot be set back. */
	if (!r && c->mask & CGROUP_BIT(CGROUP_IO))
		r = -EBUSY;
	return r;
}

/*
 * Freezes the group. One that does not freeze at once (a task in fork, or stopped in an unusual place) needs a second
 * write.
 */
static int freeze(const struct cgroup *c)
{
	const int dir = c->dir[CGROUP_FREEZER];
	char text[32];
	ssize_t n;
	int r;

	r = fd_put(dir, "freezer.state", "FROZEN");
	if (r < 0)
		return r;
	n = fd_get(dir, "freezer.state", text, sizeof(text));
	return n < 0 ? (int)n : cgroup_parse_has(text, "FROZEN");
}

static int thaw(const struct cgroup *c)
{
	return fd_put(c->dir[CGROUP_FREEZER], "freezer.state", "THAWED");
}

/* In all hierarchies: a child that died while joining, or was held up, may be in some only. */
static int kill_round(const struct cgroup *c)
{
	int r = 1;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		int q;

		if (c->dir[i] < 0 || cgroup_fd_again(c->dir, i))
			continue;
		q = cgroup_kill_members(c->dir[i]);
		if (q <= 0 && r >= 0)
			r = q;
	}
	/* Frozen tasks die when they thaw. */
	if (r <= 0 && c->mask & CGROUP_BIT(CGROUP_FREEZER))
		thaw(c);
	return r;
}

const struct cgroup_ops cgroup_v1_ops = {
	.make = make,
	.limit_memory = limit_memory,
	.limit_cpu = limit_cpu,
	.limit_io = limit_io,
	.stat = stat,
	.freeze = freeze,
	.thaw = thaw,
	.kill = kill_round,
	.recycle = recycle,
};
