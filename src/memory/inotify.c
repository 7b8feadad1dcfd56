/*
 * inotify: what is watched, by name. The search for names opens folders, which is itself an event for watches of those
 * folders. No process runs, and a queue that is not empty is refused before any folder is opened: so all events in it
 * at the end are our own, and are removed.
 */
#include "memory/object.h"
#include "base/base.h"
#include "base/sys.h"
#include "memory/search.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define WATCHES_MAX 60000U /* largest number of a watch: the agent has to count up to it */

struct watched {
	uint32_t object, wd, mask;
	struct wanted file;
};

static int by_number(const void *a, const void *b)
{
	const struct watched *x = a, *y = b;

	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	return x->wd < y->wd ? -1 : x->wd > y->wd;
}

/* "inotify wd:1 ino:2 sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:27261900802dfd73" */
static int parse_watch(const char *line, struct watched *w, struct err *e)
{
	unsigned long long ino;
	unsigned sdev, bytes, type, byte;
	int at = 0;

	if (sscanf(line, "inotify wd:%x ino:%llx sdev:%x mask:%x", &w->wd, &ino, &sdev, &w->mask) != 4)
		return err_set(e, ERR_INTERNAL, -EINVAL, "fdinfo of an inotify is invalid");
	w->file = (struct wanted){ .dev = makedev(sdev >> 20, sdev & 0xfffff), .ino = (ino_t)ino };
	line = strstr(line, "fhandle-bytes:");
	if (!line || sscanf(line, "fhandle-bytes:%x fhandle-type:%x f_handle:%n", &bytes, &type, &at) != 2 || !at ||
	    bytes > sizeof(w->file.handle))
		return 0;
	for (unsigned i = 0; i < bytes; i++) {
		if (sscanf(line + at + 2 * i, "%2x", &byte) != 1)
			return 0;
		w->file.handle[i] = (uint8_t)byte;
	}
	w->file.handle_len = bytes;
	w->file.handle_type = (int32_t)type;
	return 0;
}

/* The record of a watched file that was removed and that a process has open, or MEM_NONE. */
static uint32_t removed_file(struct dump *d, const struct wanted *w)
{
	for (size_t i = 0; i < d->n_kept; i++) {
		const struct mem_node *x = image_at(&d->image, MEM_S_NODE, d->kept[i].node);

		/* The number of a file's device may be a layer's own. */
		if (!(x->flags & MEM_NODE_REMOVED) || (d->kept[i].dev != w->dev && d->root_dev != w->dev) ||
		    d->kept[i].ino != w->ino)
			continue;
		for (size_t k = 0; k < d->n_objects; k++)
			if (d->object[k].rec.kind == MEM_OBJ_FILE && d->object[k].rec.file == x->file &&
			    search_same(w, d->object[k].fd, ""))
				return x->file;
	}
	return MEM_NONE;
}

struct watches {
	struct watched *list;
	size_t n;
};

static int take_watches(struct watches *all, const struct dump *d, uint32_t at, struct err *e)
{
	const struct object *o = &d->object[at];
	AUTO_FREE char *info = NULL;
	size_t n = 0;
	struct watched *more;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "fdinfo/%u", o->num);
	r = proc_text(o->p->dir, name, 16 << 20, &info, NULL);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read %s", name);
	for (const char *line = info; (line = strstr(line, "inotify wd:")); line++)
		n++;
	more = reallocarray(all->list, all->n + n + 1, sizeof(*more));
	if (!more)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "watched files");
	all->list = more;
	for (const char *line = info; r == 0 && n-- && (line = strstr(line, "inotify wd:")); line++) {
		struct watched *w = &all->list[all->n++];

		w->object = at;
		r = parse_watch(line, w, e);
		if (r == 0 && w->wd > WATCHES_MAX)
			return proc_refuse(o->p, e, "watches more than %u files (inotify)", WATCHES_MAX);
	}
	return r;
}

/* Writes the records of one inotify descriptor, which has the @n watches in @list. */
static int write_watches(struct dump *d, const struct watched *list, const struct wanted *want, size_t n, struct err *e)
{
	struct object *o = &d->object[list->object];
	AUTO(buf_done) struct buf b = BUF_INIT(1 << 20);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		uint32_t rec[3] = { list[i].wd, list[i].mask, MEM_NONE };

		if (!want[i].path)
			rec[2] = removed_file(d, &want[i]);
		if (!want[i].path && rec[2] == MEM_NONE)
			r = proc_refuse(o->p, e, "watches a file (inotify) whose name is unknown: number %llu",
					(unsigned long long)want[i].ino);
		else if (!want[i].path)
			;
		else if (!file_may_reach(d, o->p, want[i].path, 0) || !file_may_open(d, o->p, &want[i].st, 4))
			r = proc_refuse(o->p, e, "watches %.100s (inotify), which it cannot watch again", want[i].path);
		else
			r = image_file(&d->image, want[i].path, &want[i].st, 0, &rec[2], e);
		if (r == 0)
			r = buf_add(&b, rec, sizeof(rec));
	}
	return r < 0 ? r : image_bytes(&d->image, b.data, b.len, &o->rec.data, e);
}

/* fdinfo names the watched files by number only. One search finds all of them, since all processes wait for it. */
int inotify_link(struct dump *d, struct err *e)
{
	struct watches all = { 0 };
	struct wanted *want = NULL;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++)
		if (d->object[i].rec.kind == MEM_OBJ_INOTIFY)
			r = take_watches(&all, d, i, e);
	if (r == 0 && all.n) {
		want = calloc(all.n, sizeof(*want));
		r = want ? 0 : err_sys(e, ERR_INTERNAL, -ENOMEM, "watched files");
	}
	if (want) {
		qsort(all.list, all.n, sizeof(*all.list), by_number);
		for (size_t i = 0; i < all.n; i++)
			want[i] = all.list[i].file;
		search_names(d, want, all.n, NULL);
	}
	for (size_t i = 0, n; r == 0 && i < all.n; i += n) {
		for (n = 1; i + n < all.n && all.list[i + n].object == all.list[i].object;)
			n++;
		r = write_watches(d, &all.list[i], &want[i], n, e);
	}
	for (size_t i = 0; want && i < all.n; i++)
		free(want[i].path);
	free(want);
	free(all.list);
	return r;
}

/* Whether descriptor @name, in the folder @dir, is an inotify descriptor with unread events. */
static bool has_news(const struct proc *p, int dir, const char *name)
{
	AUTO_CLOSE int fd = -1;
	char link[64];
	ssize_t n = readlinkat(dir, name, link, sizeof(link) - 1);
	int waiting = 0;

	if (n < 18 || strncmp(link, "anon_inode:inotify", 18) != 0)
		return false;
	fd = sys_pidfd_getfd(p->pidfd, (int)strtol(name, NULL, 10));
	return fd < 0 || sys_ioctl(fd, FIONREAD, &waiting) < 0 || waiting;
}

int inotify_early(struct dump *d, struct err *e)
{
	int r = 0;

	for (size_t i = 1; r == 0 && i < d->n_procs; i++) {
		const struct proc *p = &d->proc[i];
		int fd = p->zombie ? -1 : sys_openat(p->dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		DIR *dir = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *de;

		while (r == 0 && dir && (de = readdir(dir)))
			if (de->d_name[0] != '.' && has_news(p, fd, de->d_name))
				r = proc_refuse(p, e, "has unread inotify events");
		if (dir)
			closedir(dir);
		else
			fd_close(fd);
	}
	return r;
}

void inotify_forget(struct dump *d)
{
	AUTO_FREE char *text = NULL;

	for (size_t i = 0; i < d->n_objects; i++) {
		int waiting = 0;

		if (d->object[i].rec.kind != MEM_OBJ_INOTIFY || sys_ioctl(d->object[i].fd, FIONREAD, &waiting) < 0 ||
		    waiting <= 0)
			continue;
		free(text);
		text = malloc((size_t)waiting);
		if (text && sys_read(d->object[i].fd, text, (size_t)waiting) < 0)
			return;
	}
}
