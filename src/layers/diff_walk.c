/*
 * Two states are two stacks of layers, of which the lowest are often the same. Only names in a layer that one stack
 * alone has can differ, unless something hides shared layers on one side only: then all names of that folder are
 * compared. So the cost grows with the content of the layers, not of the image below.
 *
 * Folders are opened by their path from the layer's root, without following links, and only those of the current folder
 * are open: a tree may be as deep as the longest path. A layer of a live sandbox may change meanwhile: what disappears
 * is treated as if it had never existed.
 */
#include "layers/diff_walk.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/xattr.h"

#include <sys/xattr.h>
#include <unistd.h>

#define NAMES_MAX (64U << 20) /* bytes of names held at once */
#define TOLD_MAX (8U << 20) /* entries compared */

struct diff_level {
	uint32_t mask[2]; /* layers of each side that contain this folder */
	size_t path_len;
	char *text;
	char **name;
	size_t count, at, bytes, room;
};

/* An entry as getdents64() returns it. */
struct dent {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

struct found {
	bool there;
	unsigned layer; /* the layer that shows it */
	uint32_t mask; /* of a folder: the layers that contribute to it */
	struct stat st;
};

static bool stopped(const struct diff_walk *d)
{
	return __atomic_load_n(d->stop, __ATOMIC_RELAXED);
}

/* The shared layers in @mask, with the same bits for both sides. */
static uint32_t shared_of(const struct diff_walk *d, unsigned side, uint32_t mask)
{
	return mask >> (d->side[side].n - d->shared);
}

static bool is_shared(const struct diff_walk *d, unsigned side, unsigned layer)
{
	return layer >= d->side[side].n - d->shared;
}

/* Whether the error means that the path is gone or was replaced, in a layer of a live sandbox. */
static bool vanished(const struct diff_layer *l, int r)
{
	return l->live && (r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -ESTALE);
}

static void close_folders(struct diff_walk *d)
{
	for (unsigned s = 0; s < 2; s++)
		for (unsigned i = 0; i < DIFF_LAYERS; i++) {
			fd_close(d->fd[s][i]);
			d->fd[s][i] = -1;
		}
	d->opened = 0;
}

static int open_folders(struct diff_walk *d)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	const struct diff_level *l = &d->level[d->depth - 1];
	const char *path = *d->path ? d->path + 1 : ".";

	close_folders(d);
	for (unsigned s = 0; s < 2; s++)
		for (unsigned i = 0; i < d->side[s].n; i++) {
			int fd;

			if (!(l->mask[s] & 1U << i))
				continue;
			fd = sys_openat2(d->side[s].layer[i].root, path, &how);
			if (fd < 0 && !vanished(&d->side[s].layer[i], fd))
				return fd;
			d->fd[s][i] = fd < 0 ? -1 : fd;
		}
	d->opened = d->depth;
	return 0;
}

static int add_name(struct diff_walk *d, struct diff_level *l, const char *name)
{
	size_t n = strlen(name) + 1;

	if (d->names + n > NAMES_MAX)
		return -E2BIG;
	if (l->bytes + n > l->room) {
		size_t room = l->room ? l->room * 2 : 1024; /* a name has at most 256 bytes */
		char *text = realloc(l->text, room);

		if (!text)
			return -ENOMEM;
		l->text = text;
		l->room = room;
	}
	memcpy(l->text + l->bytes, name, n);
	l->bytes += n;
	d->names += n;
	l->count++;
	return 0;
}

static int read_names(struct diff_walk *d, struct diff_level *l, int fd)
{
	_Alignas(struct dent) char buf[32768];
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = sys_getdents64(fd, buf, sizeof(buf))) != 0) {
		if (n < 0)
			return (int)n;
		for (ssize_t at = 0; r == 0 && at < n;) {
			const struct dent *x = (const struct dent *)(const void *)(buf + at);

			if (strcmp(x->name, ".") && strcmp(x->name, ".."))
				r = add_name(d, l, x->name);
			at += x->len;
		}
	}
	return r;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int sort_names(struct diff_level *l)
{
	char *text = l->text;
	size_t kept = 0;

	if (!l->count)
		return 0;
	l->name = malloc(l->count * sizeof(*l->name));
	if (!l->name)
		return -ENOMEM;
	for (size_t i = 0; i < l->count; i++, text += strlen(text) + 1)
		l->name[i] = text;
	qsort(l->name, l->count, sizeof(*l->name), by_name);
	for (size_t i = 0; i < l->count; i++)
		if (!kept || strcmp(l->name[i], l->name[kept - 1]))
			l->name[kept++] = l->name[i];
	l->count = kept;
	return 0;
}

/* Enters the folder ->path. */
static int push(struct diff_walk *d, const uint32_t mask[2])
{
	bool all = shared_of(d, 0, mask[0]) != shared_of(d, 1, mask[1]);
	struct diff_level *l;
	int r;

	if (d->depth == d->room) {
		size_t room = d->room ? d->room * 2 : 32;
		struct diff_level *more = realloc(d->level, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		d->level = more;
		d->room = room;
	}
	l = &d->level[d->depth++];
	*l = (struct diff_level){ .mask = { mask[0], mask[1] }, .path_len = strlen(d->path) };
	r = open_folders(d);
	for (unsigned s = 0; r == 0 && s < 2; s++)
		for (unsigned i = 0; r == 0 && i < d->side[s].n; i++)
			if (d->fd[s][i] >= 0 && (all || !is_shared(d, s, i)))
				r = read_names(d, l, d->fd[s][i]);
	return r < 0 ? r : sort_names(l);
}

static void pop(struct diff_walk *d)
{
	struct diff_level *l = &d->level[--d->depth];

	d->names -= l->bytes;
	free(l->name);
	free(l->text);
	close_folders(d);
	if (d->depth)
		d->path[d->level[d->depth - 1].path_len] = '\0';
}

/* Whether a folder hides everything below it (an opaque folder). */
static int hides(const struct diff_walk *d, int dir, const char *name)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	char value[8];
	ssize_t n;

	if (fd < 0)
		return fd;
	n = fgetxattr(fd, d->opaque, value, sizeof(value));
	return n == 1 && *value == 'y';
}

static int look(const struct diff_walk *d, unsigned side, const char *name, struct found *ret)
{
	const struct diff_side *s = &d->side[side];
	struct stat st;

	*ret = (struct found){ 0 };
	for (unsigned i = 0; i < s->n; i++) {
		int r;

		if (d->fd[side][i] < 0)
			continue;
		if (fstatat(d->fd[side][i], name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			return -errno;
		}
		if (S_ISCHR(st.st_mode) && !st.st_rdev)
			break;
		if (!ret->there) {
			ret->there = true;
			ret->layer = i;
			ret->st = st;
		}
		if (!S_ISDIR(st.st_mode))
			break;
		ret->mask |= S_ISDIR(ret->st.st_mode) ? 1U << i : 0;
		/* No layer is below the image. */
		r = i + 1 == s->n ? 0 : hides(d, d->fd[side][i], name);
		if (r < 0 && !vanished(&s->layer[i], r))
			return r;
		if (r == 1)
			break;
	}
	return 0;
}

static uint32_t inside(const struct diff_walk *d, unsigned side, const struct found *f, uint32_t id)
{
	uint32_t base = d->side[side].layer[f->layer].base;

	return !base ? id : id >= base && id - base < 65536 ? id - base : id ? 65534 : 0;
}

/* Opens without blocking, and only if the file is still the one that was found. */
static int open_found(const struct diff_walk *d, unsigned side, const struct found *f, const char *name)
{
	int folder = S_ISDIR(f->st.st_mode) ? O_DIRECTORY : 0;
	AUTO_CLOSE int fd = sys_openat(d->fd[side][f->layer], name,
				       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | folder, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_ino == f->st.st_ino && (st.st_mode & S_IFMT) == (f->st.st_mode & S_IFMT) ? TAKE_FD(fd) : -ESTALE;
}

static ssize_t read_link(const struct diff_walk *d, unsigned side, const struct found *f, const char *name, char *ret)
{
	ssize_t n = readlinkat(d->fd[side][f->layer], name, ret, CHANGE_PATH_MAX);

	if (n < 0)
		return -errno;
	if (n == CHANGE_PATH_MAX)
		return -ENAMETOOLONG;
	ret[n] = '\0';
	return n;
}

static bool same_time(const struct stat *a, const struct stat *b)
{
	return a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The two files of one name, and the change to report. */
struct pair {
	const char *name;
	struct found f[2];
	int fd[2]; /* of files and folders that had to be opened */
};

static int open_pair(const struct diff_walk *d, struct pair *p)
{
	for (unsigned s = 0; s < 2; s++) {
		if (!p->f[s].there || p->fd[s] >= 0 || (!S_ISREG(p->f[s].st.st_mode) && !S_ISDIR(p->f[s].st.st_mode)))
			continue;
		p->fd[s] = open_found(d, s, &p->f[s], p->name);
		if (p->fd[s] < 0)
			return p->fd[s];
	}
	return 0;
}

/* 1 if the extended attributes are the same. */
static int same_xattrs(const struct diff_walk *d, const struct pair *p)
{
	AUTO_FREE uint8_t *a = malloc(CHANGE_XATTRS_MAX), *b = malloc(CHANGE_XATTRS_MAX);
	long n, m;

	if (!a || !b)
		return -ENOMEM;
	n = xattr_pack(p->fd[0], d->side[0].layer[p->f[0].layer].base, d->buf, a, CHANGE_XATTRS_MAX);
	m = n < 0 ? n : xattr_pack(p->fd[1], d->side[1].layer[p->f[1].layer].base, d->buf, b, CHANGE_XATTRS_MAX);
	if (m < 0)
		return m == -EMSGSIZE ? 0 : (int)m;
	return n == m && !memcmp(a, b, (size_t)n);
}

/* Compares two files of the same type. 0: the same. 1: *ret is CHANGE_CONTENT, or 0 if only attributes differ. */
static int differ(const struct diff_walk *d, struct pair *p, unsigned *ret)
{
	const struct stat *a = &p->f[0].st, *b = &p->f[1].st;
	bool attrs = a->st_mode != b->st_mode ||
		     inside(d, 0, &p->f[0], a->st_uid) != inside(d, 1, &p->f[1], b->st_uid) ||
		     inside(d, 0, &p->f[0], a->st_gid) != inside(d, 1, &p->f[1], b->st_gid) ||
		     (d->flags & DIFF_DATA && !same_time(a, b)) || a->st_rdev != b->st_rdev;
	int r;

	*ret = 0;
	if (S_ISLNK(a->st_mode)) {
		char x[CHANGE_PATH_MAX + 1], y[CHANGE_PATH_MAX + 1];
		ssize_t n = read_link(d, 0, &p->f[0], p->name, x),
			m = n < 0 ? n : read_link(d, 1, &p->f[1], p->name, y);

		if (m < 0)
			return (int)m;
		*ret = n != m || memcmp(x, y, (size_t)n) ? CHANGE_CONTENT : 0;
		return *ret || attrs;
	}
	if (!S_ISREG(a->st_mode) && !S_ISDIR(a->st_mode))
		return attrs;
	if (S_ISREG(a->st_mode) && a->st_size != b->st_size) {
		*ret = CHANGE_CONTENT;
		return 1;
	}
	r = open_pair(d, p);
	if (r == 0 && S_ISREG(a->st_mode)) {
		r = out_same(p->fd[0], p->fd[1], (uint64_t)a->st_size, d->stop, d->buf);
		if (r == 0)
			*ret = CHANGE_CONTENT;
	}
	if (r < 0 || *ret || attrs)
		return r < 0 ? r : 1;
	r = same_xattrs(d, p);
	return r < 0 ? r : !r;
}

static uint64_t told_size(const struct found *f)
{
	return f->there && (S_ISREG(f->st.st_mode) || S_ISLNK(f->st.st_mode)) ? (uint64_t)f->st.st_size : 0;
}

static bool small(const struct found *f)
{
	return !f->there || (S_ISREG(f->st.st_mode) && f->st.st_size <= DIFF_TEXT_MAX);
}

static void count(struct diff_walk *d, enum change_what what)
{
	d->sum->added += what == CHANGE_ADDED;
	d->sum->changed += what == CHANGE_CHANGED;
	d->sum->removed += what == CHANGE_REMOVED;
}

/* Adds all that is needed to make the file elsewhere; @more has room for both. */
static int add_rest(struct diff_walk *d, struct pair *p, struct change_entry *x, char *target, uint8_t *more)
{
	const struct found *f = &p->f[1];
	long n;

	if (S_ISLNK(f->st.st_mode)) {
		n = read_link(d, 1, f, p->name, target);
		x->target = target;
		x->size = n < 0 ? 0 : (uint64_t)n;
		return n < 0 ? (int)n : 0;
	}
	if (p->fd[1] < 0)
		return 0;
	n = xattr_pack(p->fd[1], d->side[1].layer[f->layer].base, d->buf, more, CHANGE_XATTRS_MAX);
	if (n < 0)
		return (int)n;
	x->xattrs = more;
	x->xattrs_len = (uint32_t)n;
	if (S_ISREG(f->st.st_mode)) {
		n = out_extents(p->fd[1], x->size, more + CHANGE_XATTRS_MAX);
		x->extents = more + CHANGE_XATTRS_MAX;
		x->nextents = n < 0 ? 0 : (uint32_t)n;
	}
	return n < 0 ? (int)n : 0;
}

/*
 * In a list, adds one extent that is as long as all data: enough to check whether there is room, without counting
 * holes.
 */
static void add_data_size(const struct found *f, struct change_entry *x, uint8_t extent[16])
{
	const uint64_t data = (uint64_t)f->st.st_blocks * 512;

	if (!S_ISREG(f->st.st_mode) || data >= x->size)
		return;
	change_extent_put(extent, 0, data ? 0 : x->size, data);
	x->extents = extent;
	x->nextents = 1;
}

static int tell(struct diff_walk *d, struct pair *p, enum change_what what, unsigned flags)
{
	const struct found *old = &p->f[0], *now = &p->f[1];
	uint8_t extent[16];
	char path[CHANGE_PATH_MAX + 512], target[CHANGE_PATH_MAX + 1] = "";
	AUTO_FREE uint8_t *more = d->flags & DIFF_DATA ? malloc(CHANGE_XATTRS_MAX + CHANGE_EXTENTS_MAX * 16) : NULL;
	struct change_entry x = { .what = (uint8_t)what, .path = path, .target = target };
	uint8_t *to;
	int r = 0;
	long n;

	n = snprintf(path, sizeof(path), "%s%s/%s", d->prefix, d->path, p->name);
	if (n >= CHANGE_PATH_MAX) {
		d->cut = true;
		return d->flags & DIFF_DATA ? -ENAMETOOLONG : 0;
	}
	if (old->there) {
		x.old_mode = old->st.st_mode;
		x.old_size = told_size(old);
	}
	if (now->there) {
		x.mode = now->st.st_mode;
		x.uid = inside(d, 1, now, now->st.st_uid);
		x.gid = inside(d, 1, now, now->st.st_gid);
		x.nlink = (uint32_t)now->st.st_nlink;
		x.size = told_size(now);
		x.mtime = (int64_t)((uint64_t)now->st.st_mtim.tv_sec * 1000000000U + (uint64_t)now->st.st_mtim.tv_nsec);
		x.dev = now->layer;
		x.ino = now->st.st_ino;
	}
	if (d->flags & DIFF_TEXT && flags & CHANGE_CONTENT && small(old) && small(now) &&
	    d->text + x.size + x.old_size <= DIFF_TEXT_ALL) {
		flags |= CHANGE_TEXT;
		d->text += x.size + x.old_size;
	}
	x.flags = (uint8_t)flags;
	if (d->flags & DIFF_DATA && now->there) {
		if (!more)
			return -ENOMEM;
		r = open_pair(d, p);
		if (r == 0)
			r = add_rest(d, p, &x, target, more);
	} else {
		if (now->there)
			add_data_size(now, &x, extent);
		r = flags & CHANGE_TEXT ? open_pair(d, p) : 0;
	}
	if (r < 0)
		return r;
	count(d, what);
	if (d->max && d->told >= d->max) {
		d->cut = true;
		return 0;
	}
	d->told++;
	to = out_room(d->out, &r);
	if (!to)
		return r;
	n = change_entry_encode(&x, to + CHANGE_HEAD, CHANGE_PAYLOAD_MAX);
	if (n < 0)
		return (int)n;
	change_head(to, CHANGE_ENTRY, (uint32_t)n);
	out_added(d->out, CHANGE_HEAD + (size_t)n);
	if (flags & CHANGE_TEXT && old->there)
		r = out_data(d->out, CHANGE_OLD, p->fd[0], x.old_size);
	if (r == 0 && now->there && S_ISREG(now->st.st_mode) && (flags & CHANGE_TEXT || d->flags & DIFF_DATA))
		r = out_data(d->out, CHANGE_DATA, p->fd[1], x.size);
	return r;
}

static int enter(struct diff_walk *d, const char *name, const uint32_t mask[2])
{
	size_t n = d->level[d->depth - 1].path_len;

	if (n + 1 + strlen(name) >= CHANGE_PATH_MAX) {
		d->cut = true;
		return d->flags & DIFF_DATA ? -ENAMETOOLONG : 0;
	}
	snprintf(d->path + n, sizeof(d->path) - n, "/%s", name);
	return push(d, mask);
}

/* Whether anything below the two folders can differ. */
static bool worth(const struct diff_walk *d, const uint32_t mask[2])
{
	uint32_t own0 = mask[0] & ((1U << (d->side[0].n - d->shared)) - 1U);
	uint32_t own1 = mask[1] & ((1U << (d->side[1].n - d->shared)) - 1U);

	return own0 || own1 || shared_of(d, 0, mask[0]) != shared_of(d, 1, mask[1]);
}

static int compare(struct diff_walk *d, struct pair *p)
{
	const struct found *a = &p->f[0], *b = &p->f[1];
	bool dir[2] = { a->there && S_ISDIR(a->st.st_mode), b->there && S_ISDIR(b->st.st_mode) };
	uint32_t mask[2] = { dir[0] ? a->mask : 0, dir[1] ? b->mask : 0 };
	unsigned flags = CHANGE_CONTENT;
	int r;

	if (!a->there && !b->there)
		return 0;
	if (!a->there || !b->there) {
		r = tell(d, p, a->there ? CHANGE_REMOVED : CHANGE_ADDED, flags);
		/* Applying the change elsewhere removes the whole folder. */
		if (r < 0 || (!dir[0] && !dir[1]) || (dir[0] && d->flags & DIFF_DATA))
			return r;
		return enter(d, p->name, mask);
	}
	if ((a->st.st_mode & S_IFMT) != (b->st.st_mode & S_IFMT)) {
		r = tell(d, p, CHANGE_CHANGED, CHANGE_CONTENT | CHANGE_REPLACED);
		if (r < 0 || (!dir[0] && !dir[1]) || (dir[0] && d->flags & DIFF_DATA))
			return r;
		return enter(d, p->name, mask);
	}
	/* The name is in a shared layer on both sides, so it is the same file. */
	if (is_shared(d, 0, a->layer) && is_shared(d, 1, b->layer) &&
	    d->side[0].n - a->layer == d->side[1].n - b->layer && !dir[0])
		return 0;
	r = differ(d, p, &flags);
	if (r == 1)
		r = tell(d, p, CHANGE_CHANGED, flags);
	if (r < 0 || !dir[0] || !worth(d, mask))
		return r;
	return enter(d, p->name, mask);
}

/*
 * Files that the engine gives to each sandbox: they were not made by the sandbox's user, and must not be carried
 * elsewhere. Folders below /proc, /dev and /sys are made when an image has none, and are never visible inside.
 */
static bool own(const struct diff_walk *d, const char *name)
{
	static const char *const places[][2] = {
		{ "/run", "cloche" }, { "/etc", "machine-id" }, { "", "proc" }, { "", "dev" }, { "", "sys" }
	};

	for (size_t i = 0; !*d->prefix && i < ARRAY_LEN(places); i++)
		if (!strcmp(d->path, places[i][0]) && !strcmp(name, places[i][1]))
			return i != 1 || !(d->flags & DIFF_MACHINE_ID);
	return false;
}

static int step(struct diff_walk *d, const char *name)
{
	struct pair p = { .name = name, .fd = { -1, -1 } };
	int r = d->opened == d->depth ? 0 : open_folders(d);

	if (own(d, name))
		return 0;
	for (unsigned s = 0; r == 0 && s < 2; s++)
		r = look(d, s, name, &p.f[s]);
	if (r == 0)
		r = compare(d, &p);
	fd_close(p.fd[0]);
	fd_close(p.fd[1]);
	/* The file was changed or replaced meanwhile, so there is nothing that could be reported. */
	if (r == -ESTALE || r == -ENOENT || r == -ELOOP || r == -ENOTDIR || r == -ENXIO)
		r = d->side[0].layer[0].live || d->side[1].layer[0].live ? 0 : r;
	return r;
}

int diff_walk(struct diff_walk *d)
{
	uint32_t mask[2] = { 0, 0 };
	uint64_t looked = 0;
	int r;

	for (unsigned s = 0; s < 2; s++)
		for (unsigned i = 0; i < DIFF_LAYERS; i++) {
			d->fd[s][i] = -1;
			if (i < d->side[s].n && d->side[s].layer[i].root >= 0)
				mask[s] |= 1U << i;
		}
	d->path[0] = '\0';
	d->depth = d->opened = 0;
	r = worth(d, mask) ? push(d, mask) : 0;
	while (r == 0 && d->depth) {
		struct diff_level *l = &d->level[d->depth - 1];

		if (stopped(d))
			r = -ECANCELED;
		else if (l->at == l->count)
			pop(d);
		else if (++looked > TOLD_MAX)
			r = -E2BIG;
		else
			r = step(d, l->name[l->at++]);
	}
	while (d->depth)
		pop(d);
	free(d->level);
	d->level = NULL;
	d->room = 0;
	return r;
}
