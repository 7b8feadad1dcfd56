/* Copies trees of files into a layer, and joins the trees of two layers. */
#include "layers/tree.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/copy_pipeline.h"
#include "layers/flush.h"
#include "layers/walk.h"
#include "layers/xattr.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define SMALL (64U << 10) /* files up to this size are not searched for holes */

static bool stopped(const int *stop)
{
	return stop && __atomic_load_n(stop, __ATOMIC_RELAXED);
}

static int put_all(int fd, const char *data, size_t len, off_t at)
{
	while (len) {
		ssize_t n = pwrite(fd, data, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int copy_range(const struct tree_copy *c, int from, int to, off_t at, off_t end)
{
	while (at < end) {
		size_t want = end - at < (off_t)TREE_BUF ? (size_t)(end - at) : TREE_BUF;
		ssize_t n = pread(from, c->buf, want, at);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ESTALE; /* it became shorter */
		r = stopped(c->stop) ? -ECANCELED : put_all(to, c->buf, (size_t)n, at);
		if (r < 0)
			return r;
		at += n;
		if (at / FLUSH_STEP != (at - n) / FLUSH_STEP)
			flush_more(c->flush, to);
	}
	return 0;
}

/* Whether the file has no holes, on the disk or in memory. */
static bool is_dense(const struct stat *st)
{
	return st->st_blocks >= st->st_size / 512 + !!(st->st_size % 512);
}

static int copy_data(const struct tree_copy *c, int from, int to, const struct stat *st)
{
	off_t at = 0, size = st->st_size;
	int r = 0;

	if (size <= (off_t)SMALL || is_dense(st))
		return copy_range(c, from, to, 0, size);
	while (r == 0 && at < size) {
		off_t data = lseek(from, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break; /* only a hole is left */
		hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
		if (hole < 0)
			return -errno;
		hole = hole < size ? hole : size;
		r = data < hole ? copy_range(c, from, to, data, hole) : -ESTALE;
		at = hole;
	}
	return r == 0 ? sys_ftruncate(to, size) : r;
}

/* Ids outside of the sandbox's range become the overflow id 65534; our own root, which makes whiteouts, becomes root. */
static uint32_t inside(uint32_t id, uint32_t base)
{
	return id >= base && id - base < TREE_IDS ? id - base : id ? 65534 : 0;
}

/* Sets the attributes of a file. Owner first: changing it clears set-id bits and capabilities. Times last. */
static int dress_fd(const struct tree_copy *c, int from, int to, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int r = sys_fchownat(to, "", inside(st->st_uid, c->uid_base), inside(st->st_gid, c->uid_base), AT_EMPTY_PATH);

	if (r == 0)
		r = sys_fchmod(to, st->st_mode & 07777);
	if (r == 0)
		r = xattr_copy(from, to, c->uid_base, c->buf);
	if (r == 0 && futimens(to, times) < 0)
		r = -errno;
	return r;
}

static int dress_name(const struct tree_copy *c, int dir, const char *name, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };
	int r = sys_fchownat(dir, name, inside(st->st_uid, c->uid_base), inside(st->st_gid, c->uid_base),
			     AT_SYMLINK_NOFOLLOW);

	if (r == 0 && !S_ISLNK(st->st_mode) && fchmodat(dir, name, st->st_mode & 07777, 0) < 0)
		r = -errno;
	if (r == 0 && utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	return r;
}

static int copy_file(const struct tree_copy *c, int src, int dst, const char *name, const struct stat *st)
{
	AUTO_CLOSE int from = sys_openat(src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0), to = -1;
	struct stat is;
	int r;

	if (from < 0)
		return from;
	if (fstat(from, &is) < 0)
		return -errno;
	if (is.st_ino != st->st_ino || !S_ISREG(is.st_mode))
		return -ESTALE;
	to = sys_openat(dst, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return to;
	flush_file_add(c->flush, to);
	r = c->heirs ? xattr_disinherit(to) : 0;
	if (r < 0)
		return r;
	r = copy_pipeline_file(c->pipeline, c->digests, from, to, &is, inside(is.st_uid, c->uid_base),
			       inside(is.st_gid, c->uid_base));
	if (r != 0)
		return r < 0 ? r : 0;
	r = copy_data(c, from, to, &is);
	return r == 0 ? dress_fd(c, from, to, &is) : r;
}

static int copy_symlink(const struct tree_copy *c, int src, int dst, const char *name, const struct stat *st)
{
	char target[4097];
	ssize_t n = readlinkat(src, name, target, sizeof(target));
	int r;

	if (n < 0)
		return -errno;
	if (n == (ssize_t)sizeof(target))
		return -ENAMETOOLONG;
	target[n] = '\0';
	r = sys_symlinkat(target, dst, name);
	return r == 0 ? dress_name(c, dst, name, st) : r;
}

static int copy_node(const struct tree_copy *c, int dst, const char *name, const struct stat *st)
{
	int r = sys_mknodat(dst, name, (st->st_mode & S_IFMT) | 0600, (unsigned)st->st_rdev);

	return r == 0 ? dress_name(c, dst, name, st) : r;
}

static int copy_new(const struct tree_copy *c, int src, int dst, const char *name, const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return copy_file(c, src, dst, name, st);
	flush_other(c->flush);
	if (S_ISLNK(st->st_mode))
		return copy_symlink(c, src, dst, name, st);
	return copy_node(c, dst, name, st);
}

static int make_links(const struct tree_copy *c)
{
	int r = *c->links >= 0 ? 0 : sys_mkdirat(c->beside, "links", 0700);

	if (r == 0 && *c->links < 0)
		r = *c->links = sys_openat(c->beside, "links", FOLDER, 0);
	return r < 0 ? r : 0;
}

/* A file with several names is linked into ->links under its inode number, where the next name finds it. */
static int copy_linked(const struct tree_copy *c, int src, int dst, const char *name, const struct stat *st)
{
	char number[24];
	int r = make_links(c);

	if (r < 0)
		return r;
	flush_other(c->flush);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)st->st_ino);
	if (linkat(*c->links, number, dst, name, 0) == 0)
		return 0;
	/* The file has more names than the store's filesystem allows: the copy becomes another file. */
	if (errno != ENOENT && errno != EMLINK)
		return -errno;
	if (errno == EMLINK)
		sys_unlinkat(*c->links, number, 0);
	r = copy_new(c, src, dst, name, st);
	if (r == 0 && linkat(dst, name, *c->links, number, 0) < 0)
		r = -errno;
	return r;
}

static int copy_entry(const struct tree_copy *c, struct walk *w, int *dst, const char *name)
{
	struct stat st;
	int fd, r;

	if (fstatat(w->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (st.st_dev != w->level[0].dev)
		return -EXDEV;
	if (!S_ISDIR(st.st_mode))
		return st.st_nlink > 1 ? copy_linked(c, w->fd, *dst, name, &st) : copy_new(c, w->fd, *dst, name, &st);
	r = sys_mkdirat(*dst, name, 0700);
	if (r < 0)
		return r;
	r = fd = sys_openat(*dst, name, FOLDER, 0);
	if (r >= 0)
		r = walk_down(w, name);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	fd_close(*dst);
	*dst = fd;
	flush_enter(c->flush);
	return 0;
}

/* Sets a folder's attributes when its content is complete, so that its time is not changed again. */
static int leave(const struct tree_copy *c, struct walk *w, int *dst)
{
	struct stat st;
	int r, up;

	if (fstat(w->fd, &st) < 0)
		return -errno;
	flush_leave(c->flush, *dst);
	r = dress_fd(c, w->fd, *dst, &st);
	if (r < 0 || w->depth == 1)
		return r < 0 ? r : 1;
	r = walk_up(w);
	if (r < 0)
		return r;
	up = sys_openat(*dst, "..", FOLDER, 0);
	if (up < 0)
		return up;
	fd_close(*dst);
	*dst = up;
	return 0;
}

bool tree_is_bare(int dir, uint32_t uid_base)
{
	AUTO_CLOSE int own = sys_openat(dir, ".", FOLDER, 0);
	struct stat st;
	struct walk w;
	bool bare;

	if (own < 0 || fstat(own, &st) < 0 || (st.st_mode & 07777) != 0755 || st.st_uid != uid_base ||
	    st.st_gid != uid_base || !xattr_none(own))
		return false;
	bare = walk_begin(&w, TAKE_FD(own), false) == 0 && !walk_next(&w);
	walk_done(&w);
	return bare;
}

/*
 * Notes the path of the file that the error is about: @name in the walk's current folder, or NULL: that folder. As much
 * of the path as fits.
 */
static void tell_odd(const struct tree_copy *c, const struct walk *w, const char *name)
{
	const size_t n = w->depth - !name;
	size_t at = 0;

	if (!c->odd)
		return;
	c->odd[0] = '\0';
	for (size_t i = 0; i < n && at < TREE_ODD; i++)
		at += (size_t)snprintf(c->odd + at, TREE_ODD - at, "%s%s", i ? "/" : "",
				       w->level[i].name[w->level[i].at - 1]);
}

int tree_copy(const struct tree_copy *c, int from, int to)
{
	AUTO_CLOSE int dst = sys_openat(to, ".", FOLDER, 0);
	int src = sys_openat(from, ".", FOLDER, 0), r;
	struct walk w;

	if (dst < 0 || src < 0) {
		fd_close(src);
		return dst < 0 ? dst : src;
	}
	r = walk_begin(&w, src, false);
	/*
	 * After this nothing in it inherits an access list either: folders get theirs when their content is complete.
	 */
	if (r == 0)
		r = xattr_disinherit(dst);
	flush_enter(c->flush);
	while (r == 0) {
		const char *name = walk_next(&w);

		r = stopped(c->stop) ? -ECANCELED : name ? copy_entry(c, &w, &dst, name) : leave(c, &w, &dst);
		if (r == -ERANGE)
			tell_odd(c, &w, name);
	}
	walk_done(&w);
	return r < 0 ? r : 0;
}

/* Joining two trees */

#define OPAQUE "trusted.overlay.opaque"

/* The attributes that a folder in the lower tree is to get when it is left. */
struct joint {
	bool fresh;
	struct timespec times[2];
};

struct join {
	const struct tree_copy *c;
	struct walk w;
	int dst; /* the existing folder that the walk's is joined with */
	struct joint *joint; /* one per level below the first */
	size_t room;
	struct joint top;
};

static struct joint *joint_at(struct join *j, size_t depth)
{
	return depth == 1 ? &j->top : &j->joint[depth - 2];
}

static bool is_opaque(int dir)
{
	char v = 0;

	return fgetxattr(dir, OPAQUE, &v, 1) == 1 && v == 'y';
}

static int make_opaque(int dir)
{
	return fsetxattr(dir, OPAQUE, "y", 1, 0) < 0 ? -errno : 0;
}

/* Enters @name of the existing tree; @fd, which it takes over, is the folder that is joined with it. */
static int join_down(struct join *j, const char *name, int fd, const struct joint *as)
{
	int r = 0;

	if (j->w.depth > j->room) {
		size_t room = j->room ? j->room * 2 : 32;
		struct joint *more = realloc(j->joint, room * sizeof(*more));

		r = more ? 0 : -ENOMEM;
		j->joint = more ? more : j->joint;
		j->room = more ? room : j->room;
	}
	if (r == 0)
		r = walk_down(&j->w, name);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	*joint_at(j, j->w.depth) = *as;
	fd_close(j->dst);
	j->dst = fd;
	return 0;
}

static int join_new(struct join *j, const char *name, const struct stat *st)
{
	int r, fd;

	if (!S_ISDIR(st->st_mode))
		return st->st_nlink > 1 ? copy_linked(j->c, j->w.fd, j->dst, name, st) :
					  copy_new(j->c, j->w.fd, j->dst, name, st);
	r = sys_mkdirat(j->dst, name, 0700);
	if (r < 0)
		return r;
	fd = sys_openat(j->dst, name, FOLDER, 0);
	if (fd < 0)
		return fd;
	r = xattr_disinherit(fd);
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	return join_down(j, name, fd, &(struct joint){ .fresh = true });
}

static int join_entry(struct join *j, const char *name)
{
	AUTO_CLOSE int fd = -1;
	struct stat st, is;

	if (fstatat(j->w.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (st.st_dev != j->w.level[0].dev)
		return -EXDEV;
	if (fstatat(j->dst, name, &is, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? join_new(j, name, &st) : -errno;
	if (!S_ISDIR(is.st_mode))
		return 0; /* a file, or a whiteout, hides the folder */
	fd = sys_openat(j->dst, name, FOLDER, 0);
	if (fd < 0)
		return fd;
	if (is_opaque(fd))
		return 0;
	/* A folder hides a lower file of the same name, and everything below it. */
	if (!S_ISDIR(st.st_mode))
		return make_opaque(fd);
	return join_down(j, name, TAKE_FD(fd), &(struct joint){ .times = { is.st_atim, is.st_mtim } });
}

static int join_leave(struct join *j)
{
	const struct joint *as = joint_at(j, j->w.depth);
	struct stat st;
	int r = 0, up;

	if (fstat(j->w.fd, &st) < 0)
		return -errno;
	if (as->fresh)
		r = dress_fd(j->c, j->w.fd, j->dst, &st);
	else if (is_opaque(j->w.fd))
		r = make_opaque(j->dst);
	if (r == 0 && !as->fresh && futimens(j->dst, as->times) < 0)
		r = -errno;
	if (r < 0 || j->w.depth == 1)
		return r < 0 ? r : 1;
	r = walk_up(&j->w);
	if (r < 0)
		return r;
	up = sys_openat(j->dst, "..", FOLDER, 0);
	if (up < 0)
		return up;
	fd_close(j->dst);
	j->dst = up;
	return 0;
}

int tree_join(const struct tree_copy *c, int from, int to)
{
	int src = sys_openat(from, ".", FOLDER, 0), r;
	struct join j = { .dst = sys_openat(to, ".", FOLDER, 0) };
	struct tree_copy below = *c;
	struct stat st;

	r = j.dst < 0 ? j.dst : src < 0 ? src : fstat(j.dst, &st) < 0 ? -errno : 0;
	if (r < 0) {
		fd_close(src);
		fd_close(j.dst);
		return r;
	}
	/* Existing folders have their access lists already, and new files inherit them. */
	below.heirs = true;
	j.c = &below;
	j.top.times[0] = st.st_atim;
	j.top.times[1] = st.st_mtim;
	r = walk_begin(&j.w, src, false);
	while (r == 0) {
		const char *name = walk_next(&j.w);

		r = stopped(c->stop) ? -ECANCELED : name ? join_entry(&j, name) : join_leave(&j);
	}
	walk_done(&j.w);
	fd_close(j.dst);
	free(j.joint);
	return r < 0 ? r : 0;
}

static int mark_entry(struct walk *w, const char *name)
{
	struct stat st;

	if (fstatat(w->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return walk_down(w, name);
	if (S_ISCHR(st.st_mode) && !st.st_rdev && fsetxattr(w->fd, "trusted.overlay.origin", "", 0, 0) < 0)
		return -errno;
	return 0;
}

int tree_mark_whiteouts(int dir, const int *stop)
{
	int top = sys_openat(dir, ".", FOLDER, 0), r;
	struct walk w;

	if (top < 0)
		return top;
	r = walk_begin(&w, top, false);
	while (r == 0) {
		const char *name = walk_next(&w);

		if (!name && w.depth == 1)
			break;
		r = stopped(stop) ? -ECANCELED : name ? mark_entry(&w, name) : walk_up(&w);
	}
	walk_done(&w);
	return r;
}

int tree_make_folder(int dir, const char *name, int *ret)
{
	int r = sys_mkdirat(dir, name, 0700);

	if (r == 0)
		r = sys_openat(dir, name, FOLDER, 0);
	if (r < 0)
		return r;
	*ret = r;
	return 0;
}
