/* The files by which a sandbox sees its memory and load: opening and writing them. */
#include "engine/rootfs/shown.h"
#include "base/base.h"
#include "base/sys.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool in_memory(int fd)
{
	struct statfs fs;

	return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static int shown_open(int writable, const char *name, int flags)
{
	char apart[32];
	int fd;

	if (in_memory(writable))
		return sys_openat(writable, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	snprintf(apart, sizeof(apart), SHOWN_APART "/%s", name);
	fd = sys_openat(writable, apart, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	return fd == -ENOENT ? sys_openat(writable, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0) : fd;
}

void shown_live(int writable, int ret[2])
{
	AUTO_CLOSE int meminfo = writable < 0 ? -1 : shown_open(writable, "meminfo", O_WRONLY), loadavg = -1;

	if (in_memory(meminfo))
		loadavg = shown_open(writable, "loadavg", O_WRONLY);
	ret[0] = loadavg < 0 ? -1 : TAKE_FD(meminfo);
	ret[1] = TAKE_FD(loadavg);
}

int shown_rewrite(int fd, const char *text, size_t n)
{
	const ssize_t w = pwrite(fd, text, n, 0);

	if (w != (ssize_t)n)
		return w < 0 ? -errno : -EIO;
	/* One that was longer. A reader in between sees an empty line more. */
	return ftruncate(fd, (off_t)n) < 0 ? -errno : 0;
}

int shown_write(int writable, const char *name, const char *text, size_t n)
{
	AUTO_CLOSE int fd = shown_open(writable, name, O_WRONLY);

	return fd < 0 ? fd : shown_rewrite(fd, text, n);
}
