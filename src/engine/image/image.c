/* Opens the root filesystems that sandboxes are made of. */
#include "engine/image/image.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/sys.h"
#include "engine/image/host_image.h"
#include "layers/tree.h"
#include "linux/mount.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void image_host_init(struct image_host *h)
{
	*h = (struct image_host){ -1, -1, -1, -1, -1, -1, -1, -1, { 0 }, { NULL, -1 } };
	group_stock_init(&h->groups);
}

void image_host_done(struct image_host *h)
{
	fd_close_many((int[]){ h->root, h->dev, h->base, h->usr, h->dpkg, h->tree, h->layers, h->lock }, 8);
	group_stock_done(&h->groups);
	image_host_init(h);
}

static int open_dir(int dirfd, const char *path)
{
	return sys_openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

/* Makes @path and what is above it. */
static int make_dirs(const char *path, unsigned mode)
{
	char part[512];
	size_t len = strlen(path);
	int r = 0;

	if (len >= sizeof(part))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		r = sys_mkdirat(AT_FDCWD, part, i == len ? mode : 0755);
		if (r < 0 && r != -EEXIST)
			return r;
	}
	return 0;
}

/* Removes images that are not in use any more, and incomplete ones whose maker died. */
static void sweep(int cache, const char *keep)
{
	DIR *dir = dir_list(cache);
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		AUTO_CLOSE int old = -1;

		if ((strncmp(d->d_name, "host-", 5) && strncmp(d->d_name, "new-", 4)) || !strcmp(d->d_name, keep))
			continue;
		old = open_dir(cache, d->d_name);
		if (old >= 0 && flock(old, LOCK_EX | LOCK_NB) == 0)
			tree_remove(cache, d->d_name);
	}
	if (dir)
		closedir(dir);
}

/* Fills a folder of our own and renames it into place: others see a whole one or none. */
static int make_folder(const struct image_filler *by, int at, const char *name, struct image_fill *x, struct err *e)
{
	AUTO_CLOSE int dir = -1;
	char part[64];
	int r;

	/* Another thread may make the same now, and a process with this number may have died half-way. */
	snprintf(part, sizeof(part), "%s%s.%d", x->what == IMAGE_CPUS ? "" : "new-", name, (int)gettid());
	tree_remove(at, part);
	r = sys_mkdirat(at, part, 0755);
	if (r == 0)
		r = x->fd = dir = open_dir(at, part);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make %s in the cache folder", part);
	flock(dir, LOCK_SH);
	r = by->fill(by->program, x, e);
	if (r == 0 && renameat(at, part, at, name) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		r = err_sys(e, ERR_INTERNAL, -errno, "rename %s", part);
	if (r < 0 || faccessat(at, part, F_OK, 0) == 0)
		tree_remove(at, part);
	return r;
}

/* The cache holds what sandboxes take as their root: no other user may be able to write there. */
static int check_owner(int fd, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "stat %s", path);
	if (st.st_uid != geteuid() || st.st_mode & 022)
		return err_advise(e, ERR_DENIED, -EPERM,
				  "chown and chmod go-w it, or set CLOCHE_CACHE to another folder",
				  "cache folder %s: must belong to this user and be writable by no other user", path);
	return 0;
}

/* A number that changes when anything that image `host` is made from changes. */
static uint64_t host_key(void)
{
	static const char *const watched[] = { "/etc/ld.so.cache",
					       "/etc/alternatives",
					       "/etc/ssl/certs",
					       "/etc/localtime",
					       "/etc/os-release",
					       "/etc/ssl/certs/ca-certificates.crt",
					       "/etc/passwd",
					       "/etc/group",
					       "/bin",
					       "/usr/bin/python3",
					       "/lib64" };
	uint64_t h = 0xcbf29ce484222325ULL ^ HOST_IMAGE_VERSION;

	for (size_t i = 0; i < ARRAY_LEN(watched); i++) {
		struct stat st = { 0 };
		uint64_t part[4];

		if (lstat(watched[i], &st) < 0)
			st = (struct stat){ 0 };
		part[0] = st.st_ino;
		part[1] = (uint64_t)st.st_mtim.tv_sec;
		part[2] = (uint64_t)st.st_mtim.tv_nsec;
		part[3] = (uint64_t)st.st_size;
		for (size_t k = 0; k < sizeof(part); k++)
			h = (h ^ ((const uint8_t *)part)[k]) * 0x100000001b3ULL;
	}
	return h;
}

int image_host_open(const char *cache_path, bool devices, const struct image_filler *by, struct image_host *ret,
		    struct err *e)
{
	AUTO_CLOSE int cache = open_dir(AT_FDCWD, cache_path), dir = -1, root = -1, dev = -1, base = -1, usr = -1;
	struct statvfs vfs;
	char name[32];
	int r;

	if (cache == -ENOENT) {
		r = make_dirs(cache_path, 0755);
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "make cache folder %s", cache_path);
		cache = open_dir(AT_FDCWD, cache_path);
	}
	if (cache < 0)
		return err_sys(e, ERR_INTERNAL, cache, "open cache folder %s", cache_path);
	r = check_owner(cache, cache_path, e);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "host-%016llx", (unsigned long long)host_key());
	dir = open_dir(cache, name);
	if (dir == -ENOENT) {
		r = make_folder(by, cache, name, &(struct image_fill){ .what = devices ? IMAGE_DEVICES : IMAGE_HOST },
				e);
		if (r < 0)
			return r;
		sweep(cache, name);
		dir = open_dir(cache, name);
	}
	if (dir < 0)
		return err_sys(e, ERR_INTERNAL, dir, "open %s/%s", cache_path, name);
	flock(dir, LOCK_SH);
	r = root = open_dir(dir, "root");
	if (r >= 0 && devices)
		r = dev = open_dir(dir, "dev");
	if (r >= 0)
		r = base = open_dir(dir, "base");
	if (r >= 0)
		r = usr = open_dir(AT_FDCWD, "/usr");
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "open image 'host' in %s/%s", cache_path, name);
	if (devices && fstatvfs(dev, &vfs) == 0 && vfs.f_flag & ST_NODEV)
		return err_advise(e, ERR_UNSUPPORTED, -ENODEV,
				  "set CLOCHE_CACHE to a folder on a filesystem that allows device nodes",
				  "cache folder %s: its filesystem is mounted with nodev", cache_path);
	r = sys_openat(AT_FDCWD, "/var/lib/dpkg", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && (r != -EACCES || geteuid() == 0))
		return err_sys(e, ERR_INTERNAL, r, "open /var/lib/dpkg for image 'host'");
	*ret = (struct image_host){
		TAKE_FD(dir), TAKE_FD(root), TAKE_FD(dev), TAKE_FD(base), TAKE_FD(usr), r < 0 ? -1 : r, -1,
		-1,	      { 0 },	     *by
	};
	group_stock_init(&ret->groups);
	return 0;
}

void image_host_join(struct image_host *h)
{
	const uint64_t attrs = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	AUTO_CLOSE int tree = mount_clone(h->root, "", attrs, -1), usr = mount_clone(h->usr, "", attrs, -1);
	AUTO_CLOSE int dpkg = h->dpkg < 0 ? -1 : mount_clone(h->dpkg, "", attrs, -1);

	if (tree >= 0 && mount_put(usr, tree, "usr") == 0 &&
	    (h->dpkg < 0 || mount_put(dpkg, tree, "var/lib/dpkg") == 0))
		h->tree = TAKE_FD(tree);
}

int image_cpus(const struct image_host *h, unsigned cpus, struct err *e)
{
	char name[40];
	AUTO_CLOSE int dir = -1;
	int r = 0;

	/*
	 * `stat` contains the boot time, from which programs compute when processes were started: after the next boot
	 * it is another file. A clock that is adjusted slowly changes it only once in a while.
	 */
	snprintf(name, sizeof(name), "cpus.%u-%llx", cpus, (unsigned long long)clock_booted_s() / 64);
	dir = open_dir(h->lock, name);
	if (dir == -ENOENT) {
		r = make_folder(&h->filler, h->lock, name, &(struct image_fill){ .what = IMAGE_CPUS, .n = cpus }, e);
		if (r < 0)
			return r;
		dir = open_dir(h->lock, name);
	}
	return dir < 0 ? err_sys(e, ERR_INTERNAL, dir, "open %s", name) : TAKE_FD(dir);
}
