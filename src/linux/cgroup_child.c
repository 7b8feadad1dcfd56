/* Control groups inside a sandbox's own. */
#include "linux/cgroup.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/cgroup_impl.h"
#include "linux/cgroup_parse.h"

#include <sys/stat.h>

#define GONE_MS 100

/* @own: to be closed, where it had to be opened. */
static int parent_of(const struct cgroup_host *h, const struct cgroup *c, int *own)
{
	const unsigned at = h->version == 2 ? 0 : CGROUP_PIDS;

	if (h->version == 1 && !(c->mask & CGROUP_BIT(CGROUP_PIDS)))
		return -EOPNOTSUPP;
	if (c->parked)
		return *own = sys_openat(h->base[at], c->name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	return c->dir[at] >= 0 ? c->dir[at] : -EOPNOTSUPP;
}

/* "x<n>" and, if any, "/<file>". */
static void put_name(char *out, uint32_t n, const char *file)
{
	char *p = out;

	*p++ = 'x';
	p = cgroup_text_u64(p, n);
	if (!file)
		return;
	*p++ = '/';
	memcpy(p, file, strlen(file) + 1);
}

/*
 * Opens the file by which processes are moved into a group. Version 1 compares user ids and ignores the file's owner.
 * Version 2 requires the right to write the file of the common parent of both groups: @parent's own for a process that
 * is in the sandbox, one of root's for a process that is not. Capabilities would grant that right, so there the file is
 * opened without.
 */
static int open_as(const struct cgroup_host *h, int parent, const char *name, uid_t by)
{
	const uid_t same = (uid_t)-1;
	int r = 0, fd;

	if (h->version == 2) {
		r = sys_fchownat(parent, "cgroup.procs", by, (gid_t)-1, 0);
		if (r == 0)
			r = sys_fchownat(parent, name, by, (gid_t)-1, 0);
	}
	if (r == 0)
		r = sys_setresuid(same, by, same); /* drops the effective capabilities */
	if (r < 0)
		return r;
	if (h->version != 2)
		r = caps_raise_effective();
	fd = r < 0 ? r : sys_openat(parent, name, O_WRONLY | O_CLOEXEC, 0);
	/* The saved id is still root's, so the kernel has no reason to refuse. */
	r = sys_setresuid(same, 0, same);
	if (r < 0 && fd >= 0)
		fd_close(fd);
	return r < 0 ? r : fd;
}

/*
 * Version 2: moving a process takes a lock against every fork and exit of the host, and, if none has just done so, the
 * kernel's grace period. A single thread that moves itself takes neither, but can be moved among threaded groups only. What
 * joins has one thread.
 */
static bool is_threaded(int dir, const char *type)
{
	char text[64];

	return fd_get(dir, type, text, sizeof(text)) > 0 && strstr(text, "threaded");
}

/*
 * All children of a group are threaded or none is, and no process can join the others. Those of a sandbox that an earlier
 * version began are not, nor are any before Linux 4.14.
 */
static int make_threaded(int parent, uint32_t n)
{
	const bool others = is_threaded(parent, "cgroup.type"); /* "domain threaded": it has such children */
	char name[48];
	struct stat st;
	int r;

	put_name(name, n, "cgroup.type");
	if (fstat(parent, &st) < 0)
		return -errno;
	if (!others && st.st_nlink != 3)
		return 0;
	r = fd_put(parent, name, "threaded");
	return others ? r : 0;
}

static int open_child(const struct cgroup_host *h, int parent, uint32_t n, uid_t by)
{
	bool threaded = false;
	char name[48];

	put_name(name, n, "cgroup.type");
	if (h->version == 2)
		threaded = is_threaded(parent, name);
	put_name(name, n, h->version != 2 ? "tasks" : threaded ? "cgroup.threads" : "cgroup.procs");
	return by ? open_as(h, parent, name, by) : sys_openat(parent, name, O_WRONLY | O_CLOEXEC, 0);
}

int cgroup_child_open(const struct cgroup_host *h, const struct cgroup *c, uint32_t n, uid_t by)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own);

	return parent < 0 ? parent : open_child(h, parent, n, by);
}

int cgroup_child_make(const struct cgroup_host *h, const struct cgroup *c, uint32_t n, uid_t by)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own), r, fd;
	char name[48];

	if (parent < 0)
		return parent;
	put_name(name, n, NULL);
	r = sys_mkdirat(parent, name, 0755);
	if (r < 0)
		return r;
	r = h->version == 2 ? make_threaded(parent, n) : 0;
	fd = r < 0 ? r : open_child(h, parent, n, by);
	if (fd < 0)
		sys_unlinkat(parent, name, AT_REMOVEDIR);
	return fd;
}

/* 1 when it is empty, 0 when not. @ret_frozen: whether it is, or the whole sandbox; never on version 1. */
static int look(const struct cgroup_host *h, int parent, uint32_t n, bool *ret_frozen)
{
	char name[48], text[256];
	ssize_t len;

	put_name(name, n, h->version == 2 ? "cgroup.events" : "pids.current");
	len = fd_get(parent, name, text, sizeof(text));
	if (len < 0)
		return (int)len;
	*ret_frozen = h->version == 2 && strstr(text, "frozen 1");
	return h->version == 2 ? strstr(text, "populated 0") != NULL : text[0] == '0';
}

/* Closed, no member can fork any more; it dies all the same. */
static int close_group(const struct cgroup_host *h, int dir, bool closed)
{
	int r;

	if (h->version != 2)
		return fd_put(dir, "pids.max", closed ? "0" : "max");
	r = fd_put(dir, "cgroup.freeze", closed ? "1" : "0");
	return r == -ENOENT ? 0 : r; /* before 5.2 */
}

/*
 * With @once on version 2, two rounds: what a fork had begun when the group was frozen is in the second list. Those that come
 * next must not wait for a frozen group.
 */
static int kill_all(const struct cgroup_host *h, int dir, bool once)
{
	const uint64_t until = clock_mono_ns() + GONE_MS * 1000000ULL;
	const bool v2 = h->version == 2;
	int r = close_group(h, dir, true);

	for (unsigned round = 0; r == 0; round++) {
		r = cgroup_kill_members(dir);
		if (r != 0 || (once && round == v2) || clock_mono_ns() > until)
			break; /* all were killed, and none can fork */
		if (!once)
			cgroup_wait_a_little(round);
	}
	if (v2 && (once || r == 1))
		close_group(h, dir, false);
	return r < 0 ? r : 0;
}

static int child_kill(const struct cgroup_host *h, const struct cgroup *c, uint32_t n, bool once)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own), r;
	AUTO_CLOSE int dir = -1;
	char name[48];

	if (parent < 0)
		return parent;
	put_name(name, n, NULL);
	dir = sys_openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (dir < 0)
		return dir;
	r = h->version == 2 ? fd_put(dir, "cgroup.kill", "1") : -ENOENT;
	/* Before 5.14 there is none, and threaded groups refuse it. */
	return r == -ENOENT || r == -EOPNOTSUPP ? kill_all(h, dir, once) : r;
}

int cgroup_child_kill(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	return child_kill(h, c, n, false);
}

int cgroup_child_kill_once(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	return child_kill(h, c, n, true);
}

int cgroup_child_empty(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own);
	bool frozen;

	return parent < 0 ? parent : look(h, parent, n, &frozen);
}

/*
 * Kills what a fork left behind: if a process was forking when its group was killed, the child was not in the list. It
 * cannot fork, but it runs on version 1.
 */
static void kill_late(const struct cgroup_host *h, int parent, uint32_t n)
{
	const bool v2 = h->version == 2;
	AUTO_CLOSE int dir = -1;
	char name[48], text[32];

	put_name(name, n, v2 ? "cgroup.freeze" : "pids.max");
	if (fd_get(parent, name, text, sizeof(text)) <= 0 || text[0] != (v2 ? '1' : '0'))
		return;
	put_name(name, n, NULL);
	dir = sys_openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (dir >= 0)
		cgroup_kill_members(dir);
}

/* An empty one. */
static int open_again(const struct cgroup_host *h, int parent, uint32_t n, bool frozen)
{
	char name[48];

	if (h->version == 2 && !frozen)
		return 0;
	put_name(name, n, h->version == 2 ? "cgroup.freeze" : "pids.max");
	return fd_put(parent, name, h->version == 2 ? "0" : "max");
}

int cgroup_child_reset(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own), r;
	bool frozen = false;

	if (parent < 0)
		return parent;
	r = look(h, parent, n, &frozen);
	if (r == 0)
		kill_late(h, parent, n);
	if (r <= 0)
		return r < 0 ? r : -EBUSY;
	return open_again(h, parent, n, frozen);
}

int cgroup_child_recycle(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own), r;
	char name[48], text[256];
	bool frozen = false;
	uint64_t refused;
	struct stat st;
	ssize_t len;

	if (parent < 0)
		return parent;
	/* Folders count those right below them: 3 links are one. */
	if (fstat(parent, &st) < 0)
		return -errno;
	if (st.st_nlink != 3)
		return -EBUSY;
	if (h->version == 2) {
		r = look(h, parent, n, &frozen);
		if (r <= 0)
			return r < 0 ? r : -EBUSY;
	} else {
		put_name(name, n, "pids.events");
		len = fd_get(parent, name, text, sizeof(text));
		if (len < 0)
			return (int)len;
		if (cgroup_parse_kv(text, "max", &refused) < 0 || refused)
			return -EBUSY;
	}
	return open_again(h, parent, n, frozen);
}

int cgroup_child_remove(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own), r;
	char name[48];

	if (parent < 0)
		return parent;
	put_name(name, n, NULL);
	r = sys_unlinkat(parent, name, AT_REMOVEDIR);
	if (r == -EBUSY)
		kill_late(h, parent, n);
	return r;
}

struct seen {
	uint32_t last, count;
};

static int see(int dir, const char *name, void *arg)
{
	struct seen *s = arg;
	uint64_t n;

	(void)dir;
	if (name[0] != 'x' || parse_u64(name + 1, &n, NULL) < 0 || n > UINT32_MAX)
		return 0;
	s->count++;
	if (n > s->last)
		s->last = (uint32_t)n;
	return 0;
}

int cgroup_children(const struct cgroup_host *h, const struct cgroup *c, uint32_t *ret_last, uint32_t *ret_count)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own), r;
	struct seen s = { 0 };

	if (parent < 0)
		return parent;
	r = cgroup_each_folder(parent, see, &s);
	if (r < 0)
		return r;
	*ret_last = s.last;
	*ret_count = s.count;
	return 0;
}

static int add_refused(int dir, const char *name, void *arg)
{
	uint64_t *sum = arg, refused = 0;
	char path[64], text[256];

	if (name[0] != 'x' || strlen(name) > 16)
		return 0;
	snprintf(path, sizeof(path), "%s/pids.events", name);
	if (fd_get(dir, path, text, sizeof(text)) >= 0 && cgroup_parse_kv(text, "max", &refused) == 0)
		*sum += refused;
	return 0;
}

int cgroup_children_refused(const struct cgroup_host *h, const struct cgroup *c, uint64_t *ret)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own);

	return parent < 0 ? 0 : cgroup_each_folder(parent, add_refused, ret);
}

int cgroup_children_remove(const struct cgroup_host *h, const struct cgroup *c)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own);
	unsigned depth = 0;

	return parent < 0 ? parent : cgroup_each_folder(parent, cgroup_remove_tree, &depth);
}
