/* Descriptors of all processes, and which of them are one and the same open file. */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"
#include "memory/object.h"
#include "memory/object_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS_MAX 65536U
#define OBJECTS_MAX 16384U
#ifndef F_GETOWN_EX
#define F_GETOWN_EX 16
#endif
#ifndef F_GETSIG
#define F_GETSIG 11
#endif
#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static int list_numbers(const struct proc *p, uint32_t **ret, size_t *ret_n, struct err *e)
{
	int fd = sys_openat(p->dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	AUTO_FREE uint32_t *list = NULL;
	size_t n = 0, room = 0;
	struct dirent *de;

	if (!dir) {
		fd_close(fd);
		return err_sys(e, ERR_INTERNAL, fd < 0 ? fd : -ENOMEM, "descriptors of process %u", p->pid);
	}
	while ((de = readdir(dir))) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		if (n == room) {
			uint32_t *more =
				room >= FDS_MAX ? NULL : reallocarray(list, room ? room * 2 : 64, sizeof(*list));

			if (!more) {
				closedir(dir);
				return err_set(e, ERR_TOO_LARGE, -E2BIG, "process %u (%s) has too many descriptors",
					       p->pid, p->name);
			}
			list = more;
			room = room ? room * 2 : 64;
		}
		list[n++] = (uint32_t)strtoul(de->d_name, NULL, 10);
	}
	closedir(dir);
	if (n)
		qsort(list, n, sizeof(*list), compare);
	*ret = TAKE_PTR(list);
	*ret_n = n;
	return 0;
}

/* The kernel's order (kcmp) of two open files of the same inode: -1 or 1; 0: they are the same. Below -1: -errno. */
static int order(const struct object *o, const struct opened *x, struct err *e)
{
	int r;

	if (o->dev != x->f.st.st_dev)
		return o->dev < x->f.st.st_dev ? -1 : 1;
	if (o->ino != x->f.st.st_ino)
		return o->ino < x->f.st.st_ino ? -1 : 1;
	r = sys_kcmp(o->flying ? getpid() : o->p->host, x->flying ? getpid() : x->p->host, KCMP_FILE,
		     o->flying ? (unsigned long)o->fd : o->num, x->num);
	if (r < 0) {
		err_sys(e, ERR_INTERNAL, r, "compare descriptors");
		return -EIO;
	}
	return r == 0 ? 0 : r == 1 ? -1 : 1;
}

/*
 * Searches for an open file. 1: it has an object, whose number is returned. 0: it is new, and belongs at this place of
 * d->by_file. A program may have thousands of open files with one inode: all its eventfds, for example.
 */
static int find(const struct dump *d, const struct opened *x, uint32_t *ret, size_t *ret_at, struct err *e)
{
	size_t low = 0, high = d->n_by_file;

	while (low < high) {
		const size_t mid = (low + high) / 2;
		const int r = order(&d->object[d->by_file[mid]], x, e);

		if (r < -1)
			return r;
		if (r == 0) {
			*ret = d->by_file[mid];
			return 1;
		}
		if (r < 0)
			low = mid + 1;
		else
			high = mid;
	}
	*ret_at = low;
	return 0;
}

/* Adds the object @number to d->by_file, at the place that find() has returned. */
static int remember(struct dump *d, uint32_t number, size_t at, struct err *e)
{
	uint32_t *more = reallocarray(d->by_file, d->n_by_file + 1, sizeof(*more));

	if (!more)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for open files");
	d->by_file = more;
	memmove(more + at + 1, more + at, (d->n_by_file++ - at) * sizeof(*more));
	more[at] = number;
	return 0;
}

/*
 * The id of a thread, process or group as seen inside. The id of a group is that of its first process, which may be
 * gone.
 */
static uint32_t inside(const struct dump *d, int host)
{
	for (size_t i = 1; i < d->n_procs; i++)
		for (size_t t = 0; t <= d->proc[i].n_threads; t++)
			if (t ? d->proc[i].thread[t - 1].host == host : d->proc[i].host == host)
				return t ? d->proc[i].thread[t - 1].tid : d->proc[i].pid;
	return 0;
}

/* Records who receives the file's signals (F_SETOWN, F_SETSIG). */
static int owner(const struct dump *d, const struct proc *p, struct object *o, struct err *e)
{
	struct {
		int type, pid;
	} own = { 0 };
	uint32_t by[2], uid;
	int sig;

	if (o->rec.flags & O_PATH || sys_fcntl(o->fd, F_GETOWN_EX, (long)&own) < 0)
		return 0;
	sig = sys_fcntl(o->fd, F_GETSIG, 0);
	o->rec.owner_sig = sig > 0 ? (uint32_t)sig : 0;
	if (!own.pid)
		return 0;
	o->rec.owner_type = (uint32_t)own.type;
	o->rec.owner_pid = inside(d, own.pid);
	if (!o->rec.owner_pid)
		return proc_refuse(p, e,
				   "descriptor %u sends signals to a group whose first process has ended, or to a "
				   "process outside the sandbox",
				   o->num);
	/* The signals are sent with the ids of the user that asked for them. */
	if (sys_fcntl(o->fd, F_GETOWNER_UIDS, (long)by) < 0)
		return 0;
	for (unsigned i = 0; i < 2; i++)
		if (!proc_map(&d->uids, by[i], &uid) || uid != p->rec.uid[i])
			return proc_refuse(p, e, "descriptor %u sends signals as another user", o->num);
	return 0;
}

static int classify(struct opened *x, struct err *e)
{
	mode_t mode = x->f.st.st_mode;

	if (x->f.path[0] != '/') {
		if (!strncmp(x->f.path, "pipe:", 5))
			return object_pipe(x, e);
		return S_ISSOCK(mode) ? object_socket(x, e) : object_anon(x, e);
	}
	if (S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode))
		return object_file(x, e);
	if (S_ISFIFO(mode))
		return object_pipe(x, e);
	if (S_ISCHR(mode))
		return object_device(x, e);
	return proc_refuse(x->p, e, "has an unknown kind of open file: descriptor %u", x->num);
}

struct object *object_new(struct dump *d, struct err *e)
{
	struct object *more =
		d->n_objects >= OBJECTS_MAX ? NULL : reallocarray(d->object, d->n_objects + 1, sizeof(*more));

	if (!more) {
		err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u open files", OBJECTS_MAX);
		return NULL;
	}
	d->object = more;
	more += d->n_objects++;
	*more = (struct object){ .rec = { .file = MEM_NONE, .pair = MEM_NONE }, .fd = -1 };
	return more;
}

static int add_object(struct dump *d, struct opened *x, uint32_t flags, size_t at, uint32_t *ret, struct err *e)
{
	struct object *o = object_new(d, e);
	int r;

	if (!o)
		return -E2BIG;
	*ret = (uint32_t)d->n_objects - 1;
	o->p = x->p;
	o->num = x->num;
	o->dev = x->f.st.st_dev;
	o->ino = x->f.st.st_ino;
	o->rec.flags = flags;
	o->rec.pos = proc_number(x->info, "pos", 10, 0);
	o->flying = x->flying;
	o->fd = x->flying ? sys_fcntl((int)x->num, F_DUPFD_CLOEXEC, 0) : sys_pidfd_getfd(x->p->pidfd, (int)x->num);
	if (o->fd < 0)
		return err_sys(e, ERR_INTERNAL, o->fd, "descriptor %u of process %u", x->num, x->p->pid);
	x->o = o;
	r = remember(d, *ret, at, e);
	if (r == 0)
		r = classify(x, e);
	return r < 0 ? r : owner(d, x->p, &d->object[*ret], e);
}

static int read_one(struct dump *d, struct proc *p, uint32_t num, struct err *e)
{
	struct opened x = { .d = d, .p = p, .num = num };
	AUTO_FREE char *info = NULL;
	struct mem_fd rec = { .num = num };
	char name[32];
	uint32_t flags;
	size_t at = 0;
	bool first;
	int r;

	snprintf(x.link, sizeof(x.link), "fd/%u", num);
	snprintf(name, sizeof(name), "fdinfo/%u", num);
	r = proc_text(p->dir, name, 1 << 20, &info, NULL);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read %s of process %u", name, p->pid);
	r = file_find(d, p->dir, x.link, &x.f, e);
	if (r < 0)
		return r;
	x.info = info;
	flags = (uint32_t)proc_number(info, "flags", 8, 0);
	rec.cloexec = !!(flags & O_CLOEXEC);
	flags &= ~(uint32_t)O_CLOEXEC;
	r = find(d, &x, &rec.object, &at, e);
	first = r == 0;
	if (first)
		r = add_object(d, &x, flags, at, &rec.object, e);
	if (r >= 0)
		r = lock_read(&x, rec.object, first, e);
	if (r < 0)
		return r;
	p->rec.fd.n++;
	return image_add(&d->image, MEM_S_FD, &rec, NULL, e);
}

int object_in_flight(struct dump *d, struct proc *p, int fd, uint32_t *ret, struct err *e)
{
	AUTO_CLOSE int self = sys_openat(AT_FDCWD, "/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	struct opened x = { .d = d, .p = p, .num = (uint32_t)fd, .flying = 1 };
	AUTO_FREE char *info = NULL;
	char name[32];
	uint32_t flags;
	size_t at = 0;
	int r;

	snprintf(x.link, sizeof(x.link), "fd/%d", fd);
	snprintf(name, sizeof(name), "fdinfo/%d", fd);
	r = self < 0 ? self : proc_text(self, name, 1 << 20, &info, NULL);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read %s", name);
	r = file_find(d, self, x.link, &x.f, e);
	if (r < 0)
		return r;
	x.info = info;
	flags = (uint32_t)proc_number(info, "flags", 8, 0) & ~(uint32_t)O_CLOEXEC;
	r = find(d, &x, ret, &at, e);
	if (r != 0)
		return r < 0 ? r : 0;
	if (proc_field(info, "lock", &(const char *){ NULL }))
		return proc_refuse(p, e, "has a file in transit in a unix socket that is locked");
	if (!S_ISREG(x.f.st.st_mode) && !S_ISDIR(x.f.st.st_mode) && !S_ISSOCK(x.f.st.st_mode) &&
	    !S_ISFIFO(x.f.st.st_mode))
		return proc_refuse(p, e,
				   "has a descriptor in transit in a unix socket that no process has open: %.100s",
				   x.f.path);
	return add_object(d, &x, flags, at, ret, e);
}

static int read_proc(struct dump *d, struct proc *p, struct err *e)
{
	AUTO_FREE uint32_t *list = NULL;
	size_t n = 0;
	int r;

	p->rec.fd.first = image_count(&d->image, MEM_S_FD);
	if (p->files) /* it shares another process's descriptors, which are recorded there */
		return share_check(d, p, e);
	r = list_numbers(p, &list, &n, e);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = read_one(d, p, list[i], e);
	return r;
}

uint32_t object_users(const struct dump *d, uint32_t object)
{
	const struct mem_fd *fd = (const void *)d->image.section[MEM_S_FD].data;
	uint32_t n = 0;

	for (size_t i = 1; i < d->n_procs; i++) {
		const struct mem_range own = d->proc[i].rec.fd;
		uint32_t k = 0;

		while (k < own.n && fd[own.first + k].object != object)
			k++;
		n += k < own.n;
	}
	return n;
}

int object_terminal(struct dump *d, uint32_t pts, struct err *e)
{
	bool inside = false;
	struct object *o;

	for (size_t i = 0; i < d->n_objects; i++) {
		const struct mem_object *x = &d->object[i].rec;

		if (x->kind == MEM_OBJ_PTS && x->a == pts)
			return 0;
		inside |= x->kind == MEM_OBJ_PTMX && x->a == pts;
	}
	o = inside ? object_new(d, e) : NULL;
	if (!o)
		return inside ? -E2BIG : 0;
	o->rec.kind = MEM_OBJ_PTS;
	o->rec.flags = O_RDWR;
	o->rec.a = pts;
	return 0;
}

/* Adds an object for shared memory of which no process has a descriptor. */
static int new_memory(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret,
		      struct err *e)
{
	struct object *o = object_new(d, e);

	if (!o)
		return -E2BIG;
	*ret = (uint32_t)d->n_objects - 1;
	o->dev = f->st.st_dev;
	o->ino = f->st.st_ino;
	o->rec.kind = MEM_OBJ_SHMEM;
	o->rec.flags = O_RDWR;
	o->rec.a = (uint64_t)f->st.st_size;
	o->rec.pair = *ret;
	o->fd = sys_openat(p->dir, link, O_RDONLY | O_CLOEXEC, 0);
	return o->fd < 0 ? err_sys(e, ERR_INTERNAL, o->fd, "shared memory of process %u", p->pid) : 0;
}

int object_shmem(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret, struct err *e)
{
	/* The object must be open for reading and writing, so that any mapping can be made of it. */
	for (size_t i = 0; i < d->n_objects; i++)
		if (d->object[i].dev == f->st.st_dev && d->object[i].ino == f->st.st_ino &&
		    (d->object[i].rec.flags & O_ACCMODE) == O_RDWR) {
			*ret = (uint32_t)i;
			return 0;
		}
	return new_memory(d, p, link, f, ret, e);
}

int object_backing(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret,
		   struct err *e)
{
	for (size_t i = 0; i < d->n_objects; i++)
		if (d->object[i].dev == f->st.st_dev && d->object[i].ino == f->st.st_ino &&
		    d->object[i].rec.kind == MEM_OBJ_SHMEM && (d->object[i].rec.flags & O_ACCMODE) != O_WRONLY &&
		    !(d->object[i].rec.flags & O_PATH)) {
			*ret = (uint32_t)i;
			return 0;
		}
	return new_memory(d, p, link, f, ret, e);
}

int fd_read_all(struct dump *d, struct err *e)
{
	int r = share_read(d, e);

	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (!d->proc[i].zombie)
			r = read_proc(d, &d->proc[i], e);
	return r;
}

void object_close(struct dump *d)
{
	for (size_t i = 0; i < d->n_objects; i++)
		fd_close(TAKE_FD(d->object[i].fd));
	for (size_t i = 0; i < d->n_external; i++)
		fd_close(TAKE_FD(d->external[i].fd));
}
