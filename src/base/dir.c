/* Opens folders for reading their names. */
#include "base/dir.h"
#include "base/base.h"
#include "base/sys.h"

DIR *dir_list(int dir)
{
	int fd = sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		fd_close(fd);
		errno = fd < 0 ? -fd : ENOMEM;
	}
	return d;
}
