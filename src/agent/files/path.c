/*
 * Paths. The worker's root is the sandbox's, so no path can lead out of it; RESOLVE_IN_ROOT says the same once more,
 * and RESOLVE_NO_MAGICLINKS keeps it from walking through other processes by /proc.
 */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"

#define TRIES 64 /* RESOLVE_IN_ROOT fails when another process renames folders meanwhile */

int path_open(int base, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
				.resolve = resolve | RESOLVE_NO_MAGICLINKS };
	int r = -EAGAIN;

	for (int i = 0; r == -EAGAIN && i < TRIES; i++)
		r = sys_openat2(base, path, &how);
	return r;
}

int path_split(const char *path, char dir[FILE_PATH_MAX], char name[NAME_MAX + 1])
{
	size_t end = strlen(path), start, n;

	while (end && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	n = end - start;
	if (n > NAME_MAX || end >= FILE_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(name, path + start, n);
	name[n] = '\0';
	if (!n || !strcmp(name, ".") || !strcmp(name, "..")) {
		name[0] = '\0';
		start = end;
	}
	memcpy(dir, path, start);
	dir[start] = '\0';
	if (!start)
		memcpy(dir, *path == '/' ? "/" : ".", 2);
	return 0;
}

static bool has_dotdot(const char *path)
{
	for (const char *p = path; *p; p += *p == '/') {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2))
			return true;
		p += n;
	}
	return false;
}

/* Relative paths begin at the cwd. */
static int join(const struct worker *w, const char *path, char ret[FILE_PATH_MAX])
{
	int n = *path == '/' ? snprintf(ret, FILE_PATH_MAX, "%s", path) :
			       snprintf(ret, FILE_PATH_MAX, "%s/%s", w->cwd, path);

	return n >= (int)FILE_PATH_MAX ? -ENAMETOOLONG : 0;
}

int spot_init(struct spot *s, struct worker *w, const char *path, const char *under)
{
	int r;

	w->step = FILE_STEP_PATH;
	s->owned = false;
	s->base = w->root;
	s->resolve = RESOLVE_IN_ROOT;
	if (!(w->flags & FILE_BENEATH)) {
		if (!*path)
			return -ENOENT;
		r = join(w, path, s->full);
	} else {
		if (*path == '/' || has_dotdot(path))
			return -EXDEV;
		r = join(w, under, s->full);
		if (r < 0)
			return r;
		s->base = path_open(w->root, s->full, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT);
		if (s->base < 0)
			return s->base;
		s->owned = true;
		s->resolve = w->flags & FILE_ROOTED ? RESOLVE_IN_ROOT : RESOLVE_BENEATH;
		memcpy(s->full, *path ? path : ".", *path ? strlen(path) + 1 : 2);
	}
	return r < 0 ? r : path_split(s->full, s->dir, s->name);
}

void spot_done(struct spot *s)
{
	if (s->owned)
		fd_close(s->base);
	s->owned = false;
}

int spot_open(const struct spot *s, int flags)
{
	return path_open(s->base, s->full, flags, s->resolve);
}

/* Makes the missing folders of s->dir, the uppermost first. */
static int make_dirs(const struct spot *s)
{
	char path[FILE_PATH_MAX], dir[FILE_PATH_MAX], name[NAME_MAX + 1];
	size_t at = 0;

	while (s->dir[at]) {
		AUTO_CLOSE int fd = -1;
		AUTO_CLOSE int above = -1;
		int r;

		at += strspn(s->dir + at, "/");
		at += strcspn(s->dir + at, "/");
		memcpy(path, s->dir, at);
		path[at] = '\0';
		fd = path_open(s->base, path, O_PATH | O_DIRECTORY, s->resolve);
		if (fd >= 0 || !at)
			continue;
		if (fd != -ENOENT)
			return fd;
		r = path_split(path, dir, name);
		if (r < 0)
			return r;
		if (!*name)
			return -ENOENT;
		above = path_open(s->base, dir, O_PATH | O_DIRECTORY, s->resolve);
		if (above < 0)
			return above;
		r = sys_mkdirat(above, name, 0777);
		if (r < 0 && r != -EEXIST)
			return r;
	}
	return 0;
}

int spot_dir(struct worker *w, const struct spot *s)
{
	int fd = path_open(s->base, s->dir, O_PATH | O_DIRECTORY, s->resolve);

	if (fd == -ENOENT && w->flags & FILE_PARENTS) {
		enum file_step was = w->step;
		int r;

		w->step = FILE_STEP_PARENTS;
		r = make_dirs(s);
		if (r < 0)
			return r;
		fd = path_open(s->base, s->dir, O_PATH | O_DIRECTORY, s->resolve);
		if (fd >= 0)
			w->step = was;
	}
	return fd;
}
