/* Reads and writes the agent's table of execs. */
#include "proto/table.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/memfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_END (1U << 22) /* the kernel's own limit */
#define FD_END (1 << 20)
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

int table_new(void)
{
	AUTO_CLOSE int fd = sys_memfd_create("cloche-table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? fd : sys_ftruncate(fd, sizeof(struct table));

	if (r == 0)
		r = sys_fcntl(fd, F_ADD_SEALS, SEALS);
	return r < 0 ? r : TAKE_FD(fd);
}

int table_set_ahead(int fd, bool ahead)
{
	const uint32_t x = ahead;
	ssize_t n = pwrite(fd, &x, sizeof(x), offsetof(struct table, ahead));

	return n == sizeof(x) ? 0 : n < 0 ? -errno : -EIO;
}

int table_ahead(int fd)
{
	uint32_t x;
	ssize_t n = pread(fd, &x, sizeof(x), offsetof(struct table, ahead));

	return n == sizeof(x) ? x != 0 : n < 0 ? -errno : -EIO;
}

int table_is(int fd)
{
	struct stat st;
	int r = sys_fcntl(fd, F_GET_SEALS, 0);

	if (r < 0)
		return r;
	return (r & SEALS) == SEALS && fstat(fd, &st) == 0 && st.st_size == sizeof(struct table) ? 0 : -EBADMSG;
}

static bool sensible(const struct table_exec *x)
{
	if (x->flags & ~TABLE_FLAGS || !(x->flags & TABLE_USED) || x->pid >= PID_END)
		return false;
	if (!x->pid != !!(x->flags & TABLE_ENDED))
		return false;
	for (unsigned i = 0; i < TABLE_FDS; i++)
		if (x->fd[i] < -1 || x->fd[i] >= FD_END || (x->fd[i] >= 0 && !(x->flags & TABLE_KEEP)))
			return false;
	return true;
}

int table_read(int fd, struct table *ret)
{
	ssize_t n = pread(fd, ret, sizeof(*ret), 0);

	if (n < 0)
		return -errno;
	if (n != sizeof(*ret) || ret->magic != TABLE_MAGIC)
		return -EBADMSG;
	if (ret->busy & 1)
		return -EAGAIN;
	for (unsigned i = 0; i < TABLE_EXECS; i++)
		if (ret->exec[i].flags && !sensible(&ret->exec[i]))
			return -EBADMSG;
	for (unsigned i = 0; i < TABLE_WORKERS; i++)
		if (ret->worker[i] >= PID_END)
			return -EBADMSG;
	return 0;
}
