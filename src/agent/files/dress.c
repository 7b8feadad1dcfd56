/* DRESS: what is there gets owner, mode, attributes and time as they were elsewhere. */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/change.h"

#include <sys/xattr.h>
#include <unistd.h>

static bool has_xattr(const struct file_dress *x, const char *name)
{
	const struct change_entry e = { .xattrs = x->xattrs, .xattrs_len = x->xattrs_len };
	struct change_xattr a;
	uint32_t at = 0;

	while (change_xattr_next(&e, &at, &a))
		if (!strcmp(a.name, name))
			return true;
	return false;
}

/*
 * Removes attributes that a folder, which existed before, should not have. Only kinds that changes carry
 * (layers/xattr.c).
 */
static int drop_xattrs(int fd, const struct file_dress *x)
{
	AUTO_FREE char *names = NULL;
	ssize_t n = flistxattr(fd, NULL, 0);

	if (n <= 0)
		return n < 0 && errno != ENOTSUP ? -errno : 0;
	names = malloc((size_t)n);
	if (!names)
		return -ENOMEM;
	n = flistxattr(fd, names, (size_t)n);
	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1)
		if ((!strncmp(p, "user.", 5) || !strncmp(p, "system.posix_acl_", 17)) && !has_xattr(x, p) &&
		    fremovexattr(fd, p) < 0 && errno != ENODATA)
			return -errno;
	return n < 0 ? -errno : 0;
}

static int put_xattrs(int fd, const struct file_dress *x)
{
	const struct change_entry e = { .xattrs = x->xattrs, .xattrs_len = x->xattrs_len };
	struct change_xattr a;
	uint32_t at = 0;

	while (change_xattr_next(&e, &at, &a))
		if (fsetxattr(fd, a.name, a.value, a.len, 0) < 0)
			return -errno;
	return at == x->xattrs_len ? 0 : -EBADMSG;
}

/* Sets the mode. Where folders of the host are writable, the filter refuses set-id bits, so they are left out. */
static int put_mode(int fd, mode_t mode)
{
	int r = sys_fchmod(fd, mode);

	return r == -EPERM && mode & 06000 ? sys_fchmod(fd, mode & 01777) : r;
}

/* The owner is set first, since that clears set-id bits and capabilities, and the time last. */
int files_dress(struct worker *w, const struct file_dress *x)
{
	const struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT }, worker_time(x->mtime) };
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	AUTO_CLOSE int fd = -1;
	struct stat st, is;
	int r = spot_init(&s, w, x->path, x->under);

	if (r < 0)
		return r;
	if (!s.name[0]) {
		if (!(w->flags & FILE_ROOTED))
			return -EBUSY;
		memcpy(s.name, ".", 2); /* the path is the root itself */
	}
	dir = spot_dir(w, &s);
	if (dir < 0)
		return dir;
	w->step = FILE_STEP_ATTR;
	if (fstatat(dir, s.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = sys_fchownat(dir, s.name, x->uid, x->gid, AT_SYMLINK_NOFOLLOW);
	if (r == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
		fd = sys_openat(dir, s.name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC, 0);
		r = fd < 0 ? fd : fstat(fd, &is) < 0 ? -errno : is.st_ino == st.st_ino ? 0 : -ESTALE;
		if (r == 0)
			r = put_mode(fd, x->mode & 07777);
		if (r == 0)
			r = drop_xattrs(fd, x);
		if (r == 0)
			r = put_xattrs(fd, x);
	}
	if (r == 0 && utimensat(dir, s.name, ts, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	return r < 0 ? r : worker_entry_at(w, x->path, dir, s.name);
}
