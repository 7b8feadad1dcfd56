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

static int open_child(const struct cgroup_host *h, int parent, uint32_t n, uid_t by)
{
	char name[48];

	put_name(name, n, h->version == 2 ? "cgroup.procs" : "tasks");
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
	fd = open_child(h, parent, n, by);
	if (fd < 0)
		sys_unlinkat(parent, name, AT_REMOVEDIR);
	return fd;
}

/* 1 when it is empty, 0 when not. */
static int look(const struct cgroup_host *h, int parent, uint32_t n)
{
	char name[48], text[256];
	ssize_t len;

	put_name(name, n, h->version == 2 ? "cgroup.events" : "pids.current");
	len = fd_get(parent, name, text, sizeof(text));
	if (len < 0)
		return (int)len;
	return h->version == 2 ? strstr(text, "populated 0") != NULL : text[0] == '0';
}

static int child_kill(const struct cgroup_host *h, const struct cgroup *c, uint32_t n, bool once)
{
	const uint64_t until = clock_mono_ns() + GONE_MS * 1000000ULL;
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
	if (h->version == 2) {
		r = fd_put(dir, "cgroup.kill", "1");
		if (r != -ENOENT) /* before 5.14 there is none */
			return r;
	} else {
		r = fd_put(dir, "pids.max", "0");
		if (r < 0)
			return r;
	}
	for (unsigned round = 0;; round++) {
		r = cgroup_kill_members(dir);
		if (r != 0)
			return r < 0 ? r : 0;
		if (once || clock_mono_ns() > until)
			return 0; /* all were killed, and none can fork */
		cgroup_wait_a_little(round);
	}
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

	return parent < 0 ? parent : look(h, parent, n);
}

/*
 * Kills what a fork left behind: if a process was forking when its group was killed, the child was not in the list. It
 * cannot fork, but it runs.
 */
static void kill_late(int parent, uint32_t n)
{
	AUTO_CLOSE int dir = -1;
	char name[48], max[32];

	put_name(name, n, "pids.max");
	if (fd_get(parent, name, max, sizeof(max)) <= 0 || max[0] != '0')
		return;
	put_name(name, n, NULL);
	dir = sys_openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (dir >= 0)
		cgroup_kill_members(dir);
}

int cgroup_child_reset(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own), r;
	char name[48];

	if (parent < 0)
		return parent;
	r = look(h, parent, n);
	if (r == 0 && h->version != 2)
		kill_late(parent, n);
	if (r <= 0)
		return r < 0 ? r : -EBUSY;
	if (h->version == 2)
		return 0;
	put_name(name, n, "pids.max");
	return fd_put(parent, name, "max");
}

int cgroup_child_recycle(const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	AUTO_CLOSE int own = -1;
	int parent = parent_of(h, c, &own);
	char name[48], text[256];
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
		const int empty = look(h, parent, n);

		return empty == 1 ? 0 : empty < 0 ? empty : -EBUSY;
	}
	put_name(name, n, "pids.events");
	len = fd_get(parent, name, text, sizeof(text));
	if (len < 0)
		return (int)len;
	if (cgroup_parse_kv(text, "max", &refused) < 0 || refused)
		return -EBUSY;
	put_name(name, n, "pids.max");
	return fd_put(parent, name, "max");
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
	if (r == -EBUSY && h->version != 2)
		kill_late(parent, n);
	return r == -ENOENT ? 0 : r;
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
