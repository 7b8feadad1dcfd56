/*
 * WRITE. The bytes go to a new file beside the target, which then replaces it: a reader sees the old content or the new
 * one. If that would change the owner, or the target cannot be replaced (a mount), they are copied over the old file
 * instead. If no file can be created beside it, they are written straight into it.
 */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX 40
#define TEMP_NAME 32

struct target {
	int dir;
	char name[NAME_MAX + 1];
	bool exists;
	struct stat old;
	char temp[TEMP_NAME]; /* the temporary name; "": none */
	int fd;
	bool over; /* copy the content into the old file instead of replacing it */
};

static void target_donep(struct target *t)
{
	if (t->temp[0])
		sys_unlinkat(t->dir, t->temp, 0);
	fd_close(t->dir);
	fd_close(t->fd);
}

int files_temp(int dir, char *ret_name)
{
	for (int i = 0; i < 16; i++) {
		uint64_t n;
		int fd;

		if (sys_getrandom(&n, sizeof(n), 0) != sizeof(n))
			return -EIO;
		snprintf(ret_name, TEMP_NAME, ".cloche-%016llx", (unsigned long long)n);
		fd = sys_openat(dir, ret_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd != -EEXIST) {
			if (fd < 0)
				ret_name[0] = '\0';
			return fd;
		}
	}
	ret_name[0] = '\0';
	return -EEXIST;
}

int files_copy(int from, int to)
{
	off_t at = 0;

	for (;;) {
		ssize_t n = sendfile(to, from, &at, 1024 * 1024);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
	}
}

int files_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	return syscall(SYS_renameat2, from_dir, from, to_dir, to, flags) < 0 ? -errno : 0;
}

/* Asks the kernel whether a link may be followed: in folders that everybody can write to it may refuse that. */
static int may_follow(const struct spot *s)
{
	AUTO_CLOSE int fd = spot_open(s, O_PATH);

	return fd < 0 && fd != -ENOENT ? fd : 0;
}

/* Replaces the last link by what it points to. */
static int follow(struct worker *w, struct target *t)
{
	char text[FILE_PATH_MAX], dir[FILE_PATH_MAX];
	ssize_t n = readlinkat(t->dir, t->name, text, sizeof(text) - 1);
	int fd, r;

	if (n < 0)
		return -errno;
	text[n] = '\0';
	r = path_split(text, dir, t->name);
	if (r < 0)
		return r;
	if (!t->name[0])
		return -EISDIR;
	fd = *text == '/' ? path_open(w->root, dir, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT) :
			    path_open(t->dir, dir, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	fd_close(t->dir);
	t->dir = fd;
	return 0;
}

/* Finds the folder and the name that the bytes will have, behind all links, and what is there now. */
static int find(struct worker *w, const struct spot *s, struct target *t)
{
	int r;

	if (!s->name[0])
		return -EISDIR;
	memcpy(t->name, s->name, sizeof(t->name));
	t->dir = spot_dir(w, s);
	if (t->dir < 0)
		return t->dir;
	for (int i = 0; i < LINKS_MAX; i++) {
		if (fstatat(t->dir, t->name, &t->old, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? 0 : -errno;
		if (!S_ISLNK(t->old.st_mode) || w->flags & FILE_BENEATH) {
			t->exists = true;
			return 0;
		}
		if (w->flags & FILE_EXCLUSIVE)
			return -EEXIST;
		r = i ? 0 : may_follow(s);
		if (r == 0)
			r = follow(w, t);
		if (r < 0)
			return r;
	}
	return -ELOOP;
}

static int check_old(struct worker *w, const struct target *t)
{
	bool beneath = w->flags & FILE_BENEATH;

	if (!t->exists)
		return 0;
	w->step = FILE_STEP_TYPE;
	if (w->flags & FILE_EXCLUSIVE)
		return -EEXIST;
	if (S_ISDIR(t->old.st_mode))
		return w->flags & FILE_OVER ? files_make_way(w, t->dir, t->name) : -EISDIR;
	if (beneath)
		return 0; /* a link that is not followed is replaced, as tar does */
	if (!S_ISREG(t->old.st_mode))
		return -EOPNOTSUPP;
	w->step = FILE_STEP_OPEN;
	return faccessat(t->dir, t->name, W_OK, 0) < 0 ? -errno : 0;
}

/* A file that is there, for writing; FIFOs and devices that appeared meanwhile are refused without a wait. */
static int open_old(struct worker *w, const struct target *t, int flags)
{
	AUTO_CLOSE int fd =
		sys_openat(t->dir, t->name, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC | flags, 0666);
	struct stat st;

	w->step = FILE_STEP_OPEN;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		w->step = FILE_STEP_TYPE;
		return -EOPNOTSUPP;
	}
	return TAKE_FD(fd);
}

static int open_target(struct worker *w, struct target *t)
{
	bool keep = t->exists && S_ISREG(t->old.st_mode) && !(w->flags & FILE_BENEATH);

	if (w->flags & FILE_APPEND) {
		t->fd = open_old(w, t, O_APPEND | O_CREAT);
		return t->fd < 0 ? t->fd : 0;
	}
	w->step = FILE_STEP_CREATE;
	t->fd = files_temp(t->dir, t->temp);
	if ((t->fd == -EACCES || t->fd == -EPERM || t->fd == -EROFS) && keep) {
		int r;

		t->fd = open_old(w, t, 0);
		r = t->fd < 0 ? t->fd : sys_ftruncate(t->fd, 0);
		return r;
	}
	if (t->fd < 0)
		return t->fd;
	if (keep && fchown(t->fd, t->old.st_uid, t->old.st_gid) < 0)
		t->over = true;
	return 0;
}

static int write_all(int fd, const uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = sys_write(fd, data, len);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static bool zeros(const uint8_t *p, size_t n)
{
	return !*p && !memcmp(p, p + 1, n - 1);
}

/* A hole where the host asked for that; the end is set when all has come. */
static int put_piece(const struct worker *w, int fd, const uint8_t *data, size_t len)
{
	if (!(w->flags & FILE_SPARSE) || !zeros(data, len))
		return write_all(fd, data, len);
	return lseek(fd, (off_t)len, SEEK_CUR) < 0 ? -errno : 0;
}

static int set_attrs(struct worker *w, const struct file_request *q, const struct target *t, int fd)
{
	const struct timespec ts[2] = {
		{ .tv_nsec = UTIME_OMIT },
		worker_time(q->mtime),
	};
	mode_t mode = w->flags & FILE_MODE		   ? q->mode & 0777 :
		      t->exists && S_ISREG(t->old.st_mode) ? t->old.st_mode & 0777 :
							     0644;
	bool fresh = t->temp[0] && !t->over;

	w->step = FILE_STEP_ATTR;
	/* Into an old file: its mode stays unless one is given. Appending may have made it, with the umask's mode. */
	if ((fresh || w->flags & FILE_MODE) && fchmod(fd, mode) < 0)
		return -errno;
	if (w->flags & FILE_MTIME && futimens(fd, ts) < 0)
		return -errno;
	return 0;
}

/* Makes the complete content the target. t->fd is then the target itself. */
static int place(struct worker *w, const struct file_request *q, struct target *t)
{
	int fd, r = 0;

	if (!t->over) {
		r = set_attrs(w, q, t, t->fd);
		if (r < 0 || !t->temp[0])
			return r;
		w->step = FILE_STEP_RENAME;
		r = files_rename(t->dir, t->temp, t->dir, t->name, w->flags & FILE_EXCLUSIVE ? 1U /* NOREPLACE */ : 0U);
		if (r == 0)
			t->temp[0] = '\0';
		if (r != -EBUSY)
			return r;
	}
	fd = open_old(w, t, 0);
	if (fd < 0)
		return fd;
	t->over = true;
	w->step = FILE_STEP_WRITE;
	r = sys_ftruncate(fd, 0);
	if (r == 0)
		r = files_copy(t->fd, fd);
	if (r == 0)
		r = set_attrs(w, q, t, fd);
	fd_close(t->fd);
	t->fd = fd;
	return r;
}

/* Reads and drops the content that the host still sends, up to its end. */
static void swallow(struct worker *w)
{
	struct file_frame f;

	while (worker_recv(w, &f)) {
		if (f.tag == w->tag && (f.type == FILE_END || f.type == FILE_ABORT))
			return;
		if (f.tag != w->tag || f.type != FILE_DATA)
			w->gone = true;
	}
}

static int receive(struct worker *w, struct target *t)
{
	struct file_frame f;

	w->step = FILE_STEP_WRITE;
	while (worker_recv(w, &f)) {
		int r = 0;

		if (f.tag == w->tag && f.type == FILE_END)
			return w->flags & FILE_SPARSE ? sys_ftruncate(t->fd, (off_t)w->count) : 0;
		if (f.tag == w->tag && f.type == FILE_ABORT) {
			w->step = FILE_STEP_ABORT;
			return -ECANCELED;
		}
		if (f.tag != w->tag || f.type != FILE_DATA) {
			w->gone = true;
			break;
		}
		r = put_piece(w, t->fd, f.payload, f.len);
		if (r < 0)
			return r;
		w->count += f.len;
	}
	return -EPIPE;
}

int files_write(struct worker *w, const struct file_request *q)
{
	AUTO(target_done) struct target t = { .dir = -1, .fd = -1 };
	AUTO(spot_done) struct spot s = { .base = -1 };
	char path[FILE_PATH_MAX];
	struct file_request own = *q; /* the frame's bytes are overwritten by the next */
	struct stat st;
	int r;

	memcpy(path, q->path, strlen(q->path) + 1);
	own.path = own.to = own.under = path;
	r = spot_init(&s, w, q->path, q->under);
	if (r == 0)
		r = find(w, &s, &t);
	if (r == 0)
		r = check_old(w, &t);
	if (r == 0)
		r = open_target(w, &t);
	if (r == 0) {
		r = receive(w, &t);
		if (r == -ECANCELED || w->gone)
			return r;
		if (r == 0) {
			r = place(w, &own, &t);
			if (r == 0 && fstat(t.fd, &st) < 0)
				r = -errno;
			return r < 0 ? r : worker_entry(w, path, &st, NULL, 0);
		}
	}
	/* The error is sent at once; the frames of content that still arrive are then read and dropped. */
	worker_fail(w, r);
	swallow(w);
	return WORKER_TOLD;
}
