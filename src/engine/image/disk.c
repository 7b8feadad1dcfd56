/* Makes, mounts and removes the disks of sandboxes. */
#include "engine/image/disk.h"
#include "base/base.h"
#include "base/dir.h"
#include "base/id.h"
#include "base/sys.h"
#include "linux/loop.h"
#include "linux/mount.h"

#include <sys/file.h>
#include <unistd.h>

#define DISK_DEFAULT (16ULL * GIB)
#define DISK_FOLDER "/var/tmp"
#define DISK_SMALL (16 * MIB)

int disk_size(int file, uint64_t size, struct err *e)
{
	int r = size > INT64_MAX ? -EFBIG : sys_ftruncate(file, (off_t)size);

	if (r == -EFBIG || r == -EINVAL)
		return err_advise(e, WHY_HOST_TOO_SMALL, r, "request a smaller disk",
				  "disk: a file of %llu bytes is larger than the file system here allows",
				  (unsigned long long)size);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "disk: size %llu", (unsigned long long)size) : 0;
}

/* @journal: what it takes in MiB, on top of what was asked for. */
static int format(const struct image_filler *by, int file, uint64_t size, uint64_t inodes, uint64_t journal,
		  struct err *e)
{
	int r = disk_size(file, size + journal * MIB, e);

	return r < 0 ? r :
		       by->fill(by->program,
				&(struct image_fill){ IMAGE_DISK, file, inodes ? inodes : size / 8192, journal }, e);
}

static int check_size(uint64_t *size, struct err *e)
{
	*size = *size ? *size : DISK_DEFAULT;
	return *size < 4 * MIB ? err_set(e, ERR_INVALID, -EINVAL, "disk: a layer on disk needs at least 4M") : 0;
}

static int mount_file(int file, struct err *e)
{
	char path[32];
	const struct mount_opt opts[] = { { "source", path }, { "noinit_itable", NULL }, { NULL, NULL } };
	AUTO_CLOSE int loop = loop_attach(file, path, sizeof(path), e);

	return loop < 0 ? loop : mount_new_err("ext4", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}

int disk_new(const struct image_filler *by, uint64_t size, uint64_t inodes, struct err *e)
{
	AUTO_CLOSE int file = -1;
	int r = check_size(&size, e);

	if (r < 0)
		return r;
	file = sys_openat(AT_FDCWD, DISK_FOLDER, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (file < 0)
		return err_sys(e, ERR_UNSUPPORTED, file, "disk layer: make an unnamed file in " DISK_FOLDER);
	r = format(by, file, size, inodes, 0, e);
	return r < 0 ? r : mount_file(file, e);
}

static int disk_lock(int file, struct err *e)
{
	if (flock(file, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return err_sys(e, ERR_INTERNAL, -errno, "lock a disk");
	return err_advise(e, ERR_CONFLICT, -EBUSY, "try again in a moment", "the sandbox's disk is still in use");
}

static int disk_make(const struct image_filler *by, int dir, const char *id, uint64_t size, uint64_t inodes,
		     struct err *e)
{
	AUTO_CLOSE int file = sys_openat(dir, id, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (file < 0)
		return err_sys(e, ERR_INTERNAL, file, "make disk '%s'", id);
	r = disk_lock(file, e);
	if (r == 0)
		r = format(by, file, size, inodes, size < DISK_SMALL ? 1 : 4, e);
	/* The caller gets the sandbox as an answer, so its disk must survive a power cut. */
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

int disk_kept(const struct image_filler *by, int dir, const char *id, enum disk_way way, uint64_t size, uint64_t inodes,
	      struct err *e)
{
	AUTO_CLOSE int file = -1;
	int r = check_size(&size, e);

	if (r < 0)
		return r;
	r = file = way == DISK_NEW ? disk_make(by, dir, id, size, inodes, e) : disk_find(dir, id, e);
	if (r >= 0)
		r = mount_file(file, e);
	if (r < 0 && file >= 0 && way == DISK_NEW)
		sys_unlinkat(dir, id, 0);
	return r;
}

int disk_next(int dir, const char *id, char *ret, struct err *e)
{
	DIR *d = dir_list(dir);
	struct dirent *x;

	if (!d)
		return err_sys(e, ERR_INTERNAL, -errno, "list the disks");
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
	const struct mount_opt opts[] = {
		{ "source", device }, { "noinit_itable", NULL }, { "noauto_da_alloc", NULL }, { NULL, NULL }
	};

	return mount_new_err("ext4", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}
