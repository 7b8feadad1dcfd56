/*
 * /sys/fs/cgroup: the sandbox's own control groups as the kernel shows them, read-only. Nothing is copied, so the figures are those of the
 * moment of reading. Version 2: one mount. Version 1: one for each controller, and the names of version 2 as links beside them
 * (engine/image/host_image.c). docs/design/0014-what-programs-see.md says why.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/cgroup.h"
#include "linux/cgroup_parse.h"

#include <unistd.h>

/* Of mount(2): libc's header for them clashes with the kernel's for the new calls. */
#define OLD_RDONLY 1UL
#define OLD_NOSUID 2UL
#define OLD_NODEV 4UL
#define OLD_NOEXEC 8UL
#define OLD_BIND 4096UL
#define OLD_PRIVATE (1UL << 18)
#define READ_ONLY (OLD_RDONLY | OLD_NOSUID | OLD_NODEV | OLD_NOEXEC)

#define PLACE "/c" /* where groups are mounted in the base, until the image is attached */
#define HOST "/sys/fs/cgroup/"
#define FILE "/tasks"
#define EVENTS "/sys/fs/cgroup/memory.events"

/* Whether the list of names from @list up to @end, separated by commas, contains @name. */
static bool has_name(const char *list, const char *end, const char *name)
{
	while (list < end) {
		const char *comma = memchr(list, ',', (size_t)(end - list)), *stop = comma ? comma : end;

		if ((size_t)(stop - list) == strlen(name) && !memcmp(list, name, strlen(name)))
			return true;
		list = stop + 1;
	}
	return false;
}

/*
 * The controllers of the hierarchy that has @name, for mount(2): all of them, since they can only be mounted
 * together.
 */
static int hierarchy_of(const char *base, const char *name, char *ret, size_t size)
{
	char path[64], text[4096], *line, *next;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/p/self/cgroup", base);
	n = fd_get(AT_FDCWD, path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	for (line = text; line && *line; line = next) {
		char *list = strchr(line, ':'), *end;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		end = list ? strchr(++list, ':') : NULL;
		if (!end)
			continue;
		*end = '\0';
		if (has_name(list, end, name)) {
			snprintf(ret, size, "%s", list);
			return 0;
		}
	}
	return -ENOENT;
}

/* The folder of the host that our group of the controller @name is, in the usual place. */
static bool find_folder(const char *lines, const char *name, char *ret, size_t size)
{
	for (const char *end; (end = strchr(lines, '\n')) != NULL; lines = end + 1) {
		size_t len = (size_t)(end - lines);
		const char *names = lines + strlen(HOST), *slash;

		if (len <= strlen(HOST FILE) || len - strlen(FILE) >= size || strncmp(lines, HOST, strlen(HOST)) ||
		    strncmp(end - strlen(FILE), FILE, strlen(FILE)))
			continue;
		slash = strchr(names, '/');
		if (!slash || !has_name(names, slash, name))
			continue;
		snprintf(ret, size, "%.*s", (int)(len - strlen(FILE)), lines);
		return true;
	}
	return false;
}

/*
 * A copy of the host's mount of the folder @from: an instance of our own costs as much as /proc, when it is made and once more when it
 * ends, and each that is made looks at all the others. Where there is no such folder, an instance of our own.
 */
static int mount_controller(const char *base, const char *name, const char *from)
{
	char path[64], all[256];
	int r = -ENOENT;

	snprintf(path, sizeof(path), "%s" PLACE "/%s", base, name);
	if (*from)
		r = sys_mount(from, path, NULL, OLD_BIND, NULL);
	if (r < 0)
		r = sys_mount("cgroup", path, "cgroup", READ_ONLY, name);
	if (r == 0 || hierarchy_of(base, name, all, sizeof(all)) < 0)
		return r;
	return sys_mount("cgroup", path, "cgroup", READ_ONLY, all);
}

/* Whether the error means that the host does not allow it: then no groups are shown. Other errors are failures. */
static bool is_refusal(int r)
{
	return r == -EPERM || r == -EACCES || r == -ENODEV || r == -EBUSY || r == -EINVAL || r == -ENOENT;
}

static int mount_covered(const char *base, const char *name)
{
	char path[64], empty[64], from[64];
	int r;

	snprintf(path, sizeof(path), "%s" PLACE "/%s", base, name);
	snprintf(from, sizeof(from), HOST "%s", name);
	r = sys_mount(from, path, NULL, OLD_BIND, NULL);
	if (r <
	    0) /* the host does not have it, has something mounted in it that we may not uncover, or has covered /sys (env.c) */
		return r == -ENOENT || r == -ENOTDIR || r == -EINVAL || r == -EACCES ? 0 : r;
	snprintf(empty, sizeof(empty), "%s/k", base);
	return sys_mount(empty, path, NULL, OLD_BIND, NULL);
}

static int mount_v1(const struct agent *a, const char *base)
{
	static const struct {
		unsigned bit;
		const char *name;
	} shown[] = { { CGROUP_BIT(CGROUP_MEMORY), "memory" },
		      { CGROUP_BIT(CGROUP_PIDS), "pids" },
		      { CGROUP_BIT(CGROUP_CPU), "cpu" },
		      { CGROUP_BIT(CGROUP_CPUACCT), "cpuacct" } };
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
		.propagation = OLD_PRIVATE,
	};
	char path[64], from[256];
	int r;

	snprintf(path, sizeof(path), "%s" PLACE, base);
	r = sys_mount(path, path, NULL, OLD_BIND, NULL); /* so that all of it can be moved as one */
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(shown); i++) {
		if (!(a->groups & shown[i].bit))
			continue;
		if (!find_folder(a->groups_at, shown[i].name, from, sizeof(from)))
			from[0] = '\0';
		r = mount_controller(base, shown[i].name, from);
		r = is_refusal(r) ? 0 : r;
	}
	/*
	 * Java believes in version 1 only where all of these are mounted, and cpuset. Where the sandbox has no group of its own, what
	 * would be shown is the host's: it is covered by an empty folder.
	 */
	if (r == 0)
		r = mount_covered(base, "cpuset");
	if (r == 0 && !(a->groups & CGROUP_BIT(CGROUP_CPUACCT)))
		r = mount_covered(base, "cpuacct");
	return r == 0 ? sys_mount_setattr(AT_FDCWD, path, AT_RECURSIVE, &attr, sizeof(attr)) : r;
}

int group_view_mount(struct agent *a, const char *base)
{
	char path[64];
	int r;

	if (a->groups & CGROUP_SHOWN_MADE)
		return 0;
	if (!(a->groups & CGROUP_SHOWN_V2))
		return a->groups ? mount_v1(a, base) : 0;
	snprintf(path, sizeof(path), "%s" PLACE, base);
	r = sys_mount("cgroup2", path, "cgroup2", READ_ONLY, NULL);
	if (!is_refusal(r))
		return r;
	a->groups = 0;
	return 0;
}

int group_view_attach(const struct agent *a, int sys)
{
	AUTO_CLOSE int at = -1;

	if (!a->groups)
		return 0;
	at = sys_openat(sys, "fs/cgroup", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	return at < 0 ? at : sys_move_mount(AT_FDCWD, PLACE, at, "", MOVE_MOUNT_T_EMPTY_PATH, a->cookie);
}

int group_view_open(struct agent *a)
{
	int fd = a->groups ? sys_openat(AT_FDCWD, EVENTS, O_RDONLY | O_CLOEXEC, 0) : -1, r = 0;

	if (fd >= 0)
		r = a->events = sys_fcntl(fd, F_DUPFD_CLOEXEC, AGENT_PLACES_END);
	fd_close(fd);
	return r < 0 ? r : 0;
}

uint64_t group_view_oom_kills(const struct agent *a)
{
	char text[512];
	ssize_t n = a->events < 0 ? -1 : pread(a->events, text, sizeof(text) - 1, 0);
	uint64_t kills = 0;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	return cgroup_parse_kv(text, "oom_kill", &kills) < 0 ? 0 : kills;
}
