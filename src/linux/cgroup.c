/* Makes, limits, reads, freezes and removes control groups. */
#include "linux/cgroup.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "linux/cgroup_impl.h"
#include "linux/cgroup_parse.h"

#include <dirent.h>
#include <time.h>
#include <unistd.h>

#define LIMITING (CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_CPU))
#define FREEZE_MS 2000
#define KILL_MS 10000
#define DEPTH_MAX 32
#define RECYCLE_PIDS 8

/* What a controller is called by the kernel, by us, and which option lifts its limit. */
static const struct {
	const char *v1, *v2, *what, *lift;
} controllers[CGROUP_CONTROLLERS] = {
	[CGROUP_MEMORY] = { "memory", "memory", "memory limit", "--memory 0" },
	[CGROUP_PIDS] = { "pids", "pids", "process limit", "--pids 0" },
	[CGROUP_CPU] = { "cpu", "cpu", "CPU limit", "--cpus 0" },
	[CGROUP_CPUACCT] = { "cpuacct", "cpu", "CPU accounting", "leave out CPU times" },
	[CGROUP_FREEZER] = { "freezer", "freezer", "pausing", "leave out pausing" },
	[CGROUP_IO] = { "blkio", "io", "disk bandwidth limit", "--io-bps 0" },
};

static const struct cgroup_ops *ops_of(const struct cgroup_host *h)
{
	return h->version == 2 ? &cgroup_v2_ops : &cgroup_v1_ops;
}

static int dir_of(const struct cgroup_host *h, const struct cgroup *c, enum cgroup_controller id)
{
	return c->dir[h->version == 2 ? 0 : id];
}

bool cgroup_fd_again(const int *fds, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (fds[j] == fds[i])
			return true;
	return false;
}

static void close_once(int *fds)
{
	for (unsigned i = CGROUP_CONTROLLERS; i-- > 0;) {
		if (!cgroup_fd_again(fds, i))
			fd_close(fds[i]);
		fds[i] = -1;
	}
}

char *cgroup_text_u64(char *p, uint64_t v)
{
	char digits[20];
	size_t n = 0;

	do {
		digits[n++] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	while (n)
		*p++ = digits[--n];
	*p = '\0';
	return p;
}

void cgroup_wait_a_little(unsigned round)
{
	const long ns = round < 8 ? 20000L << round : 5000000L;

	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static uint64_t deadline_ms(unsigned ms)
{
	return clock_mono_ns() + ms * 1000000ULL;
}

/* Discovery */

void cgroup_host_init(struct cgroup_host *h)
{
	*h = (struct cgroup_host){ .version = 1, .root = geteuid() == 0 };
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		h->base[i] = -1;
}

void cgroup_host_done(struct cgroup_host *h)
{
	if (!h)
		return;
	close_once(h->base);
	h->have = 0;
}

int cgroup_base_open(const char *path, const char *base, const char *probe)
{
	const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
	char full[CGROUP_PATH_MAX * 2 + 64];
	AUTO_CLOSE int fd = -1, test = -1;
	bool made = false;
	int n, r;

	n = snprintf(full, sizeof(full), "%s/%s", path, base);
	if (n < 0 || (size_t)n >= sizeof(full))
		return -ENAMETOOLONG;
	fd = sys_openat(AT_FDCWD, full, flags, 0);
	if (fd == -ENOENT) {
		r = sys_mkdirat(AT_FDCWD, full, 0755);
		if (r < 0 && r != -EEXIST)
			return r;
		made = !r;
		fd = sys_openat(AT_FDCWD, full, flags, 0);
	}
	if (fd >= 0)
		test = sys_openat(fd, probe, O_WRONLY | O_CLOEXEC, 0);
	if (test >= 0)
		return TAKE_FD(fd);
	if (made)
		sys_unlinkat(AT_FDCWD, full, AT_REMOVEDIR);
	return fd < 0 ? fd : test;
}

/* mountinfo has no upper size, so it is read line by line; a line longer than the buffer is none of ours. */
static int each_mount(void (*fn)(const struct cgroup_mount *m, void *arg), void *arg)
{
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, "/proc/self/mountinfo", O_RDONLY | O_CLOEXEC, 0);
	struct cgroup_mount m;
	char buf[3 * CGROUP_PATH_MAX];
	size_t have = 0;
	bool skip = false;

	if (fd < 0)
		return fd;
	for (;;) {
		ssize_t n = sys_read(fd, buf + have, sizeof(buf) - have);
		char *line = buf, *end;

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		have += (size_t)n;
		while ((end = memchr(line, '\n', have))) {
			const size_t len = (size_t)(end - line);

			if (!skip && cgroup_parse_mount(line, len, &m) == 1)
				fn(&m, arg);
			skip = false;
			have -= len + 1;
			line = end + 1;
		}
		if (have == sizeof(buf)) {
			skip = true;
			have = 0;
		}
		memmove(buf, line, have);
	}
}

struct scan {
	struct cgroup_seen seen;
	struct cgroup_host v1;
	struct cgroup_mount v2;
};

static void scan_mount(const struct cgroup_mount *m, void *arg)
{
	struct scan *s = arg;

	if (m->version == 1)
		cgroup_v1_take(&s->v1, &s->seen, m);
	else if (!s->v2.version)
		s->v2 = *m;
}

void cgroup_weigh(int base, const char *file, unsigned usual, unsigned most)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned long long now;
	char text[24];

	if (cpus < 2 || fd_get_u64(base, file, &now) < 0 || now != usual)
		return;
	cgroup_text_u64(text, (uint64_t)cpus < most / usual ? usual * (uint64_t)cpus : most);
	fd_put(base, file, text);
}

int cgroup_host_join_cpu(const struct cgroup_host *h)
{
	return h->version == 1 && h->base[CGROUP_CPU] >= 0 ? fd_put(h->base[CGROUP_CPU], "tasks", "0") : -EOPNOTSUPP;
}

int cgroup_host_open_as(struct cgroup_host *ret, const char *base, struct err *e)
{
	char own[8 * KIB];
	struct scan s = { .seen = { .own = own, .base = base } };
	struct cgroup_host v2;
	ssize_t r;

	r = fd_get(AT_FDCWD, "/proc/self/cgroup", own, sizeof(own));
	if (r == -ENOENT)
		own[0] = '\0'; /* a kernel without control groups */
	else if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "read /proc/self/cgroup");
	cgroup_host_init(&s.v1);
	r = each_mount(scan_mount, &s);
	if (r < 0) {
		cgroup_host_done(&s.v1);
		return err_sys(e, ERR_INTERNAL, (int)r, "read /proc/self/mountinfo");
	}
	if (s.v2.version && (s.v1.have & LIMITING) != LIMITING) {
		cgroup_host_init(&v2);
		cgroup_v2_take(&v2, &s.seen, &s.v2);
		if (!s.v1.have || __builtin_popcount(v2.have & LIMITING) > __builtin_popcount(s.v1.have & LIMITING)) {
			cgroup_host_erase(&s.v1, base);
			cgroup_host_done(&s.v1);
			*ret = v2;
			return 0;
		}
		cgroup_host_erase(&v2, base);
		cgroup_host_done(&v2);
	}
	cgroup_v1_finish(&s.v1);
	*ret = s.v1;
	return 0;
}

int cgroup_host_open(struct cgroup_host *ret, struct err *e)
{
	return cgroup_host_open_as(ret, CGROUP_BASE, e);
}

int cgroup_host_erase(const struct cgroup_host *h, const char *base)
{
	int r = 0;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		AUTO_CLOSE int up = -1;
		int q;

		if (h->base[i] < 0 || cgroup_fd_again(h->base, i))
			continue;
		sys_unlinkat(h->base[i], CGROUP_KEY, AT_REMOVEDIR);
		up = sys_openat(h->base[i], "..", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		q = up < 0 ? up : sys_unlinkat(up, base, AT_REMOVEDIR);
		r = cgroup_first(r, q == -ENOENT ? 0 : q);
	}
	return r;
}

/* Why a controller is not there. Asked only on the way to an error, so it may look again. */

struct why {
	unsigned id;
	bool v1, v2;
};

static void why_mount(const struct cgroup_mount *m, void *arg)
{
	struct why *w = arg;

	if (m->version == 2)
		w->v2 = true;
	else if (m->controllers & CGROUP_BIT(w->id))
		w->v1 = true;
}

/* What to do without all the controllers of @lack, so that one try is enough. */
static void lift_text(unsigned lack, char *to, size_t size)
{
	const unsigned limits = lack & (LIMITING | CGROUP_BIT(CGROUP_IO));
	size_t n;

	if (!limits) {
		snprintf(to, size, "%s", controllers[__builtin_ctz(lack)].lift);
		return;
	}
	n = (size_t)snprintf(to, size, "remove the limit%s with", limits & (limits - 1) ? "s" : "");
	for (unsigned i = 0; i < CGROUP_CONTROLLERS && n < size; i++)
		if (limits & CGROUP_BIT(i))
			n += (size_t)snprintf(to + n, size - n, " %s", controllers[i].lift);
}

/* An error about the first controller of @lack. */
static int missing(const struct cgroup_host *h, unsigned lack, struct err *e)
{
	const unsigned id = (unsigned)__builtin_ctz(lack);
	const char *what = controllers[id].what;
	struct why w = { .id = id };
	char lift[128];

	lift_text(lack, lift, sizeof(lift));
	each_mount(why_mount, &w);
	if (h->have & CGROUP_BIT(id)) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "%s: the control group has no %s controller", what,
			controllers[id].v1);
		err_remedy(e, "%s", lift);
	} else if (w.v1) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			"%s: the %s controller is not available (no write access to cgroup v1 hierarchy '%s')", what,
			controllers[id].v1, controllers[id].v1);
		err_remedy(e, "%s, or %s",
			   h->root ? "mount it writable (in a container, as with --privileged)" : "run as root", lift);
	} else if (w.v2) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			"%s: the %s controller is not available (cgroup v2 does not delegate it to %s)", what,
			controllers[id].v2, h->root ? "the control groups of cloche" : "the current control group");
		if (!h->root)
			err_remedy(e, "run under `systemd-run --user --scope -p Delegate=yes`, or %s", lift);
		else
			err_remedy(e, "enable it in the kernel (cgroup.controllers of the root group), or %s", lift);
	} else {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			"%s: the %s controller is not available (cgroup v1 hierarchy '%s' is not mounted)", what,
			controllers[id].v1, controllers[id].v1);
		err_remedy(e, "mount it, or %s", lift);
	}
	return -EOPNOTSUPP;
}

/* Groups */

static bool name_ok(const char *name)
{
	const size_t n = strlen(name);

	return n > 0 && n < sizeof(((struct cgroup *)NULL)->name) && name[0] != '.' && !strpbrk(name, "/\n") &&
	       strcmp(name, CGROUP_KEY);
}

void cgroup_init(struct cgroup *c)
{
	*c = (struct cgroup){ 0 };
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		c->dir[i] = c->join[i] = -1;
}

void cgroup_done(struct cgroup *c)
{
	if (!c)
		return;
	close_once(c->dir);
	fd_close_many(c->join, CGROUP_CONTROLLERS);
	c->njoin = 0;
}

void cgroup_park(struct cgroup *c)
{
	if (!c->mask)
		return;
	cgroup_done(c);
	c->parked = true;
}

int cgroup_unpark(const struct cgroup_host *h, const struct cgroup **c, struct cgroup *tmp)
{
	int r = 0;

	cgroup_init(tmp);
	if ((*c)->parked)
		r = cgroup_open(h, (*c)->name, (*c)->mask, tmp);
	if (r == 0 && (*c)->parked)
		*c = tmp;
	return r;
}

int cgroup_open(const struct cgroup_host *h, const char *name, unsigned mask, struct cgroup *ret)
{
	struct cgroup c;

	cgroup_init(&c);
	if (!name_ok(name))
		return -EINVAL;
	c.mask = mask;
	memcpy(c.name, name, strlen(name));
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		unsigned same = 0;
		int fd;

		if (h->base[i] < 0 || (h->version == 1 && !(mask & CGROUP_BIT(i))))
			continue;
		while (same < i && (h->base[same] != h->base[i] || c.dir[same] < 0))
			same++;
		fd = same < i ? c.dir[same] : sys_openat(h->base[i], name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		if (fd < 0) {
			cgroup_done(&c);
			return fd;
		}
		c.dir[i] = fd;
	}
	*ret = c;
	return 0;
}

static int stat_pids(int dir, struct cgroup_stat *s)
{
	unsigned long long v;
	char text[256];
	int r = fd_get_u64(dir, "pids.current", &v);
	ssize_t n;

	if (r < 0)
		return r;
	s->pids = v;
	r = fd_get_u64(dir, "pids.peak", &v); /* since 6.1 */
	if (r < 0 && r != -ENOENT)
		return r;
	s->pids_peak = r < 0 ? 0 : v;
	n = fd_get(dir, "pids.events", text, sizeof(text));
	return n < 0 ? (int)n : cgroup_parse_kv(text, "max", &s->pids_refused);
}

int cgroup_recycle(const struct cgroup_host *h, struct cgroup *c)
{
	struct cgroup_stat s = { 0 };
	int r;

	if (c->parked)
		return -EBUSY; /* a parked group cannot be joined */
	if (c->mask & CGROUP_BIT(CGROUP_PIDS)) {
		r = stat_pids(dir_of(h, c, CGROUP_PIDS), &s);
		if (r < 0)
			return r;
		/*
		 * Its peak cannot be reset, so a group is only used again if its peak is one that any sandbox
		 * reaches.
		 */
		if (s.pids || s.pids_refused || s.pids_peak > RECYCLE_PIDS)
			return -EBUSY;
	}
	return ops_of(h)->recycle(c);
}

int cgroup_make(const struct cgroup_host *h, const char *name, unsigned mask, struct cgroup *ret, struct err *e)
{
	struct cgroup c;
	int r;

	if (!name_ok(name))
		return err_set(e, ERR_INVALID, -EINVAL, "invalid name for a control group");
	if (mask & ~h->have)
		return missing(h, mask & ~h->have, e);
	cgroup_init(&c);
	c.mask = mask;
	memcpy(c.name, name, strlen(name));
	r = ops_of(h)->make(h, name, mask, &c);
	if (r < 0) {
		cgroup_done(&c);
		if (r == -EAGAIN || r == -ENOSPC) {
			err_sys(e, ERR_EXHAUSTED, r, "make control group '%s'", name);
			err_remedy(e, "use fewer sandboxes, or raise cgroup.max.descendants");
			return r;
		}
		return err_sys(e, r == -EEXIST ? ERR_CONFLICT : ERR_INTERNAL, r, "make control group '%s'", name);
	}
	*ret = c;
	return 0;
}

static int limit_pids(int dir, uint32_t pids, struct err *e)
{
	char text[24];
	int r;

	cgroup_text_u64(text, pids < CGROUP_PIDS_MOST ? pids : CGROUP_PIDS_MOST);
	r = fd_put(dir, "pids.max", text);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "process limit: write pids.max") : 0;
}

/* A memory limit that can be got around by swap is none. */
static int check_swap(const struct cgroup_host *h, struct err *e)
{
	char text[8 * KIB];
	ssize_t n;

	if (h->swap_accounted)
		return 0;
	n = fd_get(AT_FDCWD, "/proc/swaps", text, sizeof(text));
	if (n == -ENOENT || (n >= 0 && !cgroup_parse_swaps(text)))
		return 0;
	if (n < 0 && n != -EFBIG)
		return err_sys(e, ERR_INTERNAL, (int)n, "memory limit: read /proc/swaps");
	err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
		"memory limit: the host has swap, but its kernel does not count swap per control group");
	err_remedy(e, "boot with swapaccount=1, or run `swapoff -a`, or remove the limit with --memory 0");
	return -EOPNOTSUPP;
}

static int set_limits(const struct cgroup_host *h, const struct cgroup *c, const struct cgroup_limits *l, struct err *e)
{
	const struct cgroup_ops *ops = ops_of(h);
	const unsigned wanted = (l->memory ? CGROUP_BIT(CGROUP_MEMORY) : 0) | (l->pids ? CGROUP_BIT(CGROUP_PIDS) : 0) |
				(l->cpu_milli ? CGROUP_BIT(CGROUP_CPU) : 0) | (l->io_bps ? CGROUP_BIT(CGROUP_IO) : 0);
	int r = 0;

	assert(l->io_ndevs <= ARRAY_LEN(l->io_dev));
	if (wanted & ~c->mask)
		return missing(h, wanted & ~c->mask, e);
	if (l->io_bps && !l->io_ndevs) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			"disk bandwidth limit: the files of the sandbox are not on a block device");
		err_remedy(e, "keep its files on a disk, or remove the limit with %s", controllers[CGROUP_IO].lift);
		return -EOPNOTSUPP;
	}
	if (l->memory) {
		r = check_swap(h, e);
		if (r >= 0)
			r = ops->limit_memory(h, c, l->memory, e);
	}
	if (r >= 0 && l->pids)
		r = limit_pids(dir_of(h, c, CGROUP_PIDS), l->pids, e);
	if (r >= 0 && l->cpu_milli)
		r = ops->limit_cpu(c, l->cpu_milli < CGROUP_CPU_MILLI_MOST ? l->cpu_milli : CGROUP_CPU_MILLI_MOST, e);
	if (r >= 0 && l->io_bps)
		r = ops->limit_io(c, l, e);
	return r < 0 ? r : 0;
}

int cgroup_limit(const struct cgroup_host *h, const struct cgroup *c, const struct cgroup_limits *l, struct err *e)
{
	AUTO(cgroup_done) struct cgroup tmp;
	int r = cgroup_unpark(h, &c, &tmp);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "open control group '%s'", c->name) : set_limits(h, c, l, e);
}

int cgroup_stat(const struct cgroup_host *h, const struct cgroup *c, struct cgroup_stat *ret)
{
	const struct cgroup *own = c;
	AUTO(cgroup_done) struct cgroup tmp;
	struct cgroup_stat s = { 0 };
	int r = cgroup_unpark(h, &c, &tmp);

	if (!r)
		r = ops_of(h)->stat(c, &s);
	s.cpu_usec -= s.cpu_usec < own->cpu_base ? s.cpu_usec : own->cpu_base;
	s.throttled_usec -= s.throttled_usec < own->throttled_base ? s.throttled_usec : own->throttled_base;
	if (!r && c->mask & CGROUP_BIT(CGROUP_PIDS))
		r = stat_pids(dir_of(h, c, CGROUP_PIDS), &s);
	/* The kernel counts a refused fork where it was tried: version 1 always, version 2 before 6.11. */
	if (!r && c->mask & CGROUP_BIT(CGROUP_PIDS))
		r = cgroup_children_refused(h, c, &s.pids_refused);
	if (!r)
		*ret = s;
	return r;
}

int cgroup_freeze(const struct cgroup_host *h, const struct cgroup *c, struct err *e)
{
	const uint64_t until = deadline_ms(FREEZE_MS);
	AUTO(cgroup_done) struct cgroup tmp;
	int r = cgroup_unpark(h, &c, &tmp);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "open control group '%s'", c->name);
	if (!(c->mask & CGROUP_BIT(CGROUP_FREEZER)))
		return missing(h, CGROUP_BIT(CGROUP_FREEZER), e);
	for (unsigned round = 0;; round++) {
		r = ops_of(h)->freeze(c);
		if (r > 0)
			return 0;
		if (!r && clock_mono_ns() > until)
			r = -ETIMEDOUT;
		if (r < 0) {
			ops_of(h)->thaw(c);
			if (r != -ETIMEDOUT)
				return err_sys(e, ERR_INTERNAL, r, "freeze control group '%s'", c->name);
			/*
			 * Processes are thawed and run again. The caller may retry: the failure is final for this call
			 * only.
			 */
			err_set(e, ERR_REFUSED, r, "a process cannot be stopped: the kernel was busy with it for %d s",
				FREEZE_MS / 1000);
			err_remedy(e, "try again when the process no longer waits for a disk or a file system");
			return r;
		}
		cgroup_wait_a_little(round);
	}
}

int cgroup_thaw(const struct cgroup_host *h, const struct cgroup *c, struct err *e)
{
	AUTO(cgroup_done) struct cgroup tmp;
	int r = cgroup_unpark(h, &c, &tmp);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "open control group '%s'", c->name);
	if (!(c->mask & CGROUP_BIT(CGROUP_FREEZER)))
		return missing(h, CGROUP_BIT(CGROUP_FREEZER), e);
	r = ops_of(h)->thaw(c);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "thaw control group '%s'", c->name) : 0;
}

/* Killing */

int cgroup_kill(const struct cgroup_host *h, const struct cgroup *c)
{
	AUTO(cgroup_done) struct cgroup tmp;
	int r = cgroup_unpark(h, &c, &tmp);
	const int pids = c->mask & CGROUP_BIT(CGROUP_PIDS) ? dir_of(h, c, CGROUP_PIDS) : -1;
	const uint64_t until = deadline_ms(KILL_MS);
	char max[32] = "";

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	for (unsigned round = 0;; round++) {
		r = ops_of(h)->kill(c);
		if (r)
			break;
		if (clock_mono_ns() > until) {
			r = -ETIMEDOUT;
			break;
		}
		/* A process that forks faster than it can be killed gets a limit of no more forks. */
		if (round == 2 && pids >= 0 && fd_get(pids, "pids.max", max, sizeof(max)) > 0)
			fd_put(pids, "pids.max", "0");
		cgroup_wait_a_little(round);
	}
	if (max[0])
		fd_put(pids, "pids.max", max);
	return r < 0 ? r : 0;
}

/* Removing and listing */

struct entry {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

int cgroup_each_folder(int dir, int (*fn)(int dir, const char *name, void *arg), void *arg)
{
	AUTO_CLOSE int fd = sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	_Alignas(struct entry) char buf[2 * KIB];

	if (fd < 0)
		return fd;
	for (;;) {
		ssize_t n = sys_getdents64(fd, buf, sizeof(buf));

		if (n <= 0)
			return (int)n;
		for (ssize_t at = 0; at < n;) {
			const struct entry *d = (const struct entry *)(const void *)(buf + at);
			int r;

			at += d->len;
			if (d->type != DT_DIR || !strcmp(d->name, ".") || !strcmp(d->name, ".."))
				continue;
			r = fn(dir, d->name, arg);
			if (r)
				return r;
		}
	}
}

int cgroup_remove_tree(int dir, const char *name, void *arg)
{
	unsigned depth = *(unsigned *)arg + 1;
	AUTO_CLOSE int fd = -1;
	int r, q;

	r = sys_unlinkat(dir, name, AT_REMOVEDIR);
	if (r == -ENOENT)
		return 0;
	if (r != -EBUSY || depth > DEPTH_MAX)
		return r;
	/* Members, or children: the kernel says the same for both. */
	fd = sys_openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	q = fd < 0 ? fd : cgroup_each_folder(fd, cgroup_remove_tree, &depth);
	if (q < 0 && q != -ENOENT)
		return q;
	r = sys_unlinkat(dir, name, AT_REMOVEDIR);
	return r == -ENOENT ? 0 : r;
}

int cgroup_remove(const struct cgroup_host *h, const char *name, unsigned mask)
{
	int r = 0;

	if (!name_ok(name))
		return -EINVAL;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		unsigned depth = 0, earlier = 0;

		if (h->base[i] < 0 || (h->version == 1 && !(mask & CGROUP_BIT(i))))
			continue;
		for (unsigned j = 0; j < i; j++)
			if (h->base[j] == h->base[i] && mask & CGROUP_BIT(j))
				earlier++;
		if (!earlier)
			r = cgroup_first(r, cgroup_remove_tree(h->base[i], name, &depth));
	}
	return r;
}

int cgroup_remove_wait(const struct cgroup_host *h, const char *name, unsigned mask, unsigned ms, struct err *e)
{
	const uint64_t until = deadline_ms(ms);

	for (unsigned round = 0;; round++) {
		int r = cgroup_remove(h, name, mask);

		if (!r)
			return 0;
		if (r != -EBUSY)
			return err_sys(e, ERR_INTERNAL, r, "remove control group '%s'", name);
		if (clock_mono_ns() > until)
			return err_set(e, ERR_TIMEOUT, r,
				       "remove control group '%s': a process is still in it after %u ms", name, ms);
		cgroup_wait_a_little(round);
	}
}

struct each {
	const struct cgroup_host *h;
	unsigned at;
	int (*fn)(const char *name, void *arg);
	void *arg;
};

static int each_group(int dir, const char *name, void *arg)
{
	const struct each *x = arg;

	(void)dir;
	if (!strcmp(name, CGROUP_KEY))
		return 0;
	for (unsigned i = 0; i < x->at; i++) {
		AUTO_CLOSE int fd = -1;

		if (x->h->base[i] < 0)
			continue;
		fd = sys_openat(x->h->base[i], name, O_PATH | O_CLOEXEC, 0);
		if (fd >= 0)
			return 0; /* found in that hierarchy before */
	}
	return x->fn(name, x->arg);
}

int cgroup_each(const struct cgroup_host *h, int (*fn)(const char *name, void *arg), void *arg)
{
	struct each x = { .h = h, .fn = fn, .arg = arg };

	for (x.at = 0; x.at < CGROUP_CONTROLLERS; x.at++) {
		int r;

		if (h->base[x.at] < 0 || cgroup_fd_again(h->base, x.at))
			continue;
		r = cgroup_each_folder(h->base[x.at], each_group, &x);
		if (r)
			return r;
	}
	return 0;
}

void cgroup_where(const int *join, unsigned n, char *ret, size_t size)
{
	size_t used = 0;

	ret[0] = '\0';
	for (unsigned i = 0; i < n; i++) {
		char link[32];
		ssize_t len;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", join[i]);
		len = readlink(link, ret + used, size - used);
		if (len <= 0 || used + (size_t)len + 1 >= size) {
			ret[used] = '\0';
			return;
		}
		used += (size_t)len;
		ret[used++] = '\n';
		ret[used] = '\0';
	}
}

int cgroup_join_self(const int *join, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		ssize_t r;

		do {
			r = sys_write(join[i], "0", 1);
		} while (r == -EINTR);
		if (r < 0)
			return (int)r;
	}
	return 0;
}
