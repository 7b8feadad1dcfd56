/* Counts promises of disk space against what is free. */
#include "base/room.h"
#include "base/base.h"
#include "base/fd.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

int room_of_fd(int fd, struct room *ret)
{
	struct statvfs v;

	if (fstatvfs(fd, &v) < 0)
		return -errno;
	*ret = (struct room){ v.f_blocks ? (uint64_t)v.f_bavail * v.f_frsize : UINT64_MAX,
			      (uint64_t)v.f_blocks * v.f_frsize };
	return 0;
}

int room_of(int dir, const char *path, struct room *ret)
{
	AUTO_CLOSE int fd = openat(dir, path, O_PATH | O_CLOEXEC);

	return fd < 0 ? -errno : room_of_fd(fd, ret);
}

int room_ahead(int fd, uint64_t from, uint64_t len)
{
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)len) == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
		return 0;
	return -errno;
}

bool room_lacks(int errnum)
{
	errnum = abs(errnum);
	return errnum == ENOSPC || errnum == EDQUOT;
}

/* Of the whole disk a part, which is little on a large one and leaves something of a small one. */
uint64_t room_low(const struct room *r, enum room_use use)
{
	uint64_t part = r->size / 64;

	part = part < 4 * MIB ? 4 * MIB : part > 16 * MIB ? 16 * MIB : part;
	return part * use;
}
