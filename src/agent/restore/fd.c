/* Descriptors of a restore: their place above those of the processes, and the content of files that the image holds. */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <unistd.h>

int restore_high(const struct restore *r, int fd)
{
	int high = sys_fcntl(fd, F_DUPFD_CLOEXEC, r->base);

	fd_close(fd);
	return high;
}

int restore_runs(struct restore *r, struct mem_range range, int to)
{
	for (uint32_t i = 0; i < range.n; i++) {
		const struct mem_run *run = &r->m.run[range.first + i];
		off_t from = (off_t)run->off;
		uint64_t left = run->len;

		if (lseek(to, (off_t)run->start, SEEK_SET) < 0)
			return -errno;
		while (left) {
			ssize_t n = sendfile(to, r->pages[run->file], &from, left);

			if (n <= 0)
				return n < 0 ? -errno : -EIO;
			left -= (uint64_t)n;
		}
	}
	return 0;
}
