/* Finds the destination of a copy, and whether it is a folder: links are followed here, with one request to the worker a part. */
#include "tar/source.h"
#include "base/base.h"

#include <sys/stat.h>

struct look {
	uint32_t mode;
	char target[FILE_PATH_MAX];
};

/* Reads the type of @path, whose parent folders are not links. Returns the worker's -errno; @e is set for -EREMOTEIO only. */
static int look(struct host *h, const char *under, const char *path, struct look *ret, struct err *e)
{
	const struct file_request q = { .path = path, .under = under };
	struct file_entry x;
	struct file_frame f;
	int r = host_ask(h, FILE_STAT, FILE_BENEATH, &q, e);

	*ret = (struct look){ 0 };
	while (r == 0) {
		r = host_next(h, &f, e);
		if (r < 0)
			return -EREMOTEIO;
		if (f.type == FILE_END)
			return -(int)h->end.errnum;
		if (f.type != FILE_ENTRY || file_entry_decode(&f, &x) < 0 || strlen(x.target) >= sizeof(ret->target)) {
			err_set(e, ERR_LOST, -EREMOTEIO, "protocol error from the sandbox's file worker");
			return -EREMOTEIO;
		}
		ret->mode = x.mode;
		memcpy(ret->target, x.target, strlen(x.target) + 1);
	}
	return -EREMOTEIO;
}

static int too_long(const char *path, struct err *e)
{
	return err_set(e, ERR_INVALID, -ENAMETOOLONG, "'%.100s' is too long", path);
}

/* Replaces a link by its target, followed by the rest of the path. */
static int follow(char *rest, const char *target, const char *behind, struct err *e)
{
	char all[2 * FILE_PATH_MAX];
	int n = snprintf(all, sizeof(all), "%s/%s", target, behind);

	if (n >= (int)FILE_PATH_MAX)
		return too_long(target, e);
	memcpy(rest, all, (size_t)n + 1);
	return 0;
}

/* Without its last part. */
static void up(struct found *f)
{
	char *slash = strrchr(f->path, '/');

	*(slash ? slash : f->path) = '\0';
}

static int append(struct found *f, const char *part, size_t n, struct err *e)
{
	size_t at = strlen(f->path);

	if (at + n + 2 > sizeof(f->path))
		return too_long(f->path, e);
	if (at)
		f->path[at++] = '/';
	memcpy(f->path + at, part, n);
	f->path[at + n] = '\0';
	return 0;
}

int host_find(struct host *h, const char *under, const char *path, struct found *ret, struct err *e)
{
	char rest[FILE_PATH_MAX], *p = rest;
	struct found f = { .mode = S_IFDIR };
	unsigned links = 0;
	struct look l;
	int r = 0;

	if (strlen(path) >= sizeof(rest))
		return too_long(path, e);
	memcpy(rest, path, strlen(path) + 1);
	while (*(p += strspn(p, "/"))) {
		size_t n = strcspn(p, "/"), above = strlen(f.path);
		const char *part = p;

		p += n;
		if (n == 1 && *part == '.')
			continue;
		if (n == 2 && part[0] == '.' && part[1] == '.') {
			up(&f);
			f.mode = S_IFDIR;
			continue;
		}
		r = append(&f, part, n, e);
		if (r < 0)
			return r;
		if (!f.mode)
			continue; /* below what is not there */
		if (!S_ISDIR(f.mode))
			return err_set(e, ERR_INVALID, -ENOTDIR, "'/%.*s' is not a folder", (int)above, f.path);
		r = look(h, under, f.path, &l, e);
		if (r < 0 && r != -ENOENT)
			return r == -EREMOTEIO ? r : err_sys(e, ERR_INVALID, r, "'/%.100s'", f.path);
		if (r == -ENOENT)
			f.there = above;
		f.mode = r < 0 ? 0 : l.mode;
		if (r < 0 || !S_ISLNK(l.mode))
			continue;
		if (++links > LINKS_FOLLOWED)
			return err_set(e, ERR_INVALID, -ELOOP, "'%.100s': too many links", path);
		f.path[above] = '\0';
		if (l.target[0] == '/')
			f.path[0] = '\0';
		f.mode = S_IFDIR;
		r = follow(rest, l.target, p, e);
		if (r < 0)
			return r;
		p = rest;
	}
	if (f.mode)
		f.there = strlen(f.path);
	*ret = f;
	return 0;
}
