/* What can only be said of an object when all are known: who is at the other end, and what lies in between. */
#include "dump/object.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/kcmp.h>
#include <unistd.h>

static bool reads(const struct object *o)
{
	return (o->rec.flags & O_ACCMODE) != O_WRONLY;
}

static bool pipe_like(const struct object *o)
{
	return o->rec.kind == MEM_OBJ_PIPE || o->rec.kind == MEM_OBJ_FIFO;
}

/* All ends of a pipe have the number of its first one; what is in it goes with the first that can read. */
static int link_pipe(struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	uint32_t pair = at;

	for (uint32_t i = 0; i < at && pair == at; i++)
		if (pipe_like(&d->object[i]) && d->object[i].dev == o->dev && d->object[i].ino == o->ino)
			pair = i;
	o->rec.pair = pair;
	if (!reads(o) || d->object[pair].done)
		return 0;
	d->object[pair].done = true;
	return pipe_peek(d, o->fd, &o->rec.data, e);
}

/* A pipe with one end in here and the other with somebody we do not know. */
static int check_pipe(const struct dump *d, uint32_t at, struct err *e)
{
	const struct object *o = &d->object[at];
	bool both = false;

	for (size_t i = 0; i < d->n_objects; i++)
		both |= pipe_like(&d->object[i]) && d->object[i].ino == o->ino && d->object[i].dev == o->dev &&
			reads(&d->object[i]) != reads(o);
	if (both || o->rec.kind == MEM_OBJ_FIFO || (o->rec.flags & O_ACCMODE) == O_RDWR)
		return 0;
	return pipe_orphan(o->fd, reads(o)) ? 0 : proc_refuse(o->p, e, "has a pipe whose other end is outside");
}

/* Unlinked files and shared memory: one has the content, those of the same file have its number. */
static int link_content(struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	AUTO_CLOSE int again = -1;
	char path[64];

	o->rec.pair = at;
	for (uint32_t i = 0; i < at; i++)
		if (d->object[i].rec.kind == o->rec.kind && d->object[i].dev == o->dev && d->object[i].ino == o->ino) {
			o->rec.pair = d->object[i].rec.pair;
			return 0;
		}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", o->fd);
	again = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (again < 0)
		return err_sys(e, ERR_INTERNAL, again, "open a file without a name");
	return pages_file(d, again, o->rec.a, &o->rec.run, e);
}

/* One line "tfd: 5 events: 19 data: 5 pos:0 ino:… sdev:…" of an epoll. */
static int watch(struct dump *d, struct object *o, const char *line, struct err *e)
{
	unsigned long long data;
	struct mem_watch w = { 0 };
	struct {
		uint32_t efd, tfd, toff;
	} slot = { .efd = o->num };

	if (sscanf(line, "tfd: %u events: %x data: %llx", &w.fd_num, &w.events, &data) != 3)
		return err_set(e, ERR_INTERNAL, -EINVAL, "fdinfo of an epoll makes no sense");
	w.data = data;
	slot.tfd = w.fd_num;
	/* The kernel looks through all that an epoll waits for, each time: what most likely is it comes first. */
	for (uint32_t n = 0; n < 2 * d->n_objects; n++) {
		uint32_t i = n % (uint32_t)d->n_objects;
		const struct object *t = &d->object[i];
		bool likely = t->p == o->p && t->num == w.fd_num;

		if (!t->p || likely != (n < d->n_objects))
			continue;
		if (sys_kcmp(t->p->host, o->p->host, KCMP_EPOLL_TFD, t->num, (uintptr_t)&slot) == 0) {
			w.object = i;
			return image_add(&d->image, MEM_S_WATCH, &w, NULL, e);
		}
	}
	return proc_refuse(o->p, e, "waits (epoll) for a descriptor that is closed, but open elsewhere");
}

static int link_epoll(struct dump *d, struct object *o, struct err *e)
{
	AUTO_FREE char *info = NULL;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "fdinfo/%u", o->num);
	r = proc_text(o->p->dir, name, 4 << 20, &info, NULL);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read %s", name);
	o->rec.watch.first = image_count(&d->image, MEM_S_WATCH);
	for (const char *line = strstr(info, "tfd:"); r == 0 && line; line = strstr(line + 4, "\ntfd:")) {
		line += *line == '\n';
		r = watch(d, o, line, e);
	}
	o->rec.watch.n = image_count(&d->image, MEM_S_WATCH) - o->rec.watch.first;
	return r;
}

int object_link(struct dump *d, struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++) {
		if (pipe_like(&d->object[i])) {
			r = check_pipe(d, i, e);
			if (r == 0)
				r = link_pipe(d, i, e);
		} else if (d->object[i].rec.kind == MEM_OBJ_SHMEM || d->object[i].rec.kind == MEM_OBJ_UNLINKED) {
			r = link_content(d, i, e);
		} else if (d->object[i].rec.kind == MEM_OBJ_EPOLL) {
			r = link_epoll(d, &d->object[i], e);
		} else if (d->object[i].rec.kind == MEM_OBJ_UNIX) {
			r = object_link_unix(d, i, e);
		} else if (d->object[i].connected) {
			r = object_link_tcp(d, i, e);
		}
	}
	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++)
		r = image_add(&d->image, MEM_S_OBJECT, &d->object[i].rec, NULL, e);
	return r;
}
