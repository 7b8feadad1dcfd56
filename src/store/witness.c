/* Reads and writes the mark that ties the database to its folder. */
#include "store/witness.h"
#include "base/base.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "cloche state id 1\n"
#define BOOT 40
#define NEW WITNESS_FILE ".new"

struct content {
	char magic[24];
	char id[32];
	char boot[BOOT];
	uint64_t turn, pending;
};

static int fill(const struct witness *w, struct content *ret)
{
	ssize_t n;

	*ret = (struct content){ .magic = MAGIC, .turn = w->turn, .pending = w->pending };
	memcpy(ret->id, w->id, sizeof(w->id));
	n = fd_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret->boot, sizeof(ret->boot));
	return n < 0 ? (int)n : 0;
}

static int open_folder(const char *folder, struct err *e)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_sys(e, ERR_INTERNAL, -errno, "open the data folder") : fd;
}

int witness_open(const char *folder, struct witness *ret, struct err *e)
{
	AUTO_CLOSE int dir = open_folder(folder, e), fd = -1;
	struct witness w = { .fd = -1 };
	struct content x, now;
	struct stat st;
	ssize_t n;
	int r;

	if (dir < 0)
		return dir;
	fd = openat(dir, WITNESS_FILE, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "open '" WITNESS_FILE "'");
	n = S_ISREG(st.st_mode) ? pread(fd, &x, sizeof(x), 0) : 0;
	if (n != (ssize_t)sizeof(x) || memcmp(x.magic, MAGIC, sizeof(MAGIC)) || x.id[ID_LEN] || !id_valid(x.id) ||
	    x.boot[BOOT - 1])
		return err_set(e, ERR_CONFLICT, -EBADMSG,
			       "the file " WITNESS_FILE ", which identifies the database, is damaged");
	memcpy(w.id, x.id, sizeof(w.id));
	r = fill(&w, &now);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read the boot's id");
	w.now = !memcmp(now.boot, x.boot, sizeof(now.boot));
	w.turn = x.turn;
	w.pending = x.pending;
	w.fd = TAKE_FD(fd);
	*ret = w;
	return 1;
}

int witness_make(const char *folder, struct witness *w, struct err *e)
{
	AUTO_CLOSE int dir = open_folder(folder, e), fd = -1;
	struct content x;
	int r;

	if (dir < 0)
		return dir;
	r = fill(w, &x);
	if (r == 0) {
		fd = openat(dir, NEW, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
		r = fd < 0 ? -errno : fd_write_all(fd, &x, sizeof(x));
	}
	if (r == 0 && (fdatasync(fd) < 0 || renameat(dir, NEW, dir, WITNESS_FILE) < 0 || fsync(dir) < 0))
		r = -errno;
	if (r < 0)
		return err_sys(e, r == -ENOSPC ? WHY_NO_HOST_SPACE : WHY_INTERNAL, r, "write '" WITNESS_FILE "'");
	witness_done(w);
	w->fd = TAKE_FD(fd);
	w->now = true;
	return 0;
}

void witness_write(const struct witness *w)
{
	const uint64_t numbers[2] = { w->turn, w->pending };

	if (w->fd >= 0)
		(void)!pwrite(w->fd, numbers, sizeof(numbers), offsetof(struct content, turn));
}

void witness_done(struct witness *w)
{
	fd_close(w->fd);
	w->fd = -1;
}
