/* Keeps room for the database's files. */
#include "store/ahead.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/room.h"
#include "store/impl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAL_AHEAD (MIB) /* some dozen turns: a delete takes 20 to 40 KiB */
#define WAL_LEAST (512 * KIB) /* of it: a turn that takes more is not known */
#define FILE_AHEAD (256 * KIB)
#define SHM_AHEAD (64 * KIB) /* of a log of 32 MiB */
#define PENDING_AHEAD (64 * KIB)

static int open_beside(const char *path, const char *end)
{
	char name[1100];

	snprintf(name, sizeof(name), "%s%s", path, end);
	return open(name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

void ahead_init(struct ahead *a)
{
	*a = (struct ahead){ .wal = -1, .file = -1, .shm = -1 };
}

void ahead_open(struct db *d, const char *path)
{
	struct ahead *a = &d->ahead;

	a->path = strdup(path);
	a->wal = open_beside(path, "-wal");
	a->file = open_beside(path, "");
	a->shm = open_beside(path, "-shm");
	if (a->shm >= 0)
		(void)room_ahead(a->shm, 0, SHM_AHEAD);
	ahead_keep(d);
}

static bool keep(int fd, struct ahead_part *p, uint64_t used, uint64_t len)
{
	if (used < p->used) /* it began anew, and may have been cut */
		p->end = 0;
	p->used = used;
	if (fd < 0 || used + len / 2 < p->end)
		return true;
	if (room_ahead(fd, used, len) < 0)
		return false;
	p->end = used + len;
	return true;
}

static void keep_file(struct ahead *a)
{
	struct stat st;

	if (a->file >= 0 && fstat(a->file, &st) == 0)
		keep(a->file, &a->file_part, (uint64_t)st.st_size, FILE_AHEAD);
}

void ahead_keep(struct db *d)
{
	struct ahead *a = &d->ahead;
	bool again = d->log_bytes < a->wal_part.used || !a->file_part.end;
	int r;

	if (a->wal < 0)
		return;
	if (again) /* its log was moved into it */
		keep_file(a);
	if (d->pending.fd >= 0)
		keep(d->pending.fd, &a->pending_part, d->pending.size, PENDING_AHEAD);
	if (keep(a->wal, &a->wal_part, d->log_bytes, WAL_AHEAD) || a->wal_part.end >= d->log_bytes + WAL_LEAST ||
	    !a->path)
		return;
	/* It takes what it needs from the file's own, and the next turn writes at the log's beginning. */
	r = db_checkpoint(a->path);
	if (r < 0)
		log_warn("state: move the log into the file, on a full disk: %s", strerror(-r));
}

void ahead_close(struct ahead *a)
{
	fd_close(a->wal);
	fd_close(a->file);
	fd_close(a->shm);
	free(a->path);
	ahead_init(a);
}
