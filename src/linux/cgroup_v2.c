/*
 * Version 2: a group is one folder, and a folder hands controllers to its children only if it has no members itself
 * (the real top of the hierarchy excepted). All of it goes through ->base[0] and ->dir[0].
 */
#include "linux/cgroup_impl.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/cgroup_parse.h"

static const struct {
	const char *name, *enable;
	unsigned bit;
} offers[] = {
	{ "memory", "+memory", CGROUP_BIT(CGROUP_MEMORY) },
	{ "pids", "+pids", CGROUP_BIT(CGROUP_PIDS) },
	{ "cpu", "+cpu", CGROUP_BIT(CGROUP_CPU) },
	{ "io", "+io", CGROUP_BIT(CGROUP_IO) },
};
#define RECYCLE_PEAK (16 * MIB)
#define RECYCLE_HELD (2 * MIB) /* by the kernel, whose own memory counts here */
#define RECYCLE_ROUNDS 7
#define LIMITING (CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_CPU))

static unsigned read_list(int dir, const char *file)
{
	unsigned mask = 0;
	char text[512];

	if (fd_get(dir, file, text, sizeof(text)) < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(offers); i++)
		if (cgroup_parse_has(text, offers[i].name))
			mask |= offers[i].bit;
	return mask;
}

/* Only the real top of the hierarchy has no type; there, members do not prevent handing out controllers. */
static bool has_members_in_the_way(int dir)
{
	char text[64];
	ssize_t n;

	if (fd_get(dir, "cgroup.type", text, sizeof(text)) == -ENOENT)
		return false;
	n = fd_get(dir, "cgroup.procs", text, sizeof(text));
	return n > 0 || n == -EFBIG;
}

/*
 * Hands out each controller by itself, so that one that fails does not prevent the others. -EBUSY when the group has
 * members. That is checked first: the kernel would hand out pids and cpu, but as a threaded group, whose children then
 * accept no processes, and no member could be moved down any more.
 */
static int enable(int dir)
{
	const unsigned want = read_list(dir, "cgroup.controllers") & ~read_list(dir, "cgroup.subtree_control");
	int r = 0;

	if (want && has_members_in_the_way(dir))
		return -EBUSY;
	for (size_t i = 0; i < ARRAY_LEN(offers); i++)
		if (want & offers[i].bit && fd_put(dir, "cgroup.subtree_control", offers[i].enable) == -EBUSY)
			r = -EBUSY;
	return r;
}

/* Moves everyone in @dir, us included, one step down. A few rounds, since members may fork meanwhile. */
static void step_down(int dir)
{
	AUTO_CLOSE int self = -1;
	int r;

	r = sys_mkdirat(dir, CGROUP_SELF, 0755);
	if (r < 0 && r != -EEXIST)
		return;
	self = sys_openat(dir, CGROUP_SELF, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	for (unsigned round = 0; self >= 0 && round < 8; round++) {
		char text[4 * KIB], pid[24];
		pid_t list[1024];
		size_t n;

		if (fd_get(dir, "cgroup.procs", text, sizeof(text)) < 0)
			return;
		n = cgroup_parse_pids(text, strlen(text), list, ARRAY_LEN(list));
		if (!n)
			return;
		for (size_t i = 0; i < n; i++) {
			if (list[i] <= 0)
				continue;
			cgroup_text_u64(pid, (uint64_t)list[i]);
			fd_put(self, "cgroup.procs", pid);
		}
	}
}

/* The base folder in the group @path. What can be limited there goes to *have. fd or -errno. */
static int open_in(const char *path, const char *base, bool own, unsigned *have)
{
	AUTO_CLOSE int top = -1, test = -1, fd = -1;

	top = sys_openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (top < 0)
		return top;
	test = sys_openat(top, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC, 0);
	if (test < 0)
		return test;
	if (enable(top) == -EBUSY && own) {
		step_down(top);
		enable(top);
	}
	fd = cgroup_base_open(path, base, "cgroup.procs");
	if (fd < 0)
		return fd;
	enable(fd);
	*have = read_list(fd, "cgroup.subtree_control");
	return TAKE_FD(fd);
}

/* Where we are below the mount; the folder that an earlier run of ours moved us to does not count. */
static int own_below(const struct cgroup_seen *seen, const struct cgroup_mount *m, char *ret, size_t size)
{
	char own[CGROUP_PATH_MAX];
	const char *below;
	char *last;
	int r;

	r = cgroup_parse_own(seen->own, "", own, sizeof(own));
	if (r < 0)
		return r;
	below = cgroup_parse_below(m->root, own);
	if (!below)
		return -EXDEV;
	snprintf(ret, size, "%s", below);
	last = strrchr(ret, '/');
	if (last && !strcmp(last + 1, CGROUP_SELF))
		*last = '\0';
	return 0;
}

void cgroup_v2_take(struct cgroup_host *h, const struct cgroup_seen *seen, const struct cgroup_mount *m)
{
	AUTO_CLOSE int top = -1, mine = -1, swap = -1;
	char below[CGROUP_PATH_MAX], path[2 * CGROUP_PATH_MAX];
	const bool known = !own_below(seen, m, below, sizeof(below));
	unsigned top_have = 0, my_have = 0;

	h->version = 2;
	top = open_in(m->point, seen->base, known && !below[0], &top_have);
	if (!(top_have & LIMITING) && known && below[0]) {
		snprintf(path, sizeof(path), "%s%s", m->point, below);
		mine = open_in(path, seen->base, true, &my_have);
	}
	if (mine >= 0 && (top < 0 || my_have & LIMITING)) {
		h->base[0] = TAKE_FD(mine);
		h->have = my_have;
	} else if (top >= 0) {
		h->base[0] = TAKE_FD(top);
		h->have = top_have;
	} else {
		return;
	}
	/* Every group counts CPU time and can be frozen, without a controller. */
	h->have |= CGROUP_BIT(CGROUP_CPUACCT) | CGROUP_BIT(CGROUP_FREEZER);
	swap = sys_openat(h->base[0], "memory.swap.max", O_WRONLY | O_CLOEXEC, 0);
	h->swap_accounted = swap != -ENOENT; /* if it exists and cannot be opened, setting the limit reports that */
	cgroup_weigh(h->base[0], "cpu.weight", 100, 10000);
}

static int make(const struct cgroup_host *h, const char *name, unsigned mask, struct cgroup *c)
{
	int r;

	(void)mask;
	r = sys_mkdirat(h->base[0], name, 0755);
	if (r < 0)
		return r;
	c->dir[0] = sys_openat(h->base[0], name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (c->dir[0] >= 0)
		return 0;
	sys_unlinkat(h->base[0], name, AT_REMOVEDIR);
	return c->dir[0];
}

static int limit_memory(const struct cgroup_host *h, const struct cgroup *c, uint64_t bytes, struct err *e)
{
	char text[24];
	int r = 0;

	cgroup_text_u64(text, bytes);
	if (h->swap_accounted)
		r = fd_put(c->dir[0], "memory.swap.max", "0");
	if (!r)
		r = fd_put(c->dir[0], "memory.max", text);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "memory limit: write memory.max") : 0;
}

static int limit_cpu(const struct cgroup *c, uint32_t milli, struct err *e)
{
	/* A quota is at least 1000 µs: a smaller share needs a longer period to be kept exactly. */
	const uint64_t period = milli < 10 ? 1000000 : 100000;
	char text[48], *p;
	int r;

	p = cgroup_text_u64(text, period * milli / 1000);
	*p++ = ' ';
	cgroup_text_u64(p, period);
	r = fd_put(c->dir[0], "cpu.max", text);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "CPU limit: write cpu.max") : 0;
}

static int limit_io(const struct cgroup *c, const struct cgroup_limits *l, struct err *e)
{
	for (unsigned i = 0; i < l->io_ndevs; i++) {
		char text[96], *p;
		int r;

		p = cgroup_text_u64(text, l->io_dev[i].major);
		*p++ = ':';
		p = cgroup_text_u64(p, l->io_dev[i].minor);
		memcpy(p, " rbps=", 6);
		p = cgroup_text_u64(p + 6, l->io_bps);
		memcpy(p, " wbps=", 6);
		cgroup_text_u64(p + 6, l->io_bps);
		r = fd_put(c->dir[0], "io.max", text);
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "disk bandwidth limit: device %u:%u", l->io_dev[i].major,
				       l->io_dev[i].minor);
	}
	return 0;
}

static int get_kv(int dir, const char *file, const char *key, uint64_t *ret)
{
	char text[8 * KIB];
	ssize_t n = fd_get(dir, file, text, sizeof(text));

	return n < 0 ? (int)n : cgroup_parse_kv(text, key, ret);
}

static int stat_memory(int dir, struct cgroup_stat *s)
{
	unsigned long long v;
	int r;

	r = fd_get_u64(dir, "memory.current", &v);
	if (r < 0)
		return r;
	s->memory = v;
	r = fd_get_u64(dir, "memory.peak", &v); /* since 5.19 */
	if (r < 0 && r != -ENOENT)
		return r;
	s->memory_peak = r < 0 ? 0 : v;
	r = get_kv(dir, "memory.stat", "shmem", &s->memory_files);
	if (!r)
		r = get_kv(dir, "memory.events", "oom_kill", &s->oom_kills);
	return r;
}

static int stat_cpu(const struct cgroup *c, struct cgroup_stat *s)
{
	char text[2 * KIB];
	ssize_t n;
	int r;

	n = fd_get(c->dir[0], "cpu.stat", text, sizeof(text));
	if (n < 0)
		return (int)n;
	r = cgroup_parse_kv(text, "usage_usec", &s->cpu_usec);
	if (!r && c->mask & CGROUP_BIT(CGROUP_CPU))
		r = cgroup_parse_kv(text, "throttled_usec", &s->throttled_usec);
	return r;
}

static int stat(const struct cgroup *c, struct cgroup_stat *s)
{
	char text[8 * KIB];
	int r = 0;

	if (c->mask & CGROUP_BIT(CGROUP_MEMORY))
		r = stat_memory(c->dir[0], s);
	if (!r && c->mask & (CGROUP_BIT(CGROUP_CPU) | CGROUP_BIT(CGROUP_CPUACCT)))
		r = stat_cpu(c, s);
	if (!r && c->mask & CGROUP_BIT(CGROUP_IO)) {
		ssize_t n = fd_get(c->dir[0], "io.stat", text, sizeof(text));

		if (n < 0)
			return (int)n;
		s->io_bytes = cgroup_parse_io_stat(text);
	}
	return r;
}

static int event(const struct cgroup *c, const char *key)
{
	uint64_t v = 0;
	int r = get_kv(c->dir[0], "cgroup.events", key, &v);

	return r < 0 ? r : v != 0;
}

static int freeze(const struct cgroup *c)
{
	int r = fd_put(c->dir[0], "cgroup.freeze", "1");

	return r < 0 ? r : event(c, "frozen");
}

static int thaw(const struct cgroup *c)
{
	return fd_put(c->dir[0], "cgroup.freeze", "0");
}

static int kill_round(const struct cgroup *c)
{
	int r = event(c, "populated");

	if (r <= 0)
		return r == -ENOENT || r == -ENODEV || !r ? 1 : r;
	r = fd_put(c->dir[0], "cgroup.kill", "1");
	if (r == -ENOENT) { /* before 5.14 */
		r = cgroup_kill_members(c->dir[0]);
		return r < 0 ? r : 0; /* members of child groups are not listed here, so "populated" is read again */
	}
	return r < 0 ? r : 0;
}

/*
 * Not every kernel can reset the peak of memory, and those that can do it for one open file only. So a group is used again
 * if its peak is one that any sandbox reaches. CPU time is subtracted instead. The bytes of block I/O are neither.
 */
static int recycle(struct cgroup *c)
{
	unsigned long long now = 0, peak = 0;
	struct cgroup_stat s = { 0 };
	uint64_t killed = 0;
	char text[256];
	ssize_t n = fd_get(c->dir[0], "cgroup.events", text, sizeof(text));
	int r = n < 0 ? (int)n : 0;

	if (n >= 0 && (!strstr(text, "populated 0") || !strstr(text, "frozen 0")))
		return -EBUSY;
	if (!r && c->mask & CGROUP_BIT(CGROUP_MEMORY)) {
		r = get_kv(c->dir[0], "memory.events", "oom_kill", &killed);
		/* What is freed after the kernel's next grace period still counts. */
		for (unsigned round = 0; !r && round < RECYCLE_ROUNDS; round++) {
			r = fd_get_u64(c->dir[0], "memory.current", &now);
			if (now <= RECYCLE_HELD)
				break;
			cgroup_wait_a_little(round);
		}
		if (!r)
			r = fd_get_u64(c->dir[0], "memory.peak", &peak); /* since 5.19 */
		r = r == -ENOENT ? 0 : r;
	}
	if (!r)
		r = stat_cpu(c, &s);
	if (!r && (killed || now > RECYCLE_HELD || peak > RECYCLE_PEAK || c->mask & CGROUP_BIT(CGROUP_IO)))
		return -EBUSY;
	c->cpu_base = s.cpu_usec;
	c->throttled_base = s.throttled_usec;
	return r;
}

const struct cgroup_ops cgroup_v2_ops = {
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
