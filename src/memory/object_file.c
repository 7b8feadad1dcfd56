/* Files, folders, device nodes, terminals. */
#include "memory/object.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <ctype.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define PROC_MAGIC 0x9fa0UL
#define SYSFS_MAGIC 0x62656572UL
#define PTS_MAJOR 136U
#define DRAIN_MS 300
#define SECRETMEM_MAGIC 0x5345434dL
#define HUGETLBFS_MAGIC 0x958458f6L
#define MQUEUE_MAGIC 0x19800202L

/* The kernel's struct termios2, which C libraries define differently. */
struct termios_kernel {
	uint32_t iflag, oflag, cflag, lflag;
	uint8_t line, cc[19];
	uint32_t ispeed, ospeed;
};
#define GET_TERMIOS _IOR('T', 0x2a, struct termios_kernel)
#ifndef TIOCGPTLCK
#define TIOCGPTLCK _IOR('T', 0x39, int)
#endif
#ifndef TIOCGPKT
#define TIOCGPKT _IOR('T', 0x38, int)
#endif
#ifndef TIOCGEXCL
#define TIOCGEXCL _IOR('T', 0x40, int)
#endif
#ifndef TIOCGDEV
#define TIOCGDEV _IOR('T', 0x32, unsigned int)
#endif

static int memfd(struct opened *x, struct err *e)
{
	char *name = x->f.path + 7, *end = strrchr(name, ' '); /* " (deleted)" */
	struct object *o = x->o;
	int seals = sys_fcntl(o->fd, F_GET_SEALS, 0);

	if (seals < 0 || o->rec.flags & O_PATH || strncmp(x->f.path, "/memfd:", 7) != 0)
		return proc_refuse(x->p, e, "has memory open that is not a memfd: %.100s", x->f.path);
	o->rec.kind = MEM_OBJ_SHMEM;
	o->rec.a = (uint64_t)x->f.st.st_size;
	o->rec.b = (uint32_t)seals;
	return image_bytes(&x->d->image, name, end ? (size_t)(end - name) : strlen(name), &o->rec.data, e);
}

static int without_name(struct opened *x, struct err *e)
{
	struct statfs fs = { 0 };

	if (x->f.st.st_dev == x->d->shm_dev)
		return memfd(x, e);
	fstatfs(x->o->fd, &fs);
	if (fs.f_type == SECRETMEM_MAGIC || fs.f_type == HUGETLBFS_MAGIC)
		return proc_refuse(x->p, e, "has memory open of a kind that cannot be saved (%s)",
				   fs.f_type == SECRETMEM_MAGIC ? "memfd_secret" : "huge pages");
	if (fs.f_type == MQUEUE_MAGIC)
		return proc_refuse(x->p, e, "has a POSIX message queue open (%.100s)", x->f.path);
	if (x->f.st.st_nlink)
		return proc_refuse(x->p, e, "has %.100s open, which has no name in the sandbox", x->f.path);
	x->o->rec.kind = MEM_OBJ_FILE;
	x->f.own = true;
	return node_removed(x->d, x->p, x->p->dir, x->link, &x->f, &x->o->rec.file, e);
}

/* Why a file below /proc/N cannot be opened again, or NULL: when the agent does so, processes have no threads and descriptors yet. */
static const char *proc_lacks(const struct opened *x)
{
	char *end;
	unsigned long pid = strtoul(x->f.path + 6, &end, 10), tid = pid;

	if (!strncmp(end, "/task/", 6))
		tid = strtoul(end + 6, &end, 10);
	if (tid != pid)
		return "belongs to a thread";
	if (!strncmp(end, "/fdinfo/", 8) || !strncmp(end, "/fd/", 4) || !strncmp(end, "/map_files/", 11))
		return "is about a descriptor or a mapping";
	return NULL;
}

/* A file of a process below /proc, which another one opens again: the kernel asks whether both are one user. */
static bool others_process(const struct opened *x)
{
	const uint32_t pid = (uint32_t)strtoul(x->f.path + 6, NULL, 10);

	for (size_t i = 1; i < x->d->n_procs; i++) {
		const struct proc *of = &x->d->proc[i];

		if (of->pid == pid && of != x->p && memcmp(of->rec.uid, x->p->rec.uid, sizeof(of->rec.uid)) != 0)
			return true;
	}
	return false;
}

int object_file(struct opened *x, struct err *e)
{
	static const unsigned needs[4] = { [O_RDONLY] = 4, [O_WRONLY] = 2, [O_RDWR] = 6, 6 };
	struct object *o = x->o;
	int r;

	if (!x->f.named)
		return without_name(x, e);
	if (!x->f.carried && S_ISREG(x->f.st.st_mode))
		return proc_refuse(x->p, e, "has %.100s open, which is not part of a checkpoint", x->f.path);
	if (x->f.fs != PROC_MAGIC && x->f.fs != SYSFS_MAGIC &&
	    (!file_may_reach(x->d, x->p, x->f.path, 0) ||
	     (!(o->rec.flags & O_PATH) && !file_may_open(x->d, x->p, &x->f.st, needs[o->rec.flags & 3]))))
		return proc_refuse(x->p, e, "has %.100s open, which it cannot open again", x->f.path);
	o->rec.kind = x->f.fs == PROC_MAGIC || x->f.fs == SYSFS_MAGIC ? MEM_OBJ_PROC : MEM_OBJ_FILE;
	if (x->f.fs == PROC_MAGIC && !strncmp(x->f.path, "/proc/", 6) && isdigit((unsigned char)x->f.path[6])) {
		if (proc_lacks(x))
			return proc_refuse(x->p, e, "has %.100s open, which %s", x->f.path, proc_lacks(x));
		if (others_process(x))
			return proc_refuse(x->p, e, "has %.100s open, a file of a process of another user", x->f.path);
		o->own = S_ISREG(x->f.st.st_mode);
	}
	r = image_file(&x->d->image, x->f.path, &x->f.st, 0, &o->rec.file, e);
	if (r == 0)
		file_number(x->d, &x->f, image_at(&x->d->image, MEM_S_FILE, o->rec.file));
	return r;
}

/*
 * The number inside of the process group that is @host outside, from any process of it. 0: the group has no process any
 * more.
 */
static uint32_t group_inside(const struct dump *d, int host)
{
	for (size_t i = 1; host > 0 && i < d->n_procs; i++)
		if (!d->proc[i].gone && proc_number(d->proc[i].status, "NSpgid", 10, 0) == (uint64_t)host)
			return proc_inside(d->proc[i].status, "NSpgid");
	return 0;
}

/* Reads owner and mode of a terminal's slave, which programs such as screen and script set for their user. */
static int pty_node(const struct dump *d, uint32_t index, struct mem_pty *ret, struct err *e)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int at = -1;
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/dev/pts/%u", index);
	at = sys_openat2(d->root, path, &how);
	if (at < 0 || fstat(at, &st) < 0 || !proc_map(&d->uids, st.st_uid, &ret->uid) ||
	    !proc_map(&d->gids, st.st_gid, &ret->gid))
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "terminal %s has no owner or name in the sandbox",
			       path);
	ret->mode = st.st_mode & 07777;
	return 0;
}

int pty_read(struct dump *d, int fd, uint32_t index, struct mem_pty *ret, struct err *e)
{
	struct termios_kernel t = { 0 };
	struct winsize ws = { 0 };
	int pgrp = 0, lock = 0, packet = 0, exclusive = 0, r = sys_ioctl(fd, GET_TERMIOS, &t);

	if (r == 0)
		r = sys_ioctl(fd, TIOCGWINSZ, &ws);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "settings of a terminal");
	/* The last three belong to the master; for a slave, they are recorded with its master. */
	sys_ioctl(fd, TIOCGPGRP, &pgrp);
	sys_ioctl(fd, TIOCGPTLCK, &lock);
	sys_ioctl(fd, TIOCGPKT, &packet);
	sys_ioctl(fd, TIOCGEXCL, &exclusive);
	if (pgrp > 0 && !group_inside(d, pgrp))
		return err_set(e, ERR_CONFLICT, -EBUSY, "terminal %u: its foreground process group has ended", index);
	if (t.line)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "terminal %u has line discipline %u", index, t.line);
	*ret = (struct mem_pty){
		.iflag = t.iflag,
		.oflag = t.oflag,
		.cflag = t.cflag,
		.lflag = t.lflag,
		.ispeed = t.ispeed,
		.ospeed = t.ospeed,
		.rows = ws.ws_row,
		.cols = ws.ws_col,
		.xpixel = ws.ws_xpixel,
		.ypixel = ws.ws_ypixel,
		.foreground = group_inside(d, pgrp),
		.locked = (uint32_t)lock,
		.packet = (uint32_t)packet,
		.line = t.line,
		.exclusive = (uint32_t)exclusive,
	};
	memcpy(ret->cc, t.cc, sizeof(ret->cc));
	return pty_node(d, index, ret, e);
}

/*
 * Waits until a terminal is empty: its content cannot be peeked at, only read, so the other end gets some time to read
 * it.
 */
static bool drained(int fd)
{
	const struct timespec nap = { 0, 1000000 };
	uint64_t until = clock_mono_ns() + DRAIN_MS * 1000000ULL;
	int n = 0;

	while (sys_ioctl(fd, FIONREAD, &n) == 0 && n > 0) {
		if (clock_mono_ns() > until)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

/* Checks the number of a terminal: the agent has to make all terminals up to it. */
static int pty_number(const struct opened *x, uint64_t index, struct err *e)
{
	return index < MEM_PTYS ? 0 :
				  proc_refuse(x->p, e, "has terminal %llu open: at most %u can be saved",
					      (unsigned long long)index, MEM_PTYS);
}

static int slave(struct opened *x, struct err *e)
{
	struct object *o = x->o;
	const struct external *ext;
	struct mem_pty pty;
	unsigned dev = 0;
	int r = sys_ioctl(o->fd, TIOCGDEV, &dev), waiting = 0;

	if (r == -EIO && major(x->f.st.st_rdev) >= PTS_MAJOR) {
		/* The number stays in use until the last descriptor of the slave is closed. */
		o->rec.kind = MEM_OBJ_PTS;
		o->rec.a = (major(x->f.st.st_rdev) - PTS_MAJOR) * 256ULL + minor(x->f.st.st_rdev);
		o->rec.b = 1;
		return pty_number(x, o->rec.a, e);
	}
	if (r == -EIO)
		return proc_refuse(x->p, e,
				   "has a terminal open (descriptor %u) that was hung up and cannot be identified",
				   x->num);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "a terminal of process %u", x->p->pid);
	if ((dev >> 8 & 0xfff) < PTS_MAJOR || (dev >> 8 & 0xfff) > PTS_MAJOR + 7)
		return proc_refuse(x->p, e, "has a terminal open that does not belong to the sandbox");
	o->rec.kind = MEM_OBJ_PTS;
	o->rec.a = (dev & 0xff) | (dev >> 12 & 0xfff00);
	r = pty_number(x, o->rec.a, e);
	if (r < 0)
		return r;
	if (sys_ioctl(o->fd, FIONREAD, &waiting) == 0 && waiting > 0)
		return err_set(e, ERR_CONFLICT, -EBUSY, "process %u (%s): its terminal has unread input", x->p->pid,
			       x->p->name);
	ext = external_tty(x->d, (uint32_t)o->rec.a);
	if (!ext)
		return 0;
	if (!drained(ext->fd))
		return err_set(e, ERR_CONFLICT, -EBUSY, "process %u (%s): its terminal has unread output", x->p->pid,
			       x->p->name);
	r = pty_read(x->d, ext->fd, (uint32_t)o->rec.a, &pty, e);
	if (r < 0)
		return r;
	o->rec.kind = MEM_OBJ_EXTERNAL;
	o->rec.a = ext->id;
	o->rec.b = MEM_TTY;
	return image_bytes(&x->d->image, &pty, sizeof(pty), &o->rec.data, e);
}

static int master(struct opened *x, struct err *e)
{
	struct object *o = x->o;
	struct mem_pty pty;
	unsigned index = 0;
	int r = sys_ioctl(o->fd, TIOCGPTN, &index), waiting = 0;

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "a terminal of process %u", x->p->pid);
	r = pty_read(x->d, o->fd, index, &pty, e);
	if (r < 0)
		return r;
	if (sys_ioctl(o->fd, FIONREAD, &waiting) == 0 && waiting > 0)
		return err_set(e, ERR_CONFLICT, -EBUSY, "process %u (%s): its terminal has unread output", x->p->pid,
			       x->p->name);
	r = pty_number(x, index, e);
	if (r < 0)
		return r;
	o->rec.kind = MEM_OBJ_PTMX;
	o->rec.a = index;
	return image_bytes(&x->d->image, &pty, sizeof(pty), &o->rec.data, e);
}

/*
 * The host's /dev/null, which is the stdin of a command without one: the sandbox has the same device under its own
 * name.
 */
static bool same_inside(struct opened *x, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int at = sys_openat2(x->d->root, path, &how);
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != x->f.st.st_rdev)
		return false;
	x->f.st = st;
	snprintf(x->f.path, sizeof(x->f.path), "%s", path);
	return true;
}

int object_device(struct opened *x, struct err *e)
{
	static const unsigned plain[] = { 3, 5, 7, 8, 9 };
	static const char *const names[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom" };
	unsigned major_nr = major(x->f.st.st_rdev), minor_nr = minor(x->f.st.st_rdev);

	if (major_nr == 5 && minor_nr == 2)
		return master(x, e);
	if ((major_nr >= PTS_MAJOR && major_nr < PTS_MAJOR + 8) || (major_nr == 5 && minor_nr == 0))
		return slave(x, e);
	for (size_t i = 0; major_nr == 1 && i < ARRAY_LEN(plain); i++)
		if (minor_nr == plain[i] && (x->f.named || same_inside(x, names[i]))) {
			x->o->rec.kind = MEM_OBJ_DEV;
			return image_file(&x->d->image, x->f.path, &x->f.st, 0, &x->o->rec.file, e);
		}
	return proc_refuse(x->p, e, "has a device open (%u:%u)", major_nr, minor_nr);
}
