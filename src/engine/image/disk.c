#include "engine/image/disk.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"
#include "linux/mount.h"

#include <dirent.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define DISK_DEFAULT (16ULL * GIB)
#define DISK_FOLDER "/var/tmp"
#define DISK_SMALL (16 * MIB)

/* What a journal takes, on top of what was asked for. */
static uint64_t journal_size(uint64_t size)
{
	return size < DISK_SMALL ? MIB : 4 * MIB;
}

/* @journal: in MiB, as text; NULL = none. */
static int format(int file, uint64_t inodes, const char *journal, struct err *e)
{
	char path[32], count[24], size[16];
	char *kept[] = { (char *)(uintptr_t) "mke2fs", (char *)(uintptr_t) "-q", (char *)(uintptr_t) "-F",
			 (char *)(uintptr_t) "-t",     (char *)(uintptr_t) "ext4", (char *)(uintptr_t) "-m",
			 (char *)(uintptr_t) "0",      (char *)(uintptr_t) "-O", (char *)(uintptr_t) "has_journal,^resize_inode",
			 (char *)(uintptr_t) "-E",     (char *)(uintptr_t) "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
			 (char *)(uintptr_t) "-J",     size,
			 (char *)(uintptr_t) "-b",     (char *)(uintptr_t)(journal && *journal == '1' ? "1024" : "4096"),
			 (char *)(uintptr_t) "-N",     count, path, NULL };
	char *argv[] = { (char *)(uintptr_t) "mke2fs", (char *)(uintptr_t) "-q", (char *)(uintptr_t) "-F",
			 (char *)(uintptr_t) "-t",     (char *)(uintptr_t) "ext4", (char *)(uintptr_t) "-m",
			 (char *)(uintptr_t) "0",      (char *)(uintptr_t) "-O", (char *)(uintptr_t) "^has_journal,^resize_inode",
			 (char *)(uintptr_t) "-E",     (char *)(uintptr_t) "lazy_itable_init=1,nodiscard,root_owner=0:0",
			 (char *)(uintptr_t) "-N",     count, path, NULL };
	char *envp[] = { (char *)(uintptr_t) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	int status = -1;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes + 64);
	snprintf(size, sizeof(size), "size=%s", journal ? journal : "");
	pid = fork();
	if (pid == 0) {
		fcntl(file, F_SETFD, 0);
		execve("/usr/sbin/mke2fs", journal ? kept : argv, envp);
		execve("/sbin/mke2fs", journal ? kept : argv, envp);
		_exit(127);
	}
	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "start mke2fs");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	err_set(e, ERR_UNSUPPORTED, -EIO, "disk layer: mke2fs failed (status %d)",
		WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	err_remedy(e, "install e2fsprogs, or leave the layer in memory (no --storage disk)");
	return -EIO;
}

int disk_format(int file, uint64_t inodes, struct err *e)
{
	return format(file, inodes, NULL, e);
}

/* Another process may take the free number before we do: then the next one. */
static int attach_loop(int file, char *path, size_t size, struct err *e)
{
	AUTO_CLOSE int ctl = sys_openat(AT_FDCWD, "/dev/loop-control", O_RDWR | O_CLOEXEC, 0);
	int r = ctl;

	for (unsigned tries = 0; ctl >= 0 && tries < 64; tries++) {
		struct loop_config c = { .fd = (uint32_t)file, .info.lo_flags = LO_FLAGS_AUTOCLEAR };
		AUTO_CLOSE int dev = -1;
		int n = sys_ioctl(ctl, LOOP_CTL_GET_FREE, NULL);

		if (n < 0) {
			r = n;
			break;
		}
		snprintf(path, size, "/dev/loop%d", n);
		r = dev = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
		if (r >= 0)
			r = sys_ioctl(dev, LOOP_CONFIGURE, &c);
		if (r == 0)
			return TAKE_FD(dev);
		if (r != -EBUSY)
			break;
	}
	err_sys(e, ERR_UNSUPPORTED, r, "disk layer: loop device");
	err_remedy(e, "load the loop module (modprobe loop), or leave the layer in memory (no --storage disk)");
	return r;
}

int disk_size(int file, uint64_t size, struct err *e)
{
	int r = size > INT64_MAX ? -EFBIG : sys_ftruncate(file, (off_t)size);

	if (r == -EFBIG || r == -EINVAL) {
		err_set(e, ERR_REFUSED, r, "disk: a file of %llu bytes is larger than the file system here allows",
			(unsigned long long)size);
		err_remedy(e, "request a smaller disk");
		return r;
	}
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "disk: size %llu", (unsigned long long)size) : 0;
}

int disk_new(uint64_t size, uint64_t inodes, struct err *e)
{
	char path[32];
	const struct mount_opt opts[] = { { "source", path }, { "noinit_itable", NULL }, { NULL, NULL } };
	AUTO_CLOSE int file = -1, loop = -1;
	int r;

	size = size ? size : DISK_DEFAULT;
	if (size < 4 * MIB)
		return err_set(e, ERR_INVALID, -EINVAL, "disk: a layer on disk needs at least 4M");
	file = sys_openat(AT_FDCWD, DISK_FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (file < 0)
		return err_sys(e, ERR_UNSUPPORTED, file, "disk layer: make an unnamed file in " DISK_FOLDER);
	r = disk_size(file, size, e);
	if (r == 0)
		r = disk_format(file, inodes ? inodes : size / 8192, e);
	if (r < 0)
		return r;
	loop = attach_loop(file, path, sizeof(path), e);
	if (loop < 0)
		return loop;
	return mount_new_err("ext4", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}

static int disk_lock(int file, struct err *e)
{
	if (flock(file, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return err_sys(e, ERR_INTERNAL, -errno, "lock a disk");
	err_set(e, ERR_CONFLICT, -EBUSY, "the sandbox's disk is still in use");
	err_remedy(e, "try again in a moment");
	return -EBUSY;
}

static int disk_make(int dir, const char *id, uint64_t size, uint64_t inodes, struct err *e)
{
	AUTO_CLOSE int file = sys_openat(dir, id, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (file < 0)
		return err_sys(e, ERR_INTERNAL, file, "make disk '%s'", id);
	r = disk_lock(file, e);
	if (r == 0)
		r = disk_size(file, size + journal_size(size), e);
	if (r == 0)
		r = format(file, inodes ? inodes : size / 8192, size < DISK_SMALL ? "1" : "4", e);
	/* Its sandbox is answered for: it is to be there after a power cut, too. */
	if (r == 0 && (fsync(file) < 0 || fsync(dir) < 0))
		r = err_sys(e, ERR_INTERNAL, -errno, "sync disk '%s'", id);
	if (r < 0)
		sys_unlinkat(dir, id, 0);
	return r < 0 ? r : TAKE_FD(file);
}

static int disk_find(int dir, const char *id, struct err *e)
{
	AUTO_CLOSE int file = sys_openat(dir, id, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
	int r;

	if (file == -ENOENT)
		return err_set(e, ERR_LOST, -ENODATA, "the sandbox's disk does not exist any longer");
	if (file < 0)
		return err_sys(e, ERR_INTERNAL, file, "open disk '%s'", id);
	r = disk_lock(file, e);
	return r < 0 ? r : TAKE_FD(file);
}

int disk_kept(int dir, const char *id, enum disk_way way, uint64_t size, uint64_t inodes, struct err *e)
{
	char path[32];
	const struct mount_opt opts[] = { { "source", path }, { "noinit_itable", NULL }, { NULL, NULL } };
	AUTO_CLOSE int file = -1, loop = -1;
	int r;

	size = size ? size : DISK_DEFAULT;
	if (size < 4 * MIB)
		return err_set(e, ERR_INVALID, -EINVAL, "disk: a layer on disk needs at least 4M");
	r = file = way == DISK_NEW ? disk_make(dir, id, size, inodes, e) : disk_find(dir, id, e);
	if (r >= 0)
		r = loop = attach_loop(file, path, sizeof(path), e);
	if (r >= 0)
		r = mount_new_err("ext4", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
	if (r < 0 && file >= 0 && way == DISK_NEW)
		sys_unlinkat(dir, id, 0);
	return r;
}

int disk_next(int dir, const char *id, char *ret, struct err *e)
{
	int fd = sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!d) {
		fd_close(fd);
		return err_sys(e, ERR_INTERNAL, fd < 0 ? fd : -ENOMEM, "list the disks");
	}
	while ((x = readdir(d)))
		if (id_valid(x->d_name) && strcmp(x->d_name, id) > 0 && (!ret[0] || strcmp(x->d_name, ret) < 0))
			memcpy(ret, x->d_name, ID_LEN);
	closedir(d);
	return 0;
}

static int put_aside(int dir, const char *id)
{
	char to[sizeof(DISK_QUARANTINE) + ID_SIZE + 1];
	int r = sys_mkdirat(dir, DISK_QUARANTINE, 0700);

	if (r < 0 && r != -EEXIST)
		return r;
	snprintf(to, sizeof(to), DISK_QUARANTINE "/%s", id);
	return renameat(dir, id, dir, to) < 0 ? -errno : 0;
}

int disk_remove(int dir, const char *id, enum disk_end end, struct err *e)
{
	AUTO_CLOSE int file = sys_openat(dir, id, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
	int r;

	if (file == -ENOENT)
		return 0;
	r = file < 0 ? err_sys(e, ERR_INTERNAL, file, "open disk '%s'", id) : disk_lock(file, e);
	if (r == 0)
		r = end == DISK_ASIDE ? put_aside(dir, id) : sys_unlinkat(dir, id, 0);
	return r < 0 && r != -EBUSY ? err_sys(e, ERR_INTERNAL, r, "remove disk '%s'", id) : r;
}

/*
 * A machine's own disk. It is never found again after a crash without the memory that belongs to it, so a file that takes
 * another's place need not be on the disk before it does: that would cost each upload over an older one a wait.
 */
int disk_open(const char *device, struct err *e)
{
	const struct mount_opt opts[] = { { "source", device }, { "noinit_itable", NULL }, { "noauto_da_alloc", NULL }, { NULL, NULL } };

	return mount_new_err("ext4", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}
