/* Pipes, named and not, and the ends that the agent holds for the host. */
#include "memory/object.h"
#include "base/base.h"
#include "base/sys.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PIPE_MAX (1U << 20)

int pipe_peek(struct dump *d, int fd, struct mem_span *ret, struct err *e)
{
	AUTO_FREE uint8_t *data = NULL;
	int pair[2] = { -1, -1 }, waiting = 0, size, r;
	AUTO_CLOSE int to = -1, from = -1;
	ssize_t n;

	*ret = (struct mem_span){ 0 };
	r = sys_ioctl(fd, FIONREAD, &waiting);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "a pipe");
	if (!waiting)
		return 0;
	size = fcntl(fd, F_GETPIPE_SZ);
	r = sys_pipe2(pair, O_CLOEXEC | O_NONBLOCK);
	from = pair[0];
	to = pair[1];
	if (r < 0 || size < 0)
		return err_sys(e, ERR_INTERNAL, r < 0 ? r : -errno, "make a helper pipe");
	fcntl(to, F_SETPIPE_SZ, size);
	data = malloc((size_t)waiting);
	if (!data || (unsigned)waiting > PIPE_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "a pipe holds too much data");
	n = tee(fd, to, (size_t)waiting, SPLICE_F_NONBLOCK);
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the size of a pipe");
	for (ssize_t have = 0, got; have < n; have += got) {
		got = sys_read(from, data + have, (size_t)(n - have));
		if (got <= 0)
			return err_sys(e, ERR_INTERNAL, got < 0 ? (int)got : -EIO, "read a pipe");
	}
	if (n != waiting)
		return err_set(e, ERR_CONFLICT, -EAGAIN, "a pipe holds %d bytes, but only %zd can be read", waiting, n);
	return image_bytes(&d->image, data, (size_t)n, ret, e);
}

bool pipe_orphan(int fd, bool reads)
{
	struct pollfd p = { .fd = fd };

	return poll(&p, 1, 0) == 1 && p.revents & (reads ? POLLHUP : POLLERR);
}

const struct external *external_find(const struct dump *d, dev_t dev, ino_t ino)
{
	for (size_t i = 0; i < d->n_external; i++)
		if (d->external[i].role != MEM_TTY && d->external[i].dev == dev && d->external[i].ino == ino)
			return &d->external[i];
	return NULL;
}

const struct external *external_tty(const struct dump *d, uint32_t pts)
{
	for (size_t i = 0; i < d->n_external; i++)
		if (d->external[i].role == MEM_TTY && d->external[i].pts == pts)
			return &d->external[i];
	return NULL;
}

static int add_external(struct dump *d, const struct table_exec *t, unsigned role, struct err *e)
{
	struct external x = { .id = t->id, .role = role, .pts = MEM_NONE };
	struct external *more = reallocarray(d->external, d->n_external + 1, sizeof(*more));
	struct stat st;
	int r;

	if (!more)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "execs");
	d->external = more;
	x.fd = sys_pidfd_getfd(d->agent_pidfd, t->fd[role]);
	if (x.fd < 0)
		return err_sys(e, ERR_INTERNAL, x.fd, "the agent's data of exec %u", t->id);
	d->external[d->n_external++] = x;
	r = fstat(x.fd, &st) < 0 ? -errno : 0;
	if (r == 0 && role == MEM_TTY)
		r = sys_ioctl(x.fd, TIOCGPTN, &x.pts);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "the agent's data of exec %u", t->id);
	x.dev = st.st_dev;
	x.ino = st.st_ino;
	d->external[d->n_external - 1] = x;
	return 0;
}

int external_read(struct dump *d, struct err *e)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < TABLE_EXECS; i++) {
		const struct table_exec *t = &d->table.exec[i];

		if (!(t->flags & TABLE_USED) || t->flags & TABLE_ENDED || !(t->flags & TABLE_KEEP))
			continue;
		for (unsigned role = 0; r == 0 && role < TABLE_FDS; role++)
			if (t->fd[role] >= 0)
				r = add_external(d, t, role, e);
	}
	return r;
}

/*
 * The owner of a pipe. One that came from outside, for an exec that has ended, has an owner without a number inside: it
 * is recorded as root's.
 */
static uint64_t owner(const struct dump *d, const struct stat *st)
{
	uint32_t uid, gid;

	if (!proc_map(&d->uids, st->st_uid, &uid) || uid > MEM_PIPE_ID_MAX)
		uid = 0;
	if (!proc_map(&d->gids, st->st_gid, &gid) || gid > MEM_PIPE_ID_MAX)
		gid = 0;
	return MEM_PIPE_OWNER(uid, gid, st->st_mode);
}

int object_pipe(struct opened *x, struct err *e)
{
	const struct external *ext = external_find(x->d, x->f.st.st_dev, x->f.st.st_ino);
	struct mem_object *o = &x->o->rec;
	bool reads = (o->flags & O_ACCMODE) != O_WRONLY;
	int size = fcntl(x->o->fd, F_GETPIPE_SZ);

	o->a = size > 0 ? (uint64_t)size : 0;
	if (ext) {
		/*
		 * If a process has the other direction of a pipe to the host, both directions could not be restored
		 * separately.
		 */
		if (reads != (ext->role == MEM_STDIN))
			return proc_refuse(x->p, e, "reads its own output or writes its own input");
		o->kind = MEM_OBJ_EXTERNAL;
		o->a = ext->id;
		o->b = ext->role;
		return 0;
	}
	if (o->flags & O_DIRECT)
		return proc_refuse(x->p, e, "has a pipe in packet mode");
	o->kind = MEM_OBJ_PIPE;
	o->b = owner(x->d, &x->f.st);
	if (x->f.path[0] != '/')
		return 0;
	o->b = 0;
	if (!x->f.named) {
		o->kind = MEM_OBJ_FIFO;
		return node_removed(x->d, x->p, x->p->dir, x->link, &x->f, &o->file, e);
	}
	if (!file_may_reach(x->d, x->p, x->f.path, 0) || !file_may_open(x->d, x->p, &x->f.st, 6))
		return proc_refuse(x->p, e, "has %.100s open, which it cannot open again", x->f.path);
	o->kind = MEM_OBJ_FIFO;
	return image_file(&x->d->image, x->f.path, &x->f.st, 0, &o->file, e);
}
