/*
 * Locks and leases of files, taken by the process that had each, as its user. No restored process runs yet, so whatever
 * was locked can be locked again, in any order. POSIX locks come last of all, since one is lost with the first
 * descriptor of its file that the process closes (map.c).
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>

#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif
#ifndef F_SETLEASE
#define F_SETLEASE 1024
#endif

struct flock restore_flock(const struct mem_lock *k)
{
	return (struct flock){ .l_type = k->type ? F_WRLCK : F_RDLCK,
			       .l_whence = SEEK_SET,
			       .l_start = (off_t)k->start,
			       .l_len = (off_t)k->len };
}

uint32_t restore_number(const struct restore *r, const struct mem_proc *p, uint32_t object)
{
	for (uint32_t i = 0; i < p->fd.n; i++)
		if (r->m.fd[p->fd.first + i].object == object)
			return r->m.fd[p->fd.first + i].num;
	return MEM_NONE;
}

/*
 * Breaks the lease by opening the file without waiting, as it had been broken before. The signal for that was taken
 * before the image was made, or is in the image, so the one that arrives now is dropped.
 */
static int break_lease(int fd, int how)
{
	static const struct timespec now;
	char path[64];
	sigset_t told;
	int x;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	x = sys_openat(AT_FDCWD, path, how | O_NONBLOCK | O_CLOEXEC, 0);
	fd_close(x);
	if (x != -EWOULDBLOCK)
		return x < 0 ? x : -EBUSY;
	sigemptyset(&told);
	sigaddset(&told, SIGIO);
	sigtimedwait(&told, NULL, &now);
	return 0;
}

int restore_locks(const struct restore *r, const struct mem_proc *p)
{
	int x = 0;

	for (uint32_t i = 0; x >= 0 && i < r->m.n[MEM_S_LOCK]; i++) {
		const struct mem_lock *k = &r->m.lock[i];
		const struct flock range = restore_flock(k);
		int fd = r->object[k->object];

		if (k->pid != p->pid)
			continue;
		switch ((enum mem_lock_kind)k->kind) {
		case MEM_LOCK_FLOCK:
			x = flock(fd, (k->type ? LOCK_EX : LOCK_SH) | LOCK_NB) < 0 ? -errno : 0;
			break;
		case MEM_LOCK_OFD:
			x = sys_fcntl(fd, F_OFD_SETLK, (long)(uintptr_t)&range);
			break;
		case MEM_LOCK_LEASE:
			x = sys_fcntl(fd, F_SETLEASE, k->type ? F_WRLCK : F_RDLCK);
			break;
		case MEM_LOCK_BREAKING:
			x = sys_fcntl(fd, F_SETLEASE, k->type ? F_WRLCK : F_RDLCK);
			if (x >= 0)
				x = break_lease(fd, k->start ? O_RDONLY : O_WRONLY);
			break;
		case MEM_LOCK_POSIX:
			break;
		}
	}
	return x;
}
