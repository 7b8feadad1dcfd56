/* Kernel objects that are nothing but a descriptor. Their content is in fdinfo. */
#include "memory/object.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/kcmp.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int eventfd(struct opened *x, struct err *e)
{
	struct mem_object *o = &x->o->rec;
	const char *at;

	if (!proc_field(x->info, "eventfd-count", &at))
		return err_set(e, ERR_INTERNAL, -EINVAL, "fdinfo of an eventfd is invalid");
	o->kind = MEM_OBJ_EVENTFD;
	o->a = strtoull(at, NULL, 16);
	o->b = proc_number(x->info, "eventfd-semaphore", 10, 0);
	return 0;
}

static int timerfd(struct opened *x, struct err *e)
{
	struct mem_object *o = &x->o->rec;
	unsigned long long v[4];
	const char *value, *interval;
	uint64_t data[5];

	if (!proc_field(x->info, "it_value", &value) || !proc_field(x->info, "it_interval", &interval) ||
	    sscanf(value, " (%llu, %llu)", &v[2], &v[3]) != 2 || sscanf(interval, " (%llu, %llu)", &v[0], &v[1]) != 2)
		return err_set(e, ERR_INTERNAL, -EINVAL, "fdinfo of a timerfd is invalid");
	o->kind = MEM_OBJ_TIMERFD;
	o->a = proc_number(x->info, "clockid", 10, 0);
	o->b = proc_number(x->info, "settime flags", 8, 0) & 3;
	for (unsigned i = 0; i < 4; i++)
		data[i] = v[i];
	data[4] = proc_number(x->info, "ticks", 10, 0);
	/*
	 * A periodic timer that was not read: only reading would start the next period. So it is due now, and this is
	 * its last tick.
	 */
	if ((data[0] || data[1]) && !data[2] && !data[3] && data[4]) {
		data[3] = 1;
		data[4]--;
	}
	return image_bytes(&x->d->image, data, sizeof(data), &o->data, e);
}

static int signalfd(struct opened *x, struct err *e)
{
	const char *at;

	if (!proc_field(x->info, "sigmask", &at))
		return err_set(e, ERR_INTERNAL, -EINVAL, "fdinfo of a signalfd is invalid");
	x->o->rec.kind = MEM_OBJ_SIGNALFD;
	x->o->rec.a = strtoull(at, NULL, 16);
	return 0;
}

#define PIDFD_ASK _IOWR(0xff, 11, struct pidfd_told)
struct pidfd_told { /* the kernel's struct pidfd_info, as it was first */
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t status;
};
#define PIDFD_TELLS_END 8U

/*
 * The exit status of a process whose number is free again. Kernels before 6.15 do not report it, not to programs
 * either.
 */
static uint32_t ended_as(int fd)
{
	struct pidfd_told t = { .mask = PIDFD_TELLS_END };

	return sys_ioctl(fd, PIDFD_ASK, &t) == 0 && t.mask & PIDFD_TELLS_END ? (uint32_t)t.status & 0xff7f : 0;
}

/* A pidfd; the image names the process by its number inside. */
static int pidfd(struct opened *x, struct err *e)
{
	uint64_t host = proc_number(x->info, "Pid", 10, 0);
	bool gone = host == UINT64_MAX; /* -1 */

	x->o->rec.kind = MEM_OBJ_PIDFD;
	for (size_t i = 1; i < x->d->n_procs; i++) {
		const struct proc *p = &x->d->proc[i];

		if ((uint64_t)p->host != host)
			continue;
		gone = p->gone || (p->zombie && !p->parent); /* the agent is about to reap it */
		x->o->rec.a = gone ? 0 : p->pid;
	}
	x->o->own = !gone;
	x->o->rec.b = gone ? ended_as(x->o->fd) : 0;
	return x->o->rec.a || gone ?
		       0 :
		       proc_refuse(x->p, e, "has a pidfd of a thread, or of a process outside the sandbox");
}

/* A namespace of the sandbox, as a descriptor for setns(): "net:[4026531840]". */
static int namespace(struct opened *x, struct err *e)
{
	const size_t len = (size_t)(strchr(x->f.path, ':') - x->f.path);
	char name[32], path[64];
	struct stat st;

	snprintf(name, sizeof(name), "ns/%.*s", len < 16 ? (int)len : 16, x->f.path);
	if (x->o->rec.flags & O_PATH || fstatat(x->d->proc[0].dir, name, &st, 0) < 0 || st.st_ino != x->f.st.st_ino ||
	    st.st_dev != x->f.st.st_dev)
		return proc_refuse(x->p, e, "has something open that cannot be saved: %.60s", x->f.path);
	x->o->rec.kind = MEM_OBJ_PROC;
	x->o->own = true;
	snprintf(path, sizeof(path), "/proc/%u/%s", x->p->pid, name);
	return image_file(&x->d->image, path, &x->f.st, 0, &x->o->rec.file, e);
}

/* The watches are recorded when all objects are known (inotify_link). */
static int inotify(struct opened *x, struct err *e)
{
	(void)e;
	x->o->rec.kind = MEM_OBJ_INOTIFY;
	return 0;
}

static int epoll(struct opened *x, struct err *e)
{
	(void)e;
	x->o->rec.kind = MEM_OBJ_EPOLL; /* its watches are recorded when all objects are known */
	return 0;
}

int object_anon(struct opened *x, struct err *e)
{
	static const struct {
		const char *name;
		int (*read)(struct opened *x, struct err *e);
	} kinds[] = {
		{ "anon_inode:[eventfd]", eventfd },
		{ "anon_inode:[timerfd]", timerfd },
		{ "anon_inode:[signalfd]", signalfd },
		{ "anon_inode:[pidfd]", pidfd },
		{ "pidfd:", pidfd },
		{ "anon_inode:inotify", inotify },
		{ "anon_inode:[eventpoll]", epoll },
		{ "net:[", namespace },
		{ "mnt:[", namespace },
		{ "pid:[", namespace },
		{ "user:[", namespace },
		{ "uts:[", namespace },
		{ "ipc:[", namespace },
		{ "cgroup:[", namespace },
		{ "time:[", namespace },
	};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (!strncmp(x->f.path, kinds[i].name, strlen(kinds[i].name)))
			return kinds[i].read(x, e);
	return proc_refuse(x->p, e, "has something open that cannot be saved: %.60s", x->f.path);
}
