/* Makes, clones and attaches mounts by descriptor. */
#include "linux/mount.h"
#include "base/base.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Adds the kernel's message to @e: a filesystem context keeps it ("e overlay: ...") until the next call. */
static void explain(int ctx, const char *fs, int r, struct err *e)
{
	char text[160];
	ssize_t n = sys_read(ctx, text, sizeof(text) - 1);

	if (n > 2) {
		text[n] = '\0';
		text[strcspn(text, "\n")] = '\0';
		err_sys(e, ERR_UNSUPPORTED, r, "mount %s: %s", fs, text + 2);
	} else {
		err_sys(e, ERR_UNSUPPORTED, r, "mount %s", fs);
	}
}

int mount_new_err(const char *fs, const struct mount_opt *opts, unsigned attrs, struct err *e)
{
	AUTO_CLOSE int ctx = sys_fsopen(fs, FSOPEN_CLOEXEC);
	int r;

	if (ctx < 0)
		return err_sys(e, ERR_UNSUPPORTED, ctx, "open filesystem %s", fs);
	for (; opts && opts->key; opts++) {
		r = sys_fsconfig(ctx, opts->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, opts->key, opts->value, 0);
		if (r < 0) {
			explain(ctx, fs, r, e);
			return err_wrap(e, r, "option %s", opts->key);
		}
	}
	r = sys_fsconfig(ctx, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
	if (r < 0) {
		explain(ctx, fs, r, e);
		return r;
	}
	r = sys_fsmount(ctx, FSMOUNT_CLOEXEC, attrs);
	if (r < 0)
		explain(ctx, fs, r, e);
	return r;
}

int mount_new(const char *fs, const struct mount_opt *opts, unsigned attrs)
{
	return mount_new_err(fs, opts, attrs, NULL);
}

static int clone_mount(int dirfd, const char *path, unsigned flags, struct mount_attr a, int userns)
{
	AUTO_CLOSE int mnt = -1;
	int r;

	flags |= path[0] ? 0 : AT_EMPTY_PATH;
	mnt = sys_open_tree(dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
	if (mnt < 0)
		return mnt;
	if (userns >= 0) {
		a.attr_set |= MOUNT_ATTR_IDMAP;
		a.userns_fd = (uint64_t)userns;
	}
	r = a.attr_set || a.propagation ?
		    sys_mount_setattr(mnt, "", AT_EMPTY_PATH | (flags & AT_RECURSIVE), &a, sizeof(a)) :
		    0;
	return r < 0 ? r : TAKE_FD(mnt);
}

/* A copy of a shared mount (any, under systemd) shares what is mounted on it: that would show up on the host. */
static struct mount_attr private_with(uint64_t attrs)
{
	return (struct mount_attr){ .attr_set = attrs, .propagation = MS_PRIVATE };
}

int mount_map_ids(int mnt, int userns)
{
	struct mount_attr a = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns };

	return sys_mount_setattr(mnt, "", AT_EMPTY_PATH, &a, sizeof(a));
}

#define LOWER_TEXT 256 /* as long as the kernel lets an option be */
#define OPTS_MAX 12

int mount_overlay(const int *lower, unsigned n, const struct mount_opt *opts, unsigned attrs, struct err *e)
{
	char one[MOUNT_LOWERS][32], joined[LOWER_TEXT];
	struct mount_opt all[MOUNT_LOWERS + OPTS_MAX];
	unsigned o = 0;
	size_t len = 0;
	int r;

	assert(n <= MOUNT_LOWERS);
	for (; o < n; o++) {
		snprintf(one[o], sizeof(one[o]), "/proc/self/fd/%d", lower[o]);
		all[o] = (struct mount_opt){ n == 1 ? "lowerdir" : "lowerdir+", one[o] };
		if (len < LOWER_TEXT)
			len += (size_t)snprintf(joined + len, LOWER_TEXT - len, "%s%s", o ? ":" : "", one[o]);
	}
	do {
		assert(o < ARRAY_LEN(all));
		all[o] = *opts;
	} while (opts++->key && ++o);
	r = mount_new_err("overlay", all, attrs, e);
	/* Kernels before 6.5 take all of them as one text. */
	if (r == -EINVAL && n > 1 && len < LOWER_TEXT) {
		all[n - 1] = (struct mount_opt){ "lowerdir", joined };
		r = mount_new_err("overlay", all + n - 1, attrs, e);
	}
	return r;
}

int mount_clone(int dirfd, const char *path, uint64_t attrs, int userns)
{
	return clone_mount(dirfd, path, 0, private_with(attrs), userns);
}

int mount_clone_tree(int dirfd, const char *path, uint64_t attrs, int userns)
{
	return clone_mount(dirfd, path, AT_RECURSIVE, private_with(attrs), userns);
}

int mount_clone_named(int fd, uint64_t attrs)
{
	char link[32], path[512];
	struct stat want, have;
	ssize_t n;
	int mnt;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = '\0';
	mnt = mount_clone(AT_FDCWD, path, attrs, -1);
	if (mnt >= 0 && fstat(fd, &want) == 0 && fstat(mnt, &have) == 0 && want.st_dev == have.st_dev &&
	    want.st_ino == have.st_ino)
		return mnt;
	fd_close(mnt);
	return mnt < 0 ? mnt : -ESTALE;
}

int mount_copy(int dirfd, const char *path, uint64_t attrs)
{
	return clone_mount(dirfd, path, 0, (struct mount_attr){ .attr_set = attrs }, -1);
}

int mount_copy_tree(int mnt, int userns)
{
	return clone_mount(mnt, "", AT_RECURSIVE, (struct mount_attr){ 0 }, userns);
}

int mount_attach(int mnt, const char *target, uint64_t cookie)
{
	return sys_move_mount(mnt, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH, cookie);
}

int mount_attach_at(int mnt, int target, uint64_t cookie)
{
	return sys_move_mount(mnt, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH, cookie);
}

bool mount_detached_copies(void)
{
	unsigned major = 0, minor = 0;
	struct utsname u;

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 15));
}

int mount_put(int mnt, int tree, const char *place)
{
	AUTO_CLOSE int at = mnt < 0 ? mnt : sys_openat(tree, place, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

	return at < 0 ? at : mount_attach_at(mnt, at, 0);
}

int mount_put_copy(int from, const char *path, uint64_t attrs, int tree, const char *place)
{
	AUTO_CLOSE int mnt = mount_clone(from, path, attrs, -1);

	return mount_put(mnt, tree, place);
}

int mount_resize(int mnt, const char *size, const char *inodes)
{
	AUTO_CLOSE int ctx = sys_fspick(mnt, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH);
	int r;

	if (ctx < 0)
		return ctx;
	r = sys_fsconfig(ctx, FSCONFIG_SET_STRING, "size", size, 0);
	if (r == 0)
		r = sys_fsconfig(ctx, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0);
	if (r == 0)
		r = sys_fsconfig(ctx, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0);
	return r;
}

int mount_tree_private(void)
{
	/* libc's header for these clashes with the kernel's */
	const unsigned long rec = 1UL << 14, private = 1UL << 18;

	return sys_mount(NULL, "/", NULL, rec | private, NULL);
}

int mount_open_file(int dirfd, const char *path)
{
	AUTO_CLOSE int mnt = mount_clone(dirfd, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, -1);
	char name[32];

	if (mnt < 0)
		return mnt;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", mnt);
	return sys_openat(AT_FDCWD, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
}
