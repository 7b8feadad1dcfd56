/* Checks and links objects when all are known: finds the other end of each, and the bytes in between. */
#include "memory/object.h"
#include "base/base.h"
#include "base/sys.h"
#include "memory/object_socket.h"

#include <linux/kcmp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static bool reads(const struct object *o)
{
	return (o->rec.flags & O_ACCMODE) != O_WRONLY;
}

static bool pipe_like(const struct object *o)
{
	return o->rec.kind == MEM_OBJ_PIPE || o->rec.kind == MEM_OBJ_FIFO;
}

/*
 * Links the ends of a pipe: each gets the number of the pipe's first object, and the first end that can read gets the
 * content.
 */
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

static bool ready(int fd, uint32_t events)
{
	struct pollfd p = { .fd = fd, .events = (short)(events & MEM_WATCH_ALL) };

	return poll(&p, 1, 0) == 1;
}

/* A pipe with one end in the sandbox and the other in an unknown process. */
static int check_pipe(struct dump *d, uint32_t at, struct err *e)
{
	const struct object *o = &d->object[at];
	bool both = false;

	for (size_t i = 0; i < d->n_objects; i++)
		both |= pipe_like(&d->object[i]) && d->object[i].ino == o->ino && d->object[i].dev == o->dev &&
			reads(&d->object[i]) != reads(o);
	if (o->rec.kind == MEM_OBJ_FIFO && !both && (o->rec.flags & O_ACCMODE) == O_RDONLY && !pipe_orphan(o->fd, true))
		d->object[at].rec.b = !ready(o->fd, POLLIN);
	if (both || o->rec.kind == MEM_OBJ_FIFO || (o->rec.flags & O_ACCMODE) == O_RDWR)
		return 0;
	return pipe_orphan(o->fd, reads(o)) ? 0 :
					      proc_refuse(o->p, e, "has a pipe whose other end is outside the sandbox");
}

/* Links objects of shared memory: one of them gets the content, and the others of the same file get its number. */
static int link_content(struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	AUTO_CLOSE int again = -1;
	struct stat st;
	char path[64];

	o->rec.pair = at;
	for (uint32_t i = 0; i < at; i++)
		if (d->object[i].rec.kind == o->rec.kind && d->object[i].dev == o->dev && d->object[i].ino == o->ino) {
			o->rec.pair = d->object[i].rec.pair;
			return 0;
		}
	if (fstat(o->fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the status of shared memory");
	if (o->p && node_memfd(d, o->p, &st, &o->rec.file, e) < 0)
		return -EOPNOTSUPP;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", o->fd);
	again = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (again < 0)
		return err_sys(e, ERR_INTERNAL, again, "open shared memory");
	return pages_file(d, again, o->rec.a, &o->rec.run, e);
}

/* Parses a line of an epoll's fdinfo: "tfd: 5 events: 19 data: 5 pos:0 ino:… sdev:…". */
static int watch(struct dump *d, struct object *o, const char *line, struct err *e)
{
	unsigned long long data;
	struct mem_watch w = { 0 };
	struct {
		uint32_t efd, tfd, toff;
	} slot = { .efd = o->num };

	if (sscanf(line, "tfd: %u events: %x data: %llx", &w.fd_num, &w.events, &data) != 3)
		return err_set(e, ERR_INTERNAL, -EINVAL, "fdinfo of an epoll is invalid");
	w.data = data;
	slot.tfd = w.fd_num;
	/* Others with the same number are of files that had it before. The kernel counts them in the order of these lines. */
	for (uint32_t i = o->rec.watch.first; i < image_count(&d->image, MEM_S_WATCH); i++)
		slot.toff += ((const struct mem_watch *)image_at(&d->image, MEM_S_WATCH, i))->fd_num == w.fd_num;
	/* The kernel compares with all files of the epoll, each time. So the most probable objects are tried first. */
	for (uint32_t n = 0; n < 2 * d->n_objects; n++) {
		uint32_t i = n % (uint32_t)d->n_objects;
		const struct object *t = &d->object[i];
		bool likely = t->p == o->p && t->num == w.fd_num;

		if (!t->p || t->flying || likely != (n < d->n_objects))
			continue;
		if (sys_kcmp(t->p->host, o->p->host, KCMP_EPOLL_TFD, t->num, (uintptr_t)&slot) == 0) {
			w.object = i;
			return image_add(&d->image, MEM_S_WATCH, &w, NULL, e);
		}
	}
	return proc_refuse(o->p, e, "waits (epoll) for descriptor %u, which is closed, and its file is open nowhere",
			   w.fd_num);
}

static bool is_cut(const struct object *o)
{
	return o->rec.kind == MEM_OBJ_SOCKET && o->socket->k.state == MEM_SOCK_RESET && !o->socket->was_cut;
}

/*
 * Finds which watched files are ready and were reported before. EPOLLONESHOT: seen from the events that are left.
 * EPOLLET: only if no event is pending at all; otherwise one may be reported a second time, which programs have to
 * tolerate.
 */
static int watches_told(struct dump *d, const struct object *o, struct err *e)
{
	const uint32_t extra = EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;
	bool odd = false, edges = false, news = true;

	for (uint32_t i = 0; i < o->rec.watch.n; i++) {
		const struct mem_watch *w = image_at(&d->image, MEM_S_WATCH, o->rec.watch.first + i);
		uint32_t kind = d->object[w->object].rec.kind;

		/* What we would see of signals are our own, and an epoll that is looked at forgets what it does not see. */
		odd |= kind == MEM_OBJ_SIGNALFD || kind == MEM_OBJ_EPOLL;
		edges |= w->events & EPOLLET;
	}
	if (edges && !odd)
		news = ready(o->fd, EPOLLIN);
	for (uint32_t i = 0; i < o->rec.watch.n; i++) {
		struct mem_watch *w = image_at(&d->image, MEM_S_WATCH, o->rec.watch.first + i);
		const struct object *t = &d->object[w->object];
		bool plain = t->rec.kind != MEM_OBJ_SIGNALFD && t->rec.kind != MEM_OBJ_EPOLL;

		if (w->events & EPOLLONESHOT && !(w->events & ~extra)) {
			if (!plain || !ready(t->fd, MEM_WATCH_ALL))
				return proc_refuse(o->p, e, "waits (epoll, once) for descriptor %u, which is not armed",
						   w->fd_num);
			w->flags = MEM_WATCH_TOLD;
		} else if (w->events & EPOLLET && plain && !news && !is_cut(t) && ready(t->fd, w->events)) {
			w->flags = MEM_WATCH_TOLD;
		}
		/* Each process opens it for itself, so what an epoll knows must be that process's own. */
		if (t->own && (t->p != o->p || object_users(d, w->object) > 1))
			return proc_refuse(o->p, e,
					   "waits (epoll) for descriptor %u, a process or file of /proc that other "
					   "processes have open",
					   w->fd_num);
	}
	return 0;
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
	return r == 0 ? watches_told(d, o, e) : r;
}

/* Each process opens it again for itself, so a read position that several share would not be shared any more. */
static int check_own(const struct dump *d, uint32_t at, struct err *e)
{
	const struct object *o = &d->object[at];

	if (!o->own || o->rec.kind != MEM_OBJ_PROC || object_users(d, at) < 2)
		return 0;
	return proc_refuse(o->p, e, "descriptor %u is a file of /proc that another process also has open", o->num);
}

/* Links the pidfds of one process that has ended: they have the same inode. */
static void link_ended(struct dump *d, uint32_t at)
{
	struct object *o = &d->object[at];
	uint32_t i = 0;

	while (i < at && (d->object[i].rec.kind != MEM_OBJ_PIDFD || d->object[i].rec.a || d->object[i].dev != o->dev ||
			  d->object[i].ino != o->ino))
		i++;
	o->rec.pair = i;
}

int object_link(struct dump *d, struct err *e)
{
	int r = object_socket_queues(d, e);

	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++) {
		r = check_own(d, i, e);
		if (r < 0)
			return r;
		if (pipe_like(&d->object[i])) {
			r = check_pipe(d, i, e);
			if (r == 0)
				r = link_pipe(d, i, e);
		} else if (d->object[i].rec.kind == MEM_OBJ_PIDFD && !d->object[i].rec.a) {
			link_ended(d, i);
		} else if (d->object[i].rec.kind == MEM_OBJ_SHMEM) {
			r = link_content(d, i, e);
		} else if (d->object[i].rec.kind == MEM_OBJ_SYSV) {
			r = sysv_content(d, i, e);
		} else if (d->object[i].rec.kind == MEM_OBJ_SOCKET) {
			r = d->object[i].socket->k.family == AF_UNIX ? object_link_unix(d, i, e) :
								       object_link_tcp(d, i, e);
		}
	}
	/* Comes after it is known which connections are cut, since that makes them ready. */
	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++)
		if (d->object[i].rec.kind == MEM_OBJ_EPOLL)
			r = link_epoll(d, &d->object[i], e);
	if (r == 0)
		r = inotify_link(d, e);
	if (r == 0)
		r = object_socket_finish(d, e);
	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++)
		r = image_add(&d->image, MEM_S_OBJECT, &d->object[i].rec, NULL, e);
	return r;
}
