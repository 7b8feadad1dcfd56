/*
 * POSIX message queues belong to the sandbox's IPC namespace, as System V objects do, and outlive the processes that
 * made them. A message can only be read by taking it from its queue, so no image can hold them, and they are refused by
 * name. A queue without a name is refused where a process has it open (object_file.c).
 */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"

#include <dirent.h>
#include <sys/vfs.h>

#define MQUEUE_MAGIC 0x19800202L

int queue_refuse(const struct dump *d, struct err *e)
{
	const struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK,
				      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	int fd = sys_openat2(d->root, "dev/mqueue", &how), r = 0;
	struct statfs fs = { 0 };
	struct dirent *x;
	DIR *dir;

	/* The kernel has no POSIX message queues, or an earlier version has made the sandbox without them. */
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "open the sandbox's /dev/mqueue");
	if (fstatfs(fd, &fs) == 0 && fs.f_type != MQUEUE_MAGIC) {
		fd_close(fd);
		return 0;
	}
	dir = fdopendir(fd);
	if (!dir) {
		r = err_sys(e, ERR_INTERNAL, -errno, "read the sandbox's /dev/mqueue");
		fd_close(fd);
		return r;
	}
	while (r == 0 && (x = readdir(dir)))
		if (strcmp(x->d_name, ".") && strcmp(x->d_name, ".."))
			r = err_set(
				e, ERR_UNSUPPORTED, -EOPNOTSUPP,
				"the sandbox has a POSIX message queue (/%.100s), which a memory checkpoint cannot hold",
				x->d_name);
	closedir(dir);
	return r;
}
