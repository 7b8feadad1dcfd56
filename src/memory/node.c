/*
 * Files that no layer has: those below /dev/shm, and removed files that are still open, mapped or a process's folder.
 * The image contains them itself, with mode, owner, times, attributes and content.
 */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NODES_MAX 65536U
#define DEPTH_MAX 64U
#define ROOM MEM_NODE_ROOM
#define GONE " (deleted)"

/* Reopens @at, which may be O_PATH. */
static int again(int at, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	return sys_openat(AT_FDCWD, path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
}

static uint64_t ns(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000ULL + (uint64_t)t->tv_nsec;
}

/*
 * Reads only attributes that every user may set on files of his own; the others have a meaning that a copy cannot
 * have.
 */
static int read_xattrs(struct dump *d, int fd, const char *path, struct mem_span *ret, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1 << 20);
	char names[4096], value[65536];
	ssize_t n = flistxattr(fd, names, sizeof(names));
	int r = 0;

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : err_sys(e, ERR_INTERNAL, -errno, "attributes of %.100s", path);
	for (const char *at = names; r == 0 && at < names + n; at += strlen(at) + 1) {
		ssize_t len;
		uint32_t head[2];

		if (strncmp(at, "user.", 5) != 0)
			return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
				       "%.100s has an attribute that cannot be saved: %.60s", path, at);
		len = fgetxattr(fd, at, value, sizeof(value));
		if (len < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "attribute %.60s of %.100s", at, path);
		head[0] = (uint32_t)strlen(at);
		head[1] = (uint32_t)len;
		r = buf_add(&b, head, sizeof(head));
		if (r == 0)
			r = buf_add(&b, at, head[0]);
		if (r == 0)
			r = buf_add(&b, value, head[1]);
	}
	return r < 0 ? err_sys(e, ERR_TOO_LARGE, r, "attributes of %.100s", path) :
		       image_bytes(&d->image, b.data, b.len, ret, e);
}

static int owner(const struct dump *d, const struct stat *st, struct mem_node *x)
{
	return proc_map(&d->uids, st->st_uid, &x->uid) && proc_map(&d->gids, st->st_gid, &x->gid) ? 0 : -EOVERFLOW;
}

static int keep(struct dump *d, const struct stat *st, uint32_t node, struct err *e)
{
	struct kept *more = d->n_kept >= NODES_MAX ? NULL : reallocarray(d->kept, d->n_kept + 1, sizeof(*more));

	if (!more)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u files in /dev/shm, or open and removed",
			       NODES_MAX);
	d->kept = more;
	more[d->n_kept++] = (struct kept){ st->st_dev, st->st_ino, node };
	return 0;
}

static uint32_t known(const struct dump *d, const struct stat *st)
{
	for (size_t i = 0; i < d->n_kept; i++)
		if (d->kept[i].dev == st->st_dev && d->kept[i].ino == st->st_ino)
			return d->kept[i].node;
	return MEM_NONE;
}

/* @at is the file, O_PATH. */
static int add(struct dump *d, int at, const char *path, const struct stat *st, uint32_t flags, uint32_t *ret_file,
	       struct err *e)
{
	struct mem_node x = {
		.mode = st->st_mode,
		.flags = flags,
		.file = MEM_NONE,
		.link = MEM_NONE,
		.atime_ns = ns(&st->st_atim),
		.mtime_ns = ns(&st->st_mtim),
	};
	const bool content = S_ISREG(st->st_mode) || S_ISDIR(st->st_mode);
	AUTO_CLOSE int fd = content ? again(at, O_RDONLY) : -1;
	uint32_t node = image_count(&d->image, MEM_S_NODE);
	char target[MEM_PATH_MAX];
	int r = content && fd < 0 ? fd : owner(d, st, &x);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read the status of %.100s", path);
	if (S_ISREG(st->st_mode) && st->st_nlink > 1)
		x.link = known(d, st);
	if (S_ISREG(st->st_mode))
		x.size = (uint64_t)st->st_size;
	if (S_ISLNK(st->st_mode)) {
		ssize_t n = readlinkat(at, "", target, sizeof(target) - 1);

		r = n < 0 ? err_sys(e, ERR_INTERNAL, -errno, "read the link %.100s", path) :
			    image_bytes(&d->image, target, (size_t)n, &x.target, e);
	}
	if (r == 0 && content && x.link == MEM_NONE)
		r = read_xattrs(d, fd, path, &x.xattrs, e);
	if (r == 0 && S_ISREG(st->st_mode) && x.link == MEM_NONE)
		r = pages_file(d, fd, x.size, &x.run, e);
	if (r == 0)
		r = image_new_file(&d->image, path, st, 0, node, &x.file, e);
	if (r == 0)
		r = image_add(&d->image, MEM_S_NODE, &x, NULL, e);
	*ret_file = x.file;
	return r == 0 && x.link == MEM_NONE ? keep(d, st, node, e) : r;
}

static int walk(struct dump *d, int dir, char *path, unsigned depth, struct err *e);

static int entry(struct dump *d, int dir, const char *name, char *path, unsigned depth, struct err *e)
{
	AUTO_CLOSE int at = sys_openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
	size_t was = strlen(path);
	struct stat st;
	uint32_t file;
	int r;

	if (at < 0 || fstat(at, &st) < 0)
		return err_sys(e, ERR_INTERNAL, at < 0 ? at : -errno, "read the status of %.200s%.100s", path, name);
	if (depth >= DEPTH_MAX || was + strlen(name) + 2 > MEM_PATH_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "folders in /dev/shm are too deep");
	snprintf(path + was, MEM_PATH_MAX - was, "%s", name);
	if (S_ISBLK(st.st_mode) || S_ISCHR(st.st_mode))
		r = err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "%.200s is a device, which cannot be saved", path);
	else
		r = add(d, at, path, &st, 0, &file, e);
	if (r == 0 && S_ISDIR(st.st_mode)) {
		snprintf(path + strlen(path), MEM_PATH_MAX - strlen(path), "/");
		r = walk(d, at, path, depth + 1, e);
	}
	path[was] = '\0';
	return r;
}

static int walk(struct dump *d, int at, char *path, unsigned depth, struct err *e)
{
	int fd = again(at, O_RDONLY | O_DIRECTORY), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (!dir) {
		fd_close(fd);
		return err_sys(e, ERR_INTERNAL, fd < 0 ? fd : -ENOMEM, "open %.200s", path);
	}
	while (r == 0 && (de = readdir(dir)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = entry(d, dirfd(dir), de->d_name, path, depth, e);
	closedir(dir);
	return r;
}

int node_room(struct dump *d, struct err *e)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int at = sys_openat2(d->root, ROOM, &how);
	char path[MEM_PATH_MAX] = ROOM;
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0 || !d->writable_ino[2] || st.st_dev != d->writable_dev ||
	    st.st_ino != d->writable_ino[2])
		return 0;
	return walk(d, at, path, 0, e);
}

/* The folder it was in, or for a file the next one above that is still there; on the same mount. */
static int folder_above(const struct dump *d, const char *path, uint64_t mount, bool next)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS };
	char up[MEM_PATH_MAX];
	char *end;

	snprintf(up, sizeof(up), "%s", path);
	while ((end = strrchr(up, '/'))) {
		uint64_t id = 0;
		int at;

		end[end == up] = '\0';
		at = sys_openat2(d->root, up, &how);
		if (at >= 0 && mount_of(at, "", AT_EMPTY_PATH, &id) == 0 && id == mount)
			return at;
		fd_close(at);
		if (!next || end == up)
			break;
	}
	return -ENOENT;
}

static bool same_folder(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Whether it is on a filesystem where the sandbox's own files are: what can be made there can be made again. */
static bool own_mount(const struct dump *d, int folder, uint64_t mount)
{
	struct stat st;

	return mount == d->root_mount || (fstat(folder, &st) == 0 && d->writable_dev && st.st_dev == d->writable_dev);
}

/* "#4711": what O_TMPFILE makes. */
static bool never_named(const char *path)
{
	const char *name = strrchr(path, '/') + 1;

	if (*name++ != '#' || !isdigit((unsigned char)*name))
		return false;
	while (isdigit((unsigned char)*name))
		name++;
	return !*name;
}

int node_removed(struct dump *d, const struct proc *p, int dir, const char *link, const struct found *f, uint32_t *ret,
		 struct err *e)
{
	AUTO_CLOSE int at = -1, folder = -1, up = -1;
	uint32_t have = known(d, &f->st);
	char path[MEM_PATH_MAX];
	uint64_t mount = 0;
	size_t len;

	if (have != MEM_NONE) {
		*ret = ((const struct mem_node *)image_at(&d->image, MEM_S_NODE, have))->file;
		return 0;
	}
	snprintf(path, sizeof(path), "%s", f->path);
	len = strlen(path);
	if (len > strlen(GONE) && !strcmp(path + len - strlen(GONE), GONE))
		path[len - strlen(GONE)] = '\0';
	if (path[0] != '/' || !path[1] || f->st.st_nlink ||
	    (!S_ISREG(f->st.st_mode) && !S_ISDIR(f->st.st_mode) && !S_ISFIFO(f->st.st_mode) && !S_ISLNK(f->st.st_mode)))
		return proc_refuse(p, e, "has %.100s open, which was removed and cannot be recreated", f->path);
	at = sys_openat(dir, link, O_PATH | O_CLOEXEC, 0);
	if (at < 0 || mount_of(at, "", AT_EMPTY_PATH, &mount) < 0)
		return err_sys(e, ERR_INTERNAL, at < 0 ? at : -errno, "open %.100s", f->path);
	folder = folder_above(d, path, mount, !S_ISDIR(f->st.st_mode));
	if (folder >= 0 && S_ISDIR(f->st.st_mode))
		up = sys_openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (folder < 0 || !own_mount(d, folder, mount) ||
	    (S_ISDIR(f->st.st_mode) && (up < 0 || !same_folder(up, folder))))
		return proc_refuse(p, e, "has %.100s open, which was removed together with its folder", f->path);
	return add(d, at, path, &f->st,
		   MEM_NODE_REMOVED | (S_ISREG(f->st.st_mode) && never_named(path) ? MEM_NODE_LINKABLE : 0), ret, e);
}

int node_memfd(struct dump *d, const struct proc *p, const struct stat *st, uint32_t *ret, struct err *e)
{
	struct mem_node x = {
		.mode = st->st_mode,
		.file = MEM_NONE,
		.link = MEM_NONE,
		.atime_ns = ns(&st->st_atim),
		.mtime_ns = ns(&st->st_mtim),
	};

	if (owner(d, st, &x) < 0)
		return proc_refuse(p, e, "has a memfd of a user that the sandbox does not have");
	return image_add(&d->image, MEM_S_NODE, &x, ret, e);
}
