/*
 * Reading: files, folders, whole trees. A walk knows where it is by descriptors, never by names, follows no link, and
 * holds few of them: of the folders above the first KEEP stay open, the way back from deeper is "..", and the folder
 * found there must be the one we came from. So a tree of any depth needs a few bytes per level, and moving folders
 * about leads nowhere.
 */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/change.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define KEEP 32
#define LEVELS_MAX 65536
#define BATCH 16384
#define PASSES_MAX 64

struct level {
	int fd; /* -1: not kept */
	unsigned passes;
	uint64_t dev, ino;
	int64_t at;
	size_t len;
};

/* ---- a walk ------------------------------------------------------------------------------------------------------ */

int walk_init(struct walk *k, int fd)
{
	*k = (struct walk){ .fd = fd };
	k->batch = malloc(BATCH);
	return k->batch ? 0 : -ENOMEM;
}

void walk_done(struct walk *k)
{
	fd_close(k->fd);
	for (size_t i = 0; i < k->depth; i++)
		fd_close(k->levels[i].fd);
	free(k->levels);
	free(k->batch);
	*k = (struct walk){ .fd = -1 };
}

int walk_next(struct walk *k, const struct dirent64_head **ret)
{
	for (;;) {
		const struct dirent64_head *d;

		if (k->used >= k->have) {
			ssize_t n = sys_getdents64(k->fd, k->batch, BATCH);

			k->used = k->have = 0;
			if (n <= 0)
				return n == -ENOENT ? 0 : (int)n; /* -ENOENT: it was removed meanwhile */
			k->have = (size_t)n;
		}
		d = (const void *)(k->batch + k->used);
		k->used += d->len;
		k->at = d->off;
		if (!strcmp(d->name, ".") || !strcmp(d->name, ".."))
			continue;
		k->seen = true;
		*ret = d;
		return 1;
	}
}

int walk_name(const struct walk *k, const char *name, char ret[FILE_PATH_MAX])
{
	int n = snprintf(ret, FILE_PATH_MAX, "%s%s%s", k->path, k->len ? "/" : "", name);

	return n >= (int)FILE_PATH_MAX ? -ENAMETOOLONG : 0;
}

static int grow(struct walk *k)
{
	size_t room = k->room ? k->room * 2 : KEEP;
	struct level *more;

	if (k->depth < k->room)
		return 0;
	if (room > LEVELS_MAX)
		return -ELOOP;
	more = realloc(k->levels, room * sizeof(*more));
	if (!more)
		return -ENOMEM;
	k->levels = more;
	k->room = room;
	return 0;
}

int walk_into(struct walk *k, int fd, const char *name)
{
	AUTO_CLOSE int own = fd;
	size_t n = strlen(name);
	struct level *l;
	struct stat st;
	int r = grow(k);

	if (r < 0)
		return r;
	if (fstat(k->fd, &st) < 0)
		return -errno;
	l = &k->levels[k->depth];
	*l = (struct level){
		.fd = k->fd, .passes = k->passes, .dev = st.st_dev, .ino = st.st_ino, .at = k->at, .len = k->len
	};
	if (k->depth >= KEEP) {
		fd_close(l->fd);
		l->fd = -1;
	}
	k->depth++;
	/* An operation that does not report names (remove) may have paths that are too long; such a path stays cut. */
	if (k->len + 1 + n < sizeof(k->path)) {
		if (k->len)
			k->path[k->len++] = '/';
		memcpy(k->path + k->len, name, n + 1);
		k->len += n;
	}
	k->fd = TAKE_FD(own);
	k->have = k->used = 0;
	k->passes = 0;
	k->seen = false;
	return 0;
}

int walk_up(struct walk *k)
{
	struct level *l = &k->levels[k->depth - 1];
	struct stat st;
	int fd = l->fd;

	if (fd < 0) {
		fd = sys_openat(k->fd, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
		if (fd < 0)
			return fd;
		if (fstat(fd, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino) {
			fd_close(fd);
			return -ESTALE;
		}
		if (lseek(fd, l->at, SEEK_SET) < 0) {
			fd_close(fd);
			return -EIO;
		}
	} else if (lseek(fd, l->at, SEEK_SET) < 0) {
		return -EIO;
	}
	fd_close(k->fd);
	k->fd = fd;
	k->depth--;
	k->len = l->len;
	k->path[k->len] = '\0';
	k->passes = l->passes;
	k->have = k->used = 0;
	k->seen = true;
	return 0;
}

bool walk_foreign(int fd)
{
	struct statfs s;

	if (fstatfs(fd, &s) < 0)
		return true;
	switch ((unsigned long)s.f_type) {
	case PROC_SUPER_MAGIC:
	case SYSFS_MAGIC:
	case CGROUP_SUPER_MAGIC:
	case CGROUP2_SUPER_MAGIC:
	case DEVPTS_SUPER_MAGIC:
		return true;
	default:
		return false;
	}
}

/* ---- READ -------------------------------------------------------------------------------------------------------- */

static int refuse_type(struct worker *w, const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return 0;
	w->step = FILE_STEP_TYPE;
	return S_ISDIR(st->st_mode) ? -EISDIR : S_ISLNK(st->st_mode) ? -ELOOP : -EOPNOTSUPP;
}

/* Sends @length bytes from the current position of @fd, or as many as there are. */
static int send_bytes(struct worker *w, int fd, uint64_t length, uint64_t *sent)
{
	while (length) {
		size_t want = length < FILE_DATA_MAX ? (size_t)length : FILE_DATA_MAX;
		ssize_t n = sys_read(fd, w->out + FILE_HEAD, want);
		int r;

		if (n == -EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		r = worker_send(w, FILE_DATA, 0, (size_t)n);
		if (r < 0)
			return r;
		length -= (uint64_t)n;
		*sent += (uint64_t)n;
	}
	return 0;
}

int files_read(struct worker *w, const struct file_request *q)
{
	int nofollow = w->flags & FILE_BENEATH ? O_NOFOLLOW : 0, r;
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int fd = -1;
	uint64_t length;
	struct stat st;

	r = spot_init(&s, w, q->path, q->under);
	if (r < 0)
		return r;
	/* First opened with O_PATH, which has no effect on a FIFO's writer or a device. */
	fd = spot_open(&s, O_PATH | nofollow);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	r = refuse_type(w, &st);
	if (r < 0)
		return r;
	fd_close(TAKE_FD(fd));
	w->step = FILE_STEP_OPEN;
	fd = spot_open(&s, O_RDONLY | O_NONBLOCK | O_NOCTTY | nofollow);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	r = refuse_type(w, &st);
	if (r < 0)
		return r;
	r = worker_entry(w, q->path, &st, NULL, 0);
	if (r < 0)
		return r;
	w->step = FILE_STEP_READ;
	length = q->offset < (uint64_t)st.st_size ? (uint64_t)st.st_size - q->offset : 0;
	if (length > q->length)
		length = q->length;
	if (length && lseek(fd, (off_t)q->offset, SEEK_SET) < 0)
		return -errno;
	return send_bytes(w, fd, length, &w->count);
}

/* ---- LIST -------------------------------------------------------------------------------------------------------- */

/* Whether an attribute is listed: kinds that changes carry (layers/xattr.c), except those of overlayfs itself. */
static bool is_carried(const char *name)
{
	return !strncmp(name, "user.", 5) || !strncmp(name, "system.posix_acl_", 17) ||
	       !strcmp(name, "security.capability");
}

/* Sends the attributes of @fd, before its entry: nothing if it has none or they were not asked for. */
static int list_xattrs(struct worker *w, int fd)
{
	AUTO_FREE char *names = NULL, *value = NULL;
	size_t len = 0;
	ssize_t n = w->flags & FILE_XATTRS ? flistxattr(fd, NULL, 0) : 0;

	if (n <= 0)
		return n < 0 && errno != ENOTSUP ? -errno : 0;
	names = malloc((size_t)n);
	value = malloc(FILE_DATA_MAX);
	if (!names || !value)
		return -ENOMEM;
	n = flistxattr(fd, names, (size_t)n);
	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
		struct change_xattr x = { .name = p, .value = (const uint8_t *)value };
		ssize_t size = is_carried(p) ? fgetxattr(fd, p, value, FILE_DATA_MAX) : -1;
		long put;

		if (size < 0)
			continue; /* removed meanwhile */
		x.len = (uint32_t)size;
		put = change_xattr_encode(&x, w->out + FILE_HEAD + len, FILE_DATA_MAX - len);
		if (put < 0)
			return -E2BIG;
		len += (size_t)put;
	}
	return len ? worker_send(w, FILE_XATTR_LIST, 0, len) : 0;
}

/* Sends a file with its content after the entry; a file that cannot be opened gets an entry with the reason. */
static int list_content(struct worker *w, int dir, const char *name, const char *path, struct stat *st)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
	uint64_t sent = 0;
	int r = fd < 0 ? fd : 0;

	if (r == 0 && (fstat(fd, st) < 0 || !S_ISREG(st->st_mode)))
		r = -EOPNOTSUPP;
	if (r < 0)
		return worker_entry(w, path, st, NULL, -r);
	r = list_xattrs(w, fd);
	if (r == 0)
		r = worker_entry(w, path, st, NULL, 0);
	if (r < 0)
		return r;
	r = send_bytes(w, fd, (uint64_t)st->st_size, &sent);
	return w->gone ? r : 0; /* a file that cannot be read to its end is reported shorter, as if it had shrunk */
}

/*
 * Sends the entry of one name, and enters it when it is a folder that is not too deep. Returns 1 when it was left
 * out.
 */
static int list_one(struct worker *w, const struct file_request *q, struct walk *k, const char *name)
{
	bool content = w->flags & FILE_CONTENT;
	char path[FILE_PATH_MAX], target[FILE_PATH_MAX];
	AUTO_CLOSE int fd = -1;
	struct stat st;
	ssize_t n = 0;
	int r;

	if (walk_name(k, name, path) < 0)
		return 1;
	if (fstatat(k->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : 1;
	w->count++;
	if (S_ISREG(st.st_mode) && content)
		return list_content(w, k->fd, name, path, &st);
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(k->fd, name, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
		return worker_entry(w, path, &st, target, 0);
	}
	if (!S_ISDIR(st.st_mode) || k->depth + 1 >= q->depth)
		return worker_entry(w, path, &st, NULL, 0);
	fd = sys_openat(k->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	r = fd < 0 ? 0 : list_xattrs(w, fd);
	if (r == 0)
		r = worker_entry(w, path, &st, NULL, fd < 0 ? -fd : 0);
	if (r < 0 || fd < 0 || walk_foreign(fd))
		return r;
	return walk_into(k, TAKE_FD(fd), name);
}

static int list_tree(struct worker *w, const struct file_request *q, int fd)
{
	AUTO(walk_done) struct walk k = { .fd = -1 };
	const struct dirent64_head *d;
	int r = walk_init(&k, fd);

	while (r >= 0) {
		r = walk_next(&k, &d);
		if (r == 0) {
			if (!k.depth)
				return 0;
			r = walk_up(&k);
			continue;
		}
		if (r < 0)
			break;
		if (q->max && w->count >= q->max) {
			w->end_flags |= FILE_TRUNCATED;
			return 0;
		}
		r = list_one(w, q, &k, d->name);
		if (r > 0)
			w->end_flags |= FILE_TRUNCATED;
	}
	return r;
}

int files_list(struct worker *w, const struct file_request *q)
{
	int nofollow = w->flags & FILE_BENEATH ? O_NOFOLLOW : 0, r;
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int fd = -1;
	AUTO_CLOSE int dir = -1;
	struct stat st;

	r = spot_init(&s, w, q->path, q->under);
	if (r < 0)
		return r;
	fd = spot_open(&s, O_PATH | nofollow);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	w->step = FILE_STEP_TYPE;
	if (w->flags & FILE_CONTENT && S_ISREG(st.st_mode)) {
		fd_close(TAKE_FD(fd));
		w->step = FILE_STEP_OPEN;
		fd = spot_open(&s, O_RDONLY | O_NONBLOCK | O_NOCTTY | nofollow);
		if (fd < 0)
			return fd;
		if (fstat(fd, &st) < 0)
			return -errno;
		r = refuse_type(w, &st);
		if (r == 0)
			r = list_xattrs(w, fd);
		if (r == 0)
			r = worker_entry(w, "", &st, NULL, 0);
		w->step = FILE_STEP_READ;
		return r < 0 ? r : send_bytes(w, fd, (uint64_t)st.st_size, &w->count);
	}
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	w->step = FILE_STEP_LIST;
	dir = sys_openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		return dir;
	r = list_xattrs(w, dir);
	if (r == 0)
		r = worker_entry(w, "", &st, NULL, 0);
	if (r < 0 || !q->depth)
		return r;
	return list_tree(w, q, TAKE_FD(dir));
}

/* ---- REMOVE ------------------------------------------------------------------------------------------------------ */

/* Removes a name. 1: it is a folder that is not empty. A name that does not exist is no error. */
static int remove_name(struct worker *w, int dir, const char *name, bool folder)
{
	int r = folder ? -EISDIR : sys_unlinkat(dir, name, 0);

	if (r == -EISDIR)
		r = sys_unlinkat(dir, name, AT_REMOVEDIR);
	if (r == -ENOTEMPTY || r == -EEXIST)
		return 1;
	if (r == 0)
		w->count++;
	return r == -ENOENT ? 0 : r;
}

/*
 * Deep down every step costs more (Landlock looks at each folder above), so a full folder there is moved up to where
 * the walk began, and met again as one of those. Where that does not work, we go down. 0 when it moved.
 */
static int hoist(struct walk *k, const char *name)
{
	char there[32];
	uint64_t n;
	int r;

	if (k->depth < KEEP || sys_getrandom(&n, sizeof(n), 0) != sizeof(n))
		return -EINVAL;
	snprintf(there, sizeof(there), ".cloche-%016llx", (unsigned long long)n);
	r = files_rename(k->fd, name, k->levels[0].fd, there, 1U /* NOREPLACE */);
	if (r == 0)
		k->levels[0].passes--; /* the uppermost folder needs one more pass (the counter may wrap) */
	return r;
}

/* Empties the folder @fd. -ENOTEMPTY when another process adds files faster than they are removed. */
static int remove_tree(struct worker *w, int fd)
{
	AUTO(walk_done) struct walk k = { .fd = -1 };
	const struct dirent64_head *d;
	int r = walk_init(&k, fd);

	while (r >= 0) {
		r = walk_next(&k, &d);
		if (r < 0)
			break;
		if (r == 1) {
			r = remove_name(w, k.fd, d->name, d->type == DT_DIR);
			if (r == 1 && hoist(&k, d->name) < 0) {
				int sub = sys_openat(k.fd, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

				r = sub < 0 ? sub : walk_into(&k, sub, d->name);
			}
			continue;
		}
		/* Positions are not exact while names go: look again until there is nothing. */
		if (k.seen) {
			if (++k.passes == PASSES_MAX)
				return -ENOTEMPTY;
			if (lseek(k.fd, 0, SEEK_SET) < 0)
				return -errno;
			k.seen = false;
			continue;
		}
		if (!k.depth)
			return 0;
		r = walk_up(&k);
		/*
		 * The folder is empty now and can be removed; its entry is before the read position, so the next pass
		 * finds it.
		 */
	}
	return r;
}

static int remove_folder(struct worker *w, int dir, const char *name, unsigned recursive)
{
	int fd, r = remove_name(w, dir, name, true);

	if (r <= 0)
		return r;
	if (!recursive)
		return -ENOTEMPTY;
	fd = sys_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	r = remove_tree(w, fd);
	if (r == 0)
		r = remove_name(w, dir, name, true);
	return r == 1 ? -ENOTEMPTY : r;
}

int files_remove(struct worker *w, const struct file_request *q)
{
	AUTO(spot_done) struct spot s = { .base = -1 };
	AUTO_CLOSE int dir = -1;
	int r;

	r = spot_init(&s, w, q->path, q->under);
	if (r < 0)
		return r;
	if (!s.name[0])
		return -EBUSY;
	dir = spot_dir(w, &s);
	if (dir < 0)
		return dir;
	w->step = FILE_STEP_REMOVE;
	r = sys_unlinkat(dir, s.name, 0);
	if (r == 0) {
		w->count++;
		return 0;
	}
	return r == -EISDIR ? remove_folder(w, dir, s.name, w->flags & FILE_RECURSIVE) : r;
}

int files_make_way(struct worker *w, int dir, const char *name)
{
	const uint64_t count = w->count;
	int r = remove_folder(w, dir, name, true);

	w->count = count; /* the count of the request itself */
	return r;
}
