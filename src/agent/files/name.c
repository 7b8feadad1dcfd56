/* Operations on names: stat, make a folder, move, link, attributes. */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"

#include <unistd.h>

int files_stat(struct worker *w, const struct file_request *q)
{
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	int r = spot_init(&s, w, q->path, q->under);

	if (r < 0)
		return r;
	dir = spot_dir(w, &s);
	return dir < 0 ? dir : worker_entry_at(w, q->path, dir, s.name);
}

/* Sets mode and time of the file or folder @name; "": of @dir itself. Of a link only the time can be set. */
static int set_attrs(struct worker *w, const struct file_request *q, int dir, const char *name)
{
	const struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, worker_time(q->mtime) };

	w->step = FILE_STEP_ATTR;
	if (w->flags & FILE_MODE) {
		AUTO_CLOSE int fd = -1;
		struct stat st;

		/* The type is checked before the file is opened, since opening a device has effects. */
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH)) < 0)
			return -errno;
		if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
			return -EOPNOTSUPP;
		fd = sys_openat(dir, *name ? name : ".", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC, 0);
		if (fd < 0)
			return fd;
		if (fchmod(fd, q->mode & (S_ISDIR(st.st_mode) ? 01777 : 0777)) < 0)
			return -errno;
	}
	if (w->flags & FILE_MTIME && utimensat(dir, *name ? name : ".", ts, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

int files_attr(struct worker *w, const struct file_request *q)
{
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	int r = spot_init(&s, w, q->path, q->under);

	if (r < 0)
		return r;
	dir = spot_dir(w, &s);
	if (dir < 0)
		return dir;
	r = set_attrs(w, q, dir, s.name);
	return r < 0 ? r : worker_entry_at(w, q->path, dir, s.name);
}

int files_mkdir(struct worker *w, const struct file_request *q)
{
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	struct stat st;
	int r = spot_init(&s, w, q->path, q->under);

	if (r < 0)
		return r;
	dir = spot_dir(w, &s);
	if (dir < 0)
		return dir;
	w->step = FILE_STEP_CREATE;
	r = s.name[0] ? sys_mkdirat(dir, s.name, 0777) : -EEXIST;
	if (r == 0)
		r = set_attrs(w, q, dir, s.name);
	else if (r == -EEXIST && w->flags & FILE_PARENTS && !(w->flags & FILE_EXCLUSIVE)) {
		/*
		 * An existing folder stays as it is. A link to a folder counts as one, unless links are not followed.
		 */
		int follow = w->flags & FILE_BENEATH ? AT_SYMLINK_NOFOLLOW : 0;

		r = 0;
		if (s.name[0] && (fstatat(dir, s.name, &st, follow) < 0 || !S_ISDIR(st.st_mode)))
			r = -EEXIST;
	}
	return r < 0 ? r : worker_entry_at(w, q->path, dir, s.name);
}

/* Moves a file to another file system: a copy gets the new name, then the old name is removed. */
static int move_across(int from, const char *name, int to, const char *to_name, unsigned flags)
{
	AUTO_CLOSE int in = -1;
	AUTO_CLOSE int out = -1;
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT } };
	char temp[32];
	struct stat st;
	int r;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EXDEV;
	in = sys_openat(from, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (in < 0)
		return in;
	if (fstat(in, &st) < 0 || !S_ISREG(st.st_mode))
		return -EXDEV;
	out = files_temp(to, temp);
	if (out < 0)
		return out;
	ts[1] = st.st_mtim;
	r = files_copy(in, out);
	if (r == 0 && fchown(out, st.st_uid, st.st_gid) < 0 && errno != EPERM)
		r = -errno;
	if (r == 0 && (fchmod(out, st.st_mode & 0777) < 0 || futimens(out, ts) < 0))
		r = -errno;
	if (r == 0)
		r = files_rename(to, temp, to, to_name, flags);
	if (r < 0) {
		sys_unlinkat(to, temp, 0);
		return r;
	}
	return sys_unlinkat(from, name, 0);
}

int files_move(struct worker *w, const struct file_request *q)
{
	unsigned flags = w->flags & FILE_EXCLUSIVE ? 1U : 0U; /* RENAME_NOREPLACE */
	AUTO(spot_done) struct spot a = { .base = -1 };
	AUTO(spot_done) struct spot b = { .base = -1 };
	AUTO_CLOSE int from = -1;
	AUTO_CLOSE int to = -1;
	int r = spot_init(&a, w, q->path, q->under);

	if (r == 0)
		r = spot_init(&b, w, q->to, q->under);
	if (r < 0)
		return r;
	from = path_open(a.base, a.dir, O_PATH | O_DIRECTORY, a.resolve);
	if (from < 0)
		return from;
	if (a.name[0] && faccessat(from, a.name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno; /* before folders are made for it */
	to = spot_dir(w, &b);
	if (to < 0)
		return to;
	w->step = FILE_STEP_RENAME;
	if (!a.name[0] || !b.name[0])
		return -EBUSY;
	r = files_rename(from, a.name, to, b.name, flags);
	if (r == -EXDEV)
		r = move_across(from, a.name, to, b.name, flags);
	return r < 0 ? r : worker_entry_at(w, q->to, to, b.name);
}

/* Removes what has the name that a link shall get; folders only with FILE_OVER. */
static int clear(struct worker *w, int dir, const char *name)
{
	int r = w->flags & FILE_EXCLUSIVE ? -EEXIST : sys_unlinkat(dir, name, 0);

	if (r == -EISDIR && w->flags & FILE_OVER)
		r = files_make_way(w, dir, name);
	return r == -ENOENT ? 0 : r;
}

int files_symlink(struct worker *w, const struct file_request *q)
{
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	int r = spot_init(&s, w, q->path, q->under);

	if (r < 0)
		return r;
	if (!s.name[0])
		return -EEXIST;
	dir = spot_dir(w, &s);
	if (dir < 0)
		return dir;
	w->step = FILE_STEP_CREATE;
	r = sys_symlinkat(q->to, dir, s.name);
	if (r == -EEXIST) {
		r = clear(w, dir, s.name);
		if (r == 0)
			r = sys_symlinkat(q->to, dir, s.name);
	}
	if (r < 0)
		return r;
	w->flags &= ~(unsigned)FILE_MODE;
	r = set_attrs(w, q, dir, s.name);
	return r < 0 ? r : worker_entry_at(w, q->path, dir, s.name);
}

int files_fifo(struct worker *w, const struct file_request *q)
{
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	mode_t mask;
	int r = spot_init(&s, w, q->path, q->under);

	if (r < 0)
		return r;
	if (!s.name[0])
		return -EEXIST;
	dir = spot_dir(w, &s);
	if (dir < 0)
		return dir;
	w->step = FILE_STEP_CREATE;
	r = clear(w, dir, s.name);
	/* The node is created with its mode: changing the mode later would need opening it, or trusting its name. */
	mask = umask(0);
	if (r == 0)
		r = sys_mknodat(dir, s.name, S_IFIFO | (q->mode & 0777), 0);
	umask(mask);
	return r < 0 ? r : worker_entry_at(w, q->path, dir, s.name);
}

int files_link(struct worker *w, const struct file_request *q)
{
	AUTO(spot_done) struct spot a = { .base = -1 };
	AUTO(spot_done) struct spot b = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	AUTO_CLOSE int old = -1;
	struct stat st, there;
	int r = spot_init(&a, w, q->path, q->under);

	if (r == 0)
		r = spot_init(&b, w, q->to, q->under);
	if (r < 0)
		return r;
	if (!a.name[0] || !b.name[0])
		return -EISDIR;
	old = path_open(b.base, b.dir, O_PATH | O_DIRECTORY, b.resolve);
	if (old < 0)
		return old;
	if (fstatat(old, b.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	dir = spot_dir(w, &a);
	if (dir < 0)
		return dir;
	w->step = FILE_STEP_TYPE;
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EOPNOTSUPP;
	w->step = FILE_STEP_CREATE;
	/* The same file under both names: removing one to make it again would lose it. */
	if (fstatat(dir, a.name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_dev == st.st_dev &&
	    there.st_ino == st.st_ino)
		return worker_entry_at(w, q->path, dir, a.name);
	r = linkat(old, b.name, dir, a.name, 0) < 0 ? -errno : 0;
	if (r == -EEXIST) {
		r = clear(w, dir, a.name);
		if (r == 0 && linkat(old, b.name, dir, a.name, 0) < 0)
			r = -errno;
	}
	return r < 0 ? r : worker_entry_at(w, q->path, dir, a.name);
}
