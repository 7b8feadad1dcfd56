/* Writes a file under another name, and renames it at the end. */
#include "client/outfile.h"
#include "base/base.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int outfile_open(struct outfile *o, const char *dst, struct err *e)
{
	const char *slash = strrchr(dst, '/');
	char dir[PATH_MAX];
	struct stat here;

	*o = (struct outfile)OUTFILE_INIT;
	o->dst = dst;
	if (strlen(dst) >= PATH_MAX)
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "'%.100s' is too long", dst);
	if (stat(dst, &here) == 0 && !S_ISREG(here.st_mode)) {
		o->direct = true;
		o->fd = open(dst, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	} else {
		snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - dst) + 1 : 1, slash ? dst : ".");
		o->fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	}
	if (o->fd < 0 && !o->direct) { /* not every filesystem can */
		snprintf(o->tmp, sizeof(o->tmp), "%s.cloche-XXXXXX", dst);
		o->fd = mkostemp(o->tmp, O_CLOEXEC);
		if (o->fd < 0)
			o->tmp[0] = '\0';
	}
	return o->fd < 0 ? err_sys(e, ERR_DENIED, -errno, "%.150s", dst) : 0;
}

/* Gives it a name beside its place when it has none yet, then its own. */
static int put_in_place(struct outfile *o)
{
	char self[32];

	if (!o->tmp[0]) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", o->fd);
		snprintf(o->tmp, sizeof(o->tmp), "%s.cloche-%d", o->dst, (int)getpid());
		if (linkat(AT_FDCWD, self, AT_FDCWD, o->tmp, AT_SYMLINK_FOLLOW) < 0) {
			o->tmp[0] = '\0';
			return -errno;
		}
	}
	if (rename(o->tmp, o->dst) < 0)
		return -errno;
	o->tmp[0] = '\0';
	return 0;
}

int outfile_commit(struct outfile *o, mode_t mode, struct err *e)
{
	int r;

	if (o->direct)
		return 0;
	r = fchmod(o->fd, mode) < 0 ? -errno : put_in_place(o);
	return r < 0 ? err_sys(e, ERR_DENIED, r, "%.150s", o->dst) : 0;
}

void outfile_done(struct outfile *o)
{
	int keep = errno;

	if (o->tmp[0])
		unlink(o->tmp);
	o->tmp[0] = '\0';
	fd_close(o->fd);
	o->fd = -1;
	errno = keep;
}
