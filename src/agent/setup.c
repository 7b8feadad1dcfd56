/*
 * From an anonymous blank to the sandbox of a request: attach what the host mounted, enter it, lock the rest. The image may
 * be hostile, so every path in it is resolved inside it, and nothing of it has run yet.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/landlock.h"
#include "linux/mount.h"
#include "linux/sched_slice.h"

#include <linux/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_UID 1000U
#define USUAL_NAME "sandbox" /* this user has a line in the files of image `host` */
#define IN_ROOT (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

static int open_in(int root, const char *path, uint64_t resolve)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = resolve };

	return sys_openat2(root, path, &how);
}

/*
 * Opens @path if it contains no link and no other spelling of itself. -ENOENT: that is not certain, and make_path() has
 * to resolve it.
 */
static int open_exact(int root, const char *path)
{
	int fd;

	if (path[0] != '/' || !path[1] || strstr(path, "//") || strstr(path, "/."))
		return -ENOENT;
	fd = open_in(root, path + 1, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	return fd == -ELOOP || fd == -ENOTDIR ? -ENOENT : fd;
}

/*
 * Makes @path below @root, folder by folder, each resolved inside the root. The last part is a file when @file. What is
 * made belongs to @uid:@gid. *ret_made: the last part is new.
 */
static int make_path(int root, const char *path, bool file, uint32_t uid, uint32_t gid, bool *ret_made)
{
	char part[256];
	const char *const whole = path;
	AUTO_CLOSE int at = open_in(root, "/", IN_ROOT);

	*ret_made = false;
	while (*path == '/')
		path++;
	while (at >= 0 && *path) {
		size_t n = strcspn(path, "/");
		const char *next = path + n;
		bool last;
		int fd, r = 0;

		if (n >= sizeof(part))
			return -ENAMETOOLONG;
		memcpy(part, path, n);
		part[n] = '\0';
		while (*next == '/')
			next++;
		last = !*next;
		/*
		 * ".." would leave the folder that was checked; the host refuses such targets, this is the second lock.
		 */
		if (!strcmp(part, ".."))
			return -EINVAL;
		fd = open_in(at, part, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
		if (fd == -ENOENT) {
			r = last && file ? sys_mknodat(at, part, S_IFREG | 0644, 0) : sys_mkdirat(at, part, 0755);
			if (r == 0)
				r = sys_fchownat(at, part, uid, gid, AT_SYMLINK_NOFOLLOW);
			if (r < 0)
				return r;
			*ret_made = last;
			fd = open_in(at, part, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
		} else if (fd == -EXDEV) {
			/* A symbolic link that leaves its folder: follow all of it as the sandbox would. */
			fd = open_in(root, whole, IN_ROOT);
			next = "";
		}
		fd_close(at);
		at = fd;
		path = next;
	}
	return at < 0 ? at : TAKE_FD(at);
}

static int attach_tree(int root, const char *name, const char *from, uint64_t cookie)
{
	AUTO_CLOSE int target = open_in(root, name, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

	if (target == -ENOENT) {
		int r = sys_mkdirat(root, name, 0755);

		if (r < 0)
			return r;
		target = open_in(root, name, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	}
	if (target < 0)
		return target;
	return sys_move_mount(AT_FDCWD, from, target, "", MOVE_MOUNT_T_EMPTY_PATH, cookie);
}

static bool ours(const char *path)
{
	static const char *const places[] = { "/proc", "/dev", "/sys" };

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		size_t n = strlen(places[i]);

		if (!strncmp(path, places[i], n) && (!path[n] || path[n] == '/'))
			return true;
	}
	return false;
}

/*
 * Where @at is, below @root, without links. Negative errno; -ELOOP: not in the image. The image is mounted over our root, so its paths
 * read as they will when it is entered.
 */
static int real_path(int root, int at, char *ret, size_t size)
{
	char name[40];
	ssize_t n;

	snprintf(name, sizeof(name), "proc/self/fd/%d", at);
	n = readlinkat(root, name, ret, size - 1);
	if (n < 0)
		return -errno;
	ret[n] = '\0';
	return *ret == '/' ? 0 : -ELOOP;
}

/* The permission bit that the user lacks to pass through a folder, or 0. */
static unsigned search_bit(const struct stat *st, uint32_t uid, uint32_t gid)
{
	const unsigned bit = st->st_uid == uid ? 0100 : st->st_gid == gid ? 0010 : 0001;

	return st->st_mode & bit ? 0 : bit;
}

/*
 * A mount is made for the sandbox's user. Where one of the folders above it is closed to him, as /root is, it is opened so far that
 * he gets through; he still cannot list it. What cannot be changed, as below /usr, stays as it is.
 */
static int open_way(int root, int at, const struct frame_setup *s)
{
	char path[512];
	int r = s->uid ? real_path(root, at, path, sizeof(path)) : 0;

	if (!s->uid || r < 0 || *path != '/')
		return r;
	for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
		AUTO_CLOSE int dir = -1, fd = -1;
		struct stat st;

		*p = '\0';
		dir = open_in(root, path + 1, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
		if (dir == -EXDEV)
			return 0; /* folders of another mount are left alone */
		if (dir < 0 || fstat(dir, &st) < 0)
			return dir < 0 ? dir : -errno;
		if (!search_bit(&st, s->uid, s->gid))
			continue;
		fd = sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		if (fd >= 0)
			(void)sys_fchmod(fd, (st.st_mode & 07777) | search_bit(&st, s->uid, s->gid));
	}
	return 0;
}

/*
 * The host refuses targets in our places, but links of a hostile image can lead there: to hide a mask, or /proc itself,
 * behind a folder of the user's. What is ours must be where it was sent, and nothing else may come near.
 */
static int check_place(int root, int at, const char *target)
{
	char path[512];
	int r = real_path(root, at, path, sizeof(path));

	if (r < 0)
		return r;
	if (ours(target))
		return strcmp(path, target) ? -ELOOP : 0;
	return ours(path) ? -ELOOP : 0;
}

static int attach_one(int root, uint8_t kind, const char *target, int mnt, const struct frame_setup *s, uint64_t cookie)
{
	AUTO_CLOSE int at = -1;
	bool made;
	int r = 0;

	if (kind == FRAME_MOUNT_PARK)
		return mount_attach(mnt, "/k", cookie);
	if (kind == FRAME_MOUNT_PROC_FILE) {
		at = open_in(root, target, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
		if (at == -ENOENT)
			return 0;
	} else {
		/*
		 * Nearly always the target exists at exactly this path. Then nothing has to be made, and no link was
		 * followed.
		 */
		at = open_exact(root, target);
		if (at == -ENOENT) {
			at = make_path(root, target, kind == FRAME_MOUNT_FILE, s->uid, s->gid, &made);
			r = at < 0 ? at : check_place(root, at, target);
		}
	}
	if (at < 0 || r < 0)
		return at < 0 ? at : r;
	if (kind != FRAME_MOUNT_PROC_FILE && !ours(target))
		r = open_way(root, at, s);
	return r < 0 ? r : mount_attach_at(mnt, at, cookie);
}

int setup_premounts(const struct agent *a, const struct frame_mounts *m, const int *fds, uint32_t *which)
{
	int r = 0;

	for (*which = 0; r == 0 && *which < m->n; ++*which) {
		if (m->mount[*which].kind == FRAME_MOUNT_PARK) {
			r = mount_attach(fds[*which], "/k", a->cookie);
			continue;
		}
		/* Nothing of the image is mounted here yet, so no link can lead a path elsewhere. */
		r = mount_attach(fds[*which], m->mount[*which].target, a->cookie);
		/* A file that this kernel's /proc does not have need not be covered. */
		if (r == -ENOENT)
			r = 0;
	}
	return r;
}

/* Moves the groups into the uppermost mount on /sys: there may be a second one, for another number of processors. */
static int attach_groups(const struct agent *a, int root)
{
	AUTO_CLOSE int sys = open_in(root, "sys", RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

	return sys < 0 ? sys : group_view_attach(a, sys);
}

static int enter_root(int root, uint64_t cookie)
{
	int r = fchdir(root) < 0 ? -errno : 0;

	if (r == 0)
		r = sys_chroot(".", cookie);
	if (r == 0)
		r = sys_chdir("/");
	return r;
}

/* Makes /tmp if the image has none, since programs expect it. */
static int make_tmp(void)
{
	AUTO_CLOSE int dir = -1;
	int r = sys_mkdirat(AT_FDCWD, "/tmp", 0777);

	if (r == -EEXIST)
		return 0;
	if (r == 0)
		r = dir = sys_openat(AT_FDCWD, "/tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	return r < 0 ? r : sys_fchmod(dir, 01777);
}

static int make_workdir(const struct frame_setup *s)
{
	AUTO_CLOSE int root = sys_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	AUTO_CLOSE int dir = -1;
	bool made = false;

	if (root < 0)
		return root;
	dir = open_exact(root, s->workdir);
	if (dir == -ENOENT)
		dir = make_path(root, s->workdir, false, s->uid, s->gid, &made);
	if (dir < 0)
		return dir;
	/* Images have a home folder that belongs to their own user; here it must belong to the user of the request. */
	if (!made && s->uid != DEFAULT_UID && !strcmp(s->workdir, "/home/user") && !(s->flags & FRAME_SETUP_READ_ONLY))
		return sys_fchownat(dir, "", s->uid, s->gid, AT_EMPTY_PATH);
	return 0;
}

static int read_only_root(uint64_t cookie)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };

	return sys_mount_setattr_cookie(AT_FDCWD, "/", 0, &ro, sizeof(ro), cookie);
}

/*
 * An id of its own, which nothing else in the sandbox gets: sandbox root could otherwise lower our limits or priority,
 * as one may with one's own processes.
 */
static int leave_root(const struct agent *a)
{
	uint64_t have;
	int r = 0;

	if (!a->single_id) {
		r = sys_prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
		if (r == 0)
			r = sys_setresgid(AGENT_UID, AGENT_UID, AGENT_UID);
		if (r == 0)
			r = sys_setresuid(AGENT_UID, AGENT_UID, AGENT_UID);
		if (r == 0)
			r = sys_prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
	}
	if (r == 0)
		r = caps_permitted(&have);
	/* One that was never given what restoring takes (a rootless one) cannot restore, and does all else. */
	return r == 0 ? caps_set(CAPS_AGENT | (CAPS_AGENT_FIRST & have), CAPS_ROOT) : r;
}

int setup_apply(struct agent *a, const struct frame_setup *s, const int *fds, enum frame_stage *stage, uint32_t *which)
{
	AUTO_CLOSE int root = -1;
	int r;

	*which = 0;
	*stage = FRAME_STAGE_AFFINITY;
	r = s->flags & FRAME_SETUP_AHEAD ? 0 : sched_slice_usual();
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_ROOT;
	/* On top of our root, which stays what our own paths begin at until the image is entered. */
	r = mount_attach(fds[0], "/", a->cookie);
	if (r == 0)
		r = root = sys_openat(fds[0], ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_PROC;
	r = attach_tree(root, "proc", "/p", a->cookie);
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_DEV;
	r = attach_tree(root, "dev", "/e", a->cookie);
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_MOUNT;
	r = attach_tree(root, "sys", "/s", a->cookie);
	if (r < 0)
		return r;
	for (*which = 1; *which < s->mounts.n; ++*which) {
		r = attach_one(root, s->mounts.mount[*which].kind, s->mounts.mount[*which].target, fds[*which], s,
			       a->cookie);
		if (r < 0)
			return r;
	}
	*which = 0;
	r = attach_groups(a, root);
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_CHROOT;
	r = enter_root(root, a->cookie);
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_WORKDIR;
	r = s->flags & FRAME_SETUP_BARE ? 0 : make_tmp();
	if (r == 0 && !(s->flags & FRAME_SETUP_BARE))
		r = make_workdir(s);
	if (r == 0)
		r = group_view_open(a);
	if (r < 0)
		return r;
	if (s->flags & FRAME_SETUP_FRESH)
		a->fresh = fresh_make();
	*stage = FRAME_STAGE_RESOLVER;
	r = s->flags & FRAME_SETUP_NET ? resolver_make() : 0;
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_HOSTNAME;
	r = sys_sethostname(s->hostname, strlen(s->hostname), a->cookie);
	if (r < 0)
		return r;
	/* Unexpected files in the image, or a full disk, do not prevent the start. */
	if (s->flags & FRAME_SETUP_ETC)
		(void)etc_make();
	if (s->flags & (FRAME_SETUP_ETC | FRAME_SETUP_HOSTS) ||
	    (!(s->flags & (FRAME_SETUP_FRESH | FRAME_SETUP_BARE)) && strcmp(s->hostname, USUAL_NAME) != 0))
		(void)hosts_make(s->hostname);
	*stage = FRAME_STAGE_READ_ONLY;
	if (s->flags & FRAME_SETUP_READ_ONLY) {
		r = read_only_root(a->cookie);
		if (r < 0)
			return r;
	}
	*stage = FRAME_STAGE_LANDLOCK;
	r = a->landlock ? landlock_restrict() : 0;
	if (r < 0)
		return r;
	a->host_writable = s->flags & FRAME_SETUP_HOST_WRITABLE;
	*stage = FRAME_STAGE_AFFINITY;
	a->cpu_mask = s->cpu_mask;
	r = a->cpu_mask ? sys_sched_getaffinity(a->cpus, sizeof(a->cpus)) : 0;
	if (r >= 0 && s->flags & FRAME_SETUP_AHEAD)
		r = sched_slice_usual();
	if (r < 0)
		return r;
	*stage = FRAME_STAGE_CAPS;
	return leave_root(a);
}
