/*
 * WATCH: inotify on a folder, or on everything below it. A watch belongs to a folder, so the names are kept here, and
 * follow when a folder moves. Never ends by itself but when the watched thing is gone; the socket's end ends it.
 */
#include "agent/files/worker.h"
#include "base/base.h"
#include "base/sys.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#define EVENTS                                                                                                         \
	(IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)
#define EVENT_MAX (sizeof(struct inotify_event) + NAME_MAX + 1)
#define MOVE_MS 20

struct seat {
	int wd; /* 0: free, since the kernel's numbers begin at 1 */
	char *path;
};

struct watch {
	struct worker *w;
	int notify;
	const struct spot *spot;
	struct stat st; /* attributes of what is watched */
	bool recursive, full; /* ->full: the limit of watches was reached while the watch was set up */
	struct seat *seats;
	size_t used, max;
};

static int tell(struct watch *v, enum file_event_kind kind, uint32_t type, const char *path, const char *to)
{
	struct file_event x = { .kind = kind, .type = type, .path = path, .to = to };
	long n = file_event_encode(&x, v->w->out + FILE_HEAD, FILE_SMALL_MAX);

	return n < 0 ? 0 : worker_send(v->w, FILE_EVENT, 0, (size_t)n);
}

/*
 * Opens the watched folder if it is still where it was. It is not kept open: a folder with an open descriptor is never
 * removed for good, and its removal would not be reported.
 */
static int open_top(const struct watch *v, int flags)
{
	AUTO_CLOSE int fd = spot_open(v->spot, flags | O_DIRECTORY);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || st.st_dev != v->st.st_dev || st.st_ino != v->st.st_ino)
		return -ESTALE;
	return TAKE_FD(fd);
}

static struct seat *find(struct watch *v, int wd)
{
	for (size_t i = 0; i < v->used; i++)
		if (v->seats[i].wd == wd)
			return &v->seats[i];
	return NULL;
}

/* Adds a watch on the folder @fd. 1: the limit of watches is reached. */
static int add(struct watch *v, int fd, const char *path)
{
	struct seat *s;
	char *copy;
	int wd;

	/* The watch is added through the working folder, since a name may mean something else by now. */
	if (fchdir(fd) < 0)
		return -errno;
	if (v->used == v->max && !find(v, 0))
		return 1;
	wd = inotify_add_watch(v->notify, ".", EVENTS | IN_ONLYDIR | IN_EXCL_UNLINK);
	if (wd < 0)
		wd = -errno;
	if (fchdir(v->w->root) < 0)
		return -errno;
	if (wd < 0)
		return wd == -ENOSPC ? 1 : wd;
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	s = find(v, wd);
	if (!s)
		s = find(v, 0);
	if (!s)
		s = &v->seats[v->used++];
	free(s->path);
	*s = (struct seat){ wd, copy };
	return 0;
}

/*
 * No more watches are allowed. Reports for which folder, or only sets the flag while the watch is still being set up;
 * it is reported once, later.
 */
static int limit(struct watch *v, const char *path, bool told)
{
	v->full = true;
	return told ? tell(v, FILE_EVENT_OVERFLOW, S_IFDIR, path, "") : 0;
}

/* Watches @fd, the folder @path, and everything below. The names found are reported if @told. */
static int add_tree(struct watch *v, int fd, const char *path, bool told)
{
	AUTO(walk_done) struct walk k = { .fd = -1 };
	const struct dirent64_head *d;
	char name[FILE_PATH_MAX];
	int r = walk_init(&k, fd);

	if (r < 0)
		return r;
	snprintf(k.path, sizeof(k.path), "%s", path);
	k.len = strlen(k.path);
	r = add(v, k.fd, path);
	if (r > 0)
		return limit(v, path, told);
	while (r >= 0) {
		struct stat st;
		int sub;

		r = walk_next(&k, &d);
		if (r == 0) {
			if (!k.depth)
				return 0;
			r = walk_up(&k);
			continue;
		}
		if (r < 0 || walk_name(&k, d->name, name) < 0 || fstatat(k.fd, d->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (told && tell(v, FILE_EVENT_CREATED, st.st_mode & S_IFMT, name, "") < 0)
			return -EPIPE;
		if (!S_ISDIR(st.st_mode))
			continue;
		sub = sys_openat(k.fd, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
		if (sub < 0)
			continue; /* the user may not read this folder */
		if (walk_foreign(sub)) {
			fd_close(sub);
			continue;
		}
		r = add(v, sub, name);
		if (r != 0) {
			fd_close(sub);
			return r < 0 ? r : limit(v, name, told);
		}
		r = walk_into(&k, sub, d->name);
	}
	return r;
}

static bool below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

/* A folder moved from @from to @to, or away when that is NULL: the watches below it follow, or go. */
static void moved(struct watch *v, const char *from, const char *to)
{
	for (size_t i = 0; i < v->used; i++) {
		struct seat *s = &v->seats[i];
		char path[FILE_PATH_MAX], *copy = NULL;

		if (!s->wd || !below(s->path, from))
			continue;
		if (to && snprintf(path, sizeof(path), "%s%s", to, s->path + strlen(from)) < (int)sizeof(path))
			copy = strdup(path);
		if (!copy)
			inotify_rm_watch(v->notify, s->wd);
		free(s->path);
		*s = (struct seat){ copy ? s->wd : 0, copy };
	}
}

static int came(struct watch *v, const char *path)
{
	AUTO_CLOSE int top = v->recursive ? open_top(v, O_PATH) : -1;
	int fd = top < 0 ? top : path_open(top, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, RESOLVE_BENEATH);

	if (fd < 0)
		return 0;
	if (walk_foreign(fd)) {
		fd_close(fd);
		return 0;
	}
	return add_tree(v, fd, path, true);
}

static uint32_t type_of(const struct watch *v, const struct inotify_event *e, const char *path)
{
	AUTO_CLOSE int top = -1;
	struct stat st;

	if (e->mask & IN_ISDIR)
		return S_IFDIR;
	if (!S_ISDIR(v->st.st_mode))
		return v->st.st_mode & S_IFMT;
	if (e->mask & (IN_DELETE | IN_MOVED_FROM))
		return 0;
	top = open_top(v, O_PATH);
	return top < 0 || fstatat(top, *path ? path : ".", &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode & S_IFMT;
}

/* Writes the path of an event's file to @ret. False if the event belongs to no path that can be reported. */
static bool event_path(struct watch *v, const struct inotify_event *e, char ret[FILE_PATH_MAX])
{
	struct seat *s = find(v, e->wd);
	const char *name = e->len ? e->name : "";

	if (!s || !s->wd)
		return false;
	return snprintf(ret, FILE_PATH_MAX, "%s%s%s", s->path, *s->path && *name ? "/" : "", name) < (int)FILE_PATH_MAX;
}

/*
 * Handles an event. @next: the following event of the same batch, or NULL. Returns how many events were handled, or
 * -errno.
 */
static int event(struct watch *v, const struct inotify_event *e, const struct inotify_event *next)
{
	char path[FILE_PATH_MAX], to[FILE_PATH_MAX];
	bool dir = e->mask & IN_ISDIR;
	uint32_t type;
	struct seat *s;
	int r = 0;

	if (e->mask & IN_Q_OVERFLOW)
		return tell(v, FILE_EVENT_OVERFLOW, 0, "", "") < 0 ? -EPIPE : 1;
	s = find(v, e->wd);
	if (e->mask & IN_IGNORED && s && *s->path) {
		free(s->path);
		*s = (struct seat){ 0 };
		return 1;
	}
	if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED)) {
		if (!s || *s->path)
			return 1; /* the parent folder's watch reports it */
		tell(v, FILE_EVENT_GONE, v->st.st_mode & S_IFMT, "", "");
		return -ENOENT;
	}
	if (!event_path(v, e, path))
		return 1;
	type = type_of(v, e, path);
	if (e->mask & IN_MOVED_FROM) {
		if (next && next->mask & IN_MOVED_TO && next->cookie == e->cookie && event_path(v, next, to)) {
			if (dir)
				moved(v, path, to);
			r = tell(v, FILE_EVENT_MOVED, type_of(v, next, to), path, to);
			return r < 0 ? r : 2;
		}
		if (dir)
			moved(v, path, NULL);
		r = tell(v, FILE_EVENT_REMOVED, type, path, "");
	} else if (e->mask & (IN_CREATE | IN_MOVED_TO)) {
		r = tell(v, FILE_EVENT_CREATED, type, path, "");
		if (r == 0 && dir)
			r = came(v, path);
	} else if (e->mask & IN_DELETE) {
		r = tell(v, FILE_EVENT_REMOVED, type, path, "");
	} else if (e->mask & (IN_MODIFY | IN_ATTRIB)) {
		/* The change of a folder is reported by its parent; two equal events in a row are reported once. */
		if (!dir && next && next->wd == e->wd && next->mask == e->mask && next->len == e->len &&
		    !memcmp(next->name, e->name, e->len))
			return 1;
		if (!(dir && !e->len && *path))
			r = tell(v, FILE_EVENT_MODIFIED, type, path, "");
	}
	return r < 0 ? r : 1;
}

/*
 * What something was moved to follows what it was moved from at once, but maybe behind what was read: then it would look like one
 * that is gone and another that came. More than @n when more is there now.
 */
static ssize_t await_move(struct watch *v, char *buf, ssize_t n, size_t size)
{
	while (size - (size_t)n >= EVENT_MAX) {
		struct pollfd p = { .fd = v->notify, .events = POLLIN };
		const struct inotify_event *last = NULL;
		ssize_t more;

		for (ssize_t at = 0; at < n; at += (ssize_t)sizeof(*last) + (ssize_t)last->len)
			last = (const void *)(buf + at);
		if (!last || !(last->mask & IN_MOVED_FROM) || poll(&p, 1, MOVE_MS) <= 0)
			break;
		more = sys_read(v->notify, buf + n, size - (size_t)n);
		if (more <= 0)
			break;
		n += more;
	}
	return n;
}

static int batch(struct watch *v)
{
	_Alignas(struct inotify_event) char buf[8192];
	ssize_t n = sys_read(v->notify, buf, sizeof(buf) - EVENT_MAX), at = 0;

	if (n == -EINTR || n == -EAGAIN)
		return 0;
	if (n < 0)
		return (int)n;
	n = await_move(v, buf, n, sizeof(buf));
	while (at < n) {
		const struct inotify_event *e = (const void *)(buf + at), *next = NULL;
		ssize_t behind = at + (ssize_t)sizeof(*e) + (ssize_t)e->len;
		int r;

		if (behind < n)
			next = (const void *)(buf + behind);
		r = event(v, e, next);
		if (r < 0)
			return r;
		at = behind;
		if (r == 2)
			at += (ssize_t)sizeof(*next) + (ssize_t)next->len;
	}
	return 0;
}

static int begin(struct watch *v)
{
	AUTO_CLOSE int dir = -1;
	int fd, wd, r;

	if (!S_ISDIR(v->st.st_mode)) {
		dir = spot_dir(v->w, v->spot);
		if (dir < 0)
			return dir;
		if (fchdir(dir) < 0)
			return -errno;
		wd = inotify_add_watch(v->notify, v->spot->name, EVENTS);
		if (wd < 0 || fchdir(v->w->root) < 0)
			return -errno;
		v->seats[v->used++] = (struct seat){ wd, strdup("") };
		return v->seats[0].path ? 0 : -ENOMEM;
	}
	fd = open_top(v, O_RDONLY);
	if (fd < 0)
		return fd;
	if (v->recursive)
		return add_tree(v, fd, "", false);
	r = add(v, fd, "");
	fd_close(fd);
	return r > 0 ? -ENOSPC : r;
}

/* The host sends nothing during a watch, so anything that arrives on the socket means its end. */
static int loop(struct watch *v)
{
	for (;;) {
		struct pollfd p[] = { { .fd = WORKER_SOCK, .events = POLLIN }, { .fd = v->notify, .events = POLLIN } };
		int r = 0;

		if (poll(p, ARRAY_LEN(p), -1) < 0)
			continue;
		if (p[0].revents) {
			v->w->gone = true;
			return -EPIPE;
		}
		if (p[1].revents)
			r = batch(v);
		if (r < 0)
			return r;
	}
}

int files_watch(struct worker *w, const struct file_request *q)
{
	AUTO_CLOSE int notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	AUTO_FREE struct seat *seats = NULL;
	AUTO(spot_done) struct spot s = { .base = -1 };
	struct watch v = { .w = w, .notify = notify, .spot = &s, .recursive = w->flags & FILE_RECURSIVE };
	int r, fd;

	w->step = FILE_STEP_WATCH;
	if (notify < 0)
		return -errno;
	v.max = q->max && q->max < FILE_WATCHES_MAX ? q->max : FILE_WATCHES_MAX;
	v.seats = seats = calloc(v.max, sizeof(*seats));
	if (!seats)
		return -ENOMEM;
	r = spot_init(&s, w, q->path, q->under);
	if (r < 0)
		return r;
	fd = spot_open(&s, O_PATH | (w->flags & FILE_BENEATH ? O_NOFOLLOW : 0));
	if (fd < 0)
		return fd;
	r = fstat(fd, &v.st) < 0 ? -errno : 0;
	fd_close(fd);
	w->step = FILE_STEP_WATCH;
	if (r == 0)
		r = begin(&v);
	if (r == 0)
		r = worker_entry(w, q->path, &v.st, NULL, 0);
	if (r == 0 && v.full)
		r = tell(&v, FILE_EVENT_OVERFLOW, S_IFDIR, "", "");
	if (r == 0)
		r = loop(&v);
	for (size_t i = 0; i < v.used; i++)
		free(seats[i].path);
	return r;
}
