#include "engine/image/image.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "engine/image/cpu_files.h"
#include "engine/image/host_image.h"
#include "engine/image/procfs.h"

#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void image_host_init(struct image_host *h)
{
	*h = (struct image_host){ -1, -1, -1, -1, -1, -1, -1, { 0 } };
	group_stock_init(&h->groups);
}

void image_host_done(struct image_host *h)
{
	fd_close(h->root);
	fd_close(h->dev);
	fd_close(h->base);
	fd_close(h->usr);
	fd_close(h->dpkg);
	fd_close(h->layers);
	fd_close(h->lock);
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

/* Skeletons nobody holds any more, and half-made ones whose maker died. */
static void sweep(int cache, const char *keep)
{
	int fd = open_dir(cache, ".");
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		fd_close(fd);
		return;
	}
	while ((d = readdir(dir))) {
		AUTO_CLOSE int old = -1;

		if ((strncmp(d->d_name, "host-", 5) && strncmp(d->d_name, "new-", 4)) || !strcmp(d->d_name, keep))
			continue;
		old = open_dir(fd, d->d_name);
		if (old >= 0 && flock(old, LOCK_EX | LOCK_NB) == 0)
			host_image_remove(fd, d->d_name);
	}
	closedir(dir);
}

/* Fills a folder of our own and renames it into place: others see a whole skeleton or none. */
static int make_host_image(int cache, const char *name, bool devices, struct err *e)
{
	char tmp[32];
	AUTO_CLOSE int dir = -1;
	int r;

	snprintf(tmp, sizeof(tmp), "new-%d", (int)getpid());
	host_image_remove(cache, tmp);
	r = sys_mkdirat(cache, tmp, 0755);
	if (r == 0)
		r = dir = open_dir(cache, tmp);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make %s in the cache folder", tmp);
	flock(dir, LOCK_SH);
	r = host_image_fill(dir, devices, e);
	if (r == 0 && renameat(cache, tmp, cache, name) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		r = err_sys(e, ERR_INTERNAL, -errno, "rename %s", tmp);
	if (r < 0 || faccessat(cache, tmp, F_OK, 0) == 0)
		host_image_remove(cache, tmp);
	if (r == 0)
		sweep(cache, name);
	return r;
}

/* The cache holds what sandboxes take as their root: nobody else may be able to write there. */
static int check_owner(int fd, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "stat %s", path);
	if (st.st_uid != geteuid() || st.st_mode & 022) {
		err_set(e, ERR_DENIED, -EPERM,
			"cache folder %s: must belong to this user and be writable by no other user", path);
		err_remedy(e, "chown and chmod go-w it, or set CLOCHE_CACHE to another folder");
		return -EPERM;
	}
	return 0;
}

int image_host_open(const char *cache_path, bool devices, struct image_host *ret, struct err *e)
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
	snprintf(name, sizeof(name), "host-%016llx", (unsigned long long)host_image_key());
	dir = open_dir(cache, name);
	if (dir == -ENOENT) {
		r = make_host_image(cache, name, devices, e);
		if (r < 0)
			return r;
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
	if (devices && fstatvfs(dev, &vfs) == 0 && vfs.f_flag & ST_NODEV) {
		err_set(e, ERR_UNSUPPORTED, -ENODEV, "cache folder %s: its filesystem is mounted with nodev",
			cache_path);
		err_remedy(e, "set CLOCHE_CACHE to a folder on a filesystem that allows device nodes");
		return -ENODEV;
	}
	r = sys_openat(AT_FDCWD, "/var/lib/dpkg", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && (r != -EACCES || geteuid() == 0))
		return err_sys(e, ERR_INTERNAL, r, "open /var/lib/dpkg for image 'host'");
	*ret = (struct image_host){ TAKE_FD(dir),  TAKE_FD(root), TAKE_FD(dev),
				    TAKE_FD(base), TAKE_FD(usr),  r < 0 ? -1 : r, -1, { 0 } };
	group_stock_init(&ret->groups);
	return 0;
}

static int put_text(int dir, const char *path, const char *text, size_t len)
{
	AUTO_CLOSE int fd = sys_openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	return fd < 0 ? fd : fd_write_all(fd, text, len);
}

static int fill_cpus(int dir, unsigned cpus)
{
	static const char *const folders[] = { "sys", "sys/devices", "sys/devices/system", "sys/devices/system/cpu",
					       "sys/fs", "sys/fs/cgroup", "sys/kernel", "sys/class" };
	static const char *const lists[] = { "sys/devices/system/cpu/online", "sys/devices/system/cpu/possible",
					     "sys/devices/system/cpu/present" };
	const size_t size = 2 * MIB;
	AUTO_FREE char *host = malloc(size), *cut = malloc(size);
	AUTO_CLOSE int sys = -1;
	ssize_t n;
	int r = 0;

	if (!host || !cut)
		return -ENOMEM;
	n = fd_get(AT_FDCWD, "/proc/cpuinfo", host, size);
	if (n < 0)
		return (int)n;
	r = put_text(dir, "cpuinfo", cut, procfs_cpuinfo(host, cut, size, cpus));
	if (r == 0)
		r = put_text(dir, "stat", cut, procfs_stat(cut, size, cpus));
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(folders); i++)
		r = sys_mkdirat(dir, folders[i], 0755);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(lists); i++)
		r = put_text(dir, lists[i], cut, procfs_online(cut, size, cpus));
	if (r == 0)
		r = sys = open_dir(dir, "sys");
	return r < 0 ? r : cpu_files_put(sys, cpus);
}

int image_cpus(const struct image_host *h, unsigned cpus, struct err *e)
{
	char name[40], tmp[64];
	AUTO_CLOSE int dir = -1;
	int r;

	/*
	 * `stat` tells when the machine was started, from which programs work out when processes were: it is another one after the next
	 * start. A clock that is slowly set right changes nothing for long.
	 */
	snprintf(name, sizeof(name), "cpus.%u-%llx", cpus, (unsigned long long)clock_booted_s() / 64);
	dir = open_dir(h->lock, name);
	if (dir >= 0)
		return TAKE_FD(dir);
	/* The pool's thread may be at the same one; and who had this number may have died half-way. */
	snprintf(tmp, sizeof(tmp), "%s.%d", name, (int)gettid());
	host_image_remove(h->lock, tmp);
	r = dir == -ENOENT ? sys_mkdirat(h->lock, tmp, 0755) : dir;
	if (r == 0)
		r = dir = open_dir(h->lock, tmp);
	if (r >= 0)
		r = fill_cpus(dir, cpus);
	if (r == 0 && renameat(h->lock, tmp, h->lock, name) < 0 && errno != EEXIST && errno != ENOTEMPTY)
		r = -errno;
	if (r < 0 || faccessat(h->lock, tmp, F_OK, 0) == 0)
		host_image_remove(h->lock, tmp);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make %s in the cache folder", name);
	fd_close(dir);
	dir = open_dir(h->lock, name);
	return dir < 0 ? err_sys(e, ERR_INTERNAL, dir, "open %s", name) : TAKE_FD(dir);
}

int image_open(const char *path, int *ret_fd, struct err *e)
{
	int fd = sys_openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);

	if (fd == -ENOENT || fd == -ENOTDIR) {
		err_set(e, ERR_NOT_FOUND, fd, "image '%s': the folder does not exist", path);
		err_remedy(e, "use 'host' or the folder of a root filesystem");
		return fd;
	}
	if (fd < 0)
		return err_sys(e, ERR_DENIED, fd, "image '%s'", path);
	*ret_fd = fd;
	return 0;
}
