/*
 * Open file descriptions without a path: made by the agent, once each, so that processes that shared one share it
 * again. All of them are above restore->base until each process has put its own in their places.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <termios.h>
#include <unistd.h>

#define TTY_GROUP 5
#define PTS_TRIES 64
#define WATCH_TRIES 65536
#ifdef __aarch64__
#define LARGEFILE 0400000U /* the kernel's: libcs hide it */
#else
#define LARGEFILE 0100000U
#endif
#define STATUS_FLAGS (O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME)
#ifndef TFD_IOC_SET_TICKS
#define TFD_IOC_SET_TICKS _IOW('T', 0, uint64_t)
#endif

/* A number below /proc: what is behind it exists only when the processes do. */
bool restore_is_own(const struct restore *r, const struct mem_object *o)
{
	const struct mem_file *f;
	const char *path;

	if (o->kind == MEM_OBJ_PIDFD)
		return o->a; /* one that has ended: restore_ended() */
	if (o->kind != MEM_OBJ_PROC)
		return false;
	f = &r->m.file[o->file];
	path = restore_bytes(r, f->path);
	return f->path.len > 6 && !memcmp(path, "/proc/", 6) && path[6] >= '0' && path[6] <= '9';
}

static int put(struct restore *r, uint32_t i, int fd)
{
	if (fd < 0)
		return fd;
	r->object[i] = restore_high(r, fd);
	return r->object[i] < 0 ? r->object[i] : 0;
}

/* The same pipe, terminal or file again, as another open file description. */
static int reopen(int fd, uint32_t flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return sys_openat(AT_FDCWD, path, (int)(flags & (O_ACCMODE | STATUS_FLAGS | O_PATH)) | O_CLOEXEC | O_NOCTTY, 0);
}

static int set_flags(int fd, uint32_t flags)
{
	return sys_fcntl(fd, F_SETFL, (long)(flags & STATUS_FLAGS)); /* O_ASYNC: set_owner() */
}

/* All at once or not at all: what was queued fits, as it did before. */
static int fill(int fd, struct mem_span s, const uint8_t *bytes)
{
	int was = sys_fcntl(fd, F_GETFL, 0), r = was;
	uint64_t done = 0;

	if (r >= 0)
		r = sys_fcntl(fd, F_SETFL, was | O_NONBLOCK);
	while (r >= 0 && done < s.len) {
		ssize_t n = sys_write(fd, bytes + s.off + done, s.len - done);

		r = n <= 0 ? (n < 0 ? (int)n : -EIO) : 0;
		done += n > 0 ? (uint64_t)n : 0;
	}
	if (r >= 0)
		r = sys_fcntl(fd, F_SETFL, was);
	return r == -EAGAIN ? -EFBIG : r;
}

static int new_pipe(const struct mem_object *o, int ends[2])
{
	int r = sys_pipe2(ends, O_CLOEXEC);

	/* A limit of the user's may be in the way; then it is as large as pipes are. */
	if (r == 0 && o->a)
		sys_fcntl(ends[1], F_SETPIPE_SZ, (long)o->a);
	return r;
}

/* The owner and mode of a pipe decide which users may open it by name (/dev/fd/63). */
static int dress_pipe(const struct mem_object *o, int fd)
{
	int r = fchown(fd, MEM_PIPE_UID(o->b), MEM_PIPE_GID(o->b)) < 0 ? -errno : 0;

	return r == 0 ? sys_fchmod(fd, MEM_PIPE_MODE(o->b)) : r;
}

static bool writes(const struct mem_object *o)
{
	return (o->flags & O_ACCMODE) != O_RDONLY;
}

/* All ends of the pipe that object @i is the first of. */
static int make_pipe(struct restore *r, uint32_t i)
{
	const struct mem_object *all = r->m.object;
	int ends[2] = { -1, -1 }, x = new_pipe(&all[i], ends), *own;
	AUTO_CLOSE int in = ends[0], out = ends[1];
	AUTO_CLOSE int reader = x < 0 ? -1 : sys_fcntl(in, F_DUPFD_CLOEXEC, r->base);
	AUTO_CLOSE int writer = x < 0 ? -1 : sys_fcntl(out, F_DUPFD_CLOEXEC, r->base);

	if (x >= 0 && (reader < 0 || writer < 0))
		x = reader < 0 ? reader : writer;

	for (uint32_t j = i; x >= 0 && j < r->m.n[MEM_S_OBJECT]; j++) {
		if (all[j].kind != MEM_OBJ_PIPE || all[j].pair != all[i].pair || r->object[j] >= 0)
			continue;
		if (all[j].data.len)
			x = fill(writer, all[j].data, r->m.bytes);
		if (x < 0)
			break;
		/*
		 * One without LARGEFILE was made by pipe(); one with it was opened through /proc, and is opened so
		 * again.
		 */
		own = !(all[j].flags & LARGEFILE) ? writes(&all[j]) ? &out : &in : NULL;
		if (own && *own >= 0)
			x = set_flags(*own, all[j].flags);
		if (x >= 0)
			x = put(r, j,
				own && *own >= 0 ? TAKE_FD(*own) :
						   reopen(writes(&all[j]) ? writer : reader, all[j].flags));
	}
	return x < 0 ? x : dress_pipe(&all[i], writer);
}

/* The FIFO was opened for reading and writing before, so that no opening waited. */
static int make_fifo(struct restore *r, uint32_t i)
{
	const struct mem_object *o = &r->m.object[i];
	AUTO_CLOSE int both = r->object[i];
	int x = 0;

	r->object[i] = -1;
	/*
	 * A reader to which no writer has come yet is opened while no writer exists; otherwise it would see a
	 * hangup.
	 */
	if (o->b)
		return put(r, i, reopen(both, O_PATH));
	if (o->a)
		sys_fcntl(both, F_SETPIPE_SZ, (long)o->a);
	if (o->data.len)
		x = fill(both, o->data, r->m.bytes);
	return x < 0 ? x : put(r, i, reopen(both, o->flags));
}

static int make_eventfd(struct restore *r, uint32_t i)
{
	const struct mem_object *o = &r->m.object[i];
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | (o->b ? EFD_SEMAPHORE : 0));

	if (fd < 0)
		return -errno;
	if ((o->a && sys_write(fd, &o->a, 8) != 8) || set_flags(fd, o->flags) < 0) {
		fd_close(fd);
		return -EIO;
	}
	return put(r, i, fd);
}

static int make_epoll(struct restore *r, uint32_t i)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd >= 0)
		set_flags(fd, r->m.object[i].flags);
	return put(r, i, fd < 0 ? -errno : fd);
}

static int make_timerfd(struct restore *r, uint32_t i)
{
	const struct mem_object *o = &r->m.object[i];
	uint64_t ticks;
	struct itimerspec t;
	int fd = timerfd_create((int)o->a, TFD_CLOEXEC), x;

	if (fd < 0)
		return -errno;
	memcpy(&t, restore_bytes(r, o->data), sizeof(t));
	memcpy(&ticks, (const uint8_t *)restore_bytes(r, o->data) + sizeof(t), sizeof(ticks));
	/* What is left of it, whatever it was set by; but one that notices a new time of day is bound to that. */
	if (o->b & TFD_TIMER_CANCEL_ON_SET && (t.it_value.tv_sec || t.it_value.tv_nsec)) {
		uint64_t at = r->m.head->realtime + (uint64_t)t.it_value.tv_sec * 1000000000ULL +
			      (uint64_t)t.it_value.tv_nsec;

		t.it_value = (struct timespec){ (time_t)(at / 1000000000ULL), (long)(at % 1000000000ULL) };
		x = timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &t, NULL) < 0 ? -errno : 0;
	} else {
		x = timerfd_settime(fd, 0, &t, NULL) < 0 ? -errno : 0;
	}
	if (x == 0 && ticks)
		x = sys_ioctl(fd, TFD_IOC_SET_TICKS, &ticks);
	if (x >= 0)
		x = set_flags(fd, o->flags);
	if (x < 0) {
		fd_close(fd);
		return x;
	}
	return put(r, i, fd);
}

static int make_signalfd(struct restore *r, uint32_t i)
{
	sigset_t set;
	int fd;

	memset(&set, 0, sizeof(set));
	memcpy(&set, &r->m.object[i].a, 8);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd >= 0)
		set_flags(fd, r->m.object[i].flags);
	return put(r, i, fd < 0 ? -errno : fd);
}

/* Numbers of watches are given out in order, so those between are made and removed. */
static int watch_as(int fd, const char *path, uint32_t mask, int want)
{
	for (unsigned i = 0; i < WATCH_TRIES; i++) {
		int wd = inotify_add_watch(fd, path, mask);

		if (wd < 0)
			return -errno;
		if (wd == want)
			return 0;
		if (wd > want)
			return -EEXIST;
		inotify_rm_watch(fd, wd);
	}
	return -ERANGE;
}

/* What leads to a file; one that was removed is known by a descriptor. */
static void path_of(const struct restore *r, uint32_t file, char path[static MEM_PATH_MAX + 1])
{
	const struct mem_file *f = &r->m.file[file];

	memcpy(path, restore_bytes(r, f->path), f->path.len);
	path[f->path.len] = '\0';
	if (f->node == MEM_NONE || !(r->m.node[f->node].flags & MEM_NODE_REMOVED))
		return;
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		if (r->m.object[i].kind == MEM_OBJ_FILE && r->m.object[i].file == file && r->object[i] >= 0)
			snprintf(path, MEM_PATH_MAX, "/proc/self/fd/%d", r->object[i]);
}

static int make_inotify(struct restore *r, uint32_t i)
{
	const struct mem_object *o = &r->m.object[i];
	const uint8_t *data = restore_bytes(r, o->data);
	char path[MEM_PATH_MAX + 1];
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK), x = 0;
	uint8_t drop[4096];

	if (fd < 0)
		return -errno;
	for (uint64_t at = 0; x == 0 && at < o->data.len; at += 12) {
		uint32_t w[3];

		memcpy(w, data + at, sizeof(w));
		path_of(r, w[2], path);
		x = watch_as(fd, path,
			     w[1] & (IN_ALL_EVENTS | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK | IN_ONESHOT),
			     (int)w[0]);
	}
	while (sys_read(fd, drop, sizeof(drop)) > 0)
		; /* of the watches that were removed */
	if (x == 0)
		x = set_flags(fd, o->flags);
	if (x < 0) {
		fd_close(fd);
		return x;
	}
	return put(r, i, fd);
}

/* A memfd, or what is shared and has no file. Several descriptions of one have the same ->pair. */
static int make_shmem(struct restore *r, uint32_t i)
{
	const struct mem_object *all = r->m.object, *o = &all[i];
	AUTO_CLOSE int fd = -1;
	bool again, used = false;
	char name[250];
	int x;

	memcpy(name, restore_bytes(r, o->data), o->data.len);
	name[o->data.len] = '\0';
	fd = sys_memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	x = fd < 0 ? fd : sys_ftruncate(fd, (off_t)o->a);
	if (x == 0)
		x = restore_runs(r, o->run, fd);
	/* Runs are whole pages; its last one may be more than there is of it. */
	if (x == 0 && o->run.n)
		x = sys_ftruncate(fd, (off_t)o->a);
	for (uint32_t j = i; x >= 0 && j < r->m.n[MEM_S_OBJECT]; j++) {
		if (all[j].kind != MEM_OBJ_SHMEM || all[j].pair != o->pair || r->object[j] >= 0)
			continue;
		/* The first one as it was made: opening it again would count as writing to it, and keep it from being run. */
		again = (all[j].flags & O_ACCMODE) != O_RDWR || used;
		x = put(r, j, again ? reopen(fd, all[j].flags) : sys_fcntl(fd, F_DUPFD_CLOEXEC, r->base));
		if (x >= 0 && !again)
			x = set_flags(fd, all[j].flags);
		used |= !again;
		if (x >= 0 && lseek(r->object[j], (off_t)all[j].pos, SEEK_SET) < 0)
			x = -errno;
	}
	if (x >= 0 && o->file != MEM_NONE)
		x = restore_dress(r, o->file, fd);
	else if (x >= 0 && !r->agent->single_id)
		x = sys_fchownat(fd, "", r->m.proc[0].uid[3], r->m.proc[0].gid[3], AT_EMPTY_PATH);
	if (x >= 0 && o->b)
		x = sys_fcntl(fd, F_ADD_SEALS, (long)o->b);
	return x < 0 ? x : 0;
}

static int make(struct restore *r, uint32_t i)
{
	const struct mem_object *o = &r->m.object[i];

	switch ((enum mem_object_kind)o->kind) {
	case MEM_OBJ_PIPE:
		return r->object[i] >= 0 ? 0 : make_pipe(r, i);
	case MEM_OBJ_FIFO:
		return make_fifo(r, i);
	case MEM_OBJ_EVENTFD:
		return make_eventfd(r, i);
	case MEM_OBJ_EPOLL:
		return make_epoll(r, i);
	case MEM_OBJ_TIMERFD:
		return make_timerfd(r, i);
	case MEM_OBJ_SIGNALFD:
		return make_signalfd(r, i);
	case MEM_OBJ_SHMEM:
		return r->object[i] >= 0 ? 0 : make_shmem(r, i);
	case MEM_OBJ_PIDFD:
		return restore_ended(r, i);
	case MEM_OBJ_INOTIFY: /* last of all: restore_objects() */
	case MEM_OBJ_FILE:
	case MEM_OBJ_DEV:
	case MEM_OBJ_SOCKET: /* open.c, socket.c */
	case MEM_OBJ_PROC:
	case MEM_OBJ_PTMX: /* tty.c */
	case MEM_OBJ_PTS:
	case MEM_OBJ_EXTERNAL:
	case MEM_OBJ_SYSV: /* sysv.c */
		return 0;
	}
	return -EINVAL;
}

static const char *kind_name(uint32_t kind)
{
	static const char *const names[] = {
		"a file",
		"a pipe",
		"a FIFO",
		"an eventfd",
		"an epoll",
		"a timerfd",
		"a signalfd",
		"an inotify",
		"a terminal",
		"a terminal",
		"a device",
		"a file of /proc",
		"shared memory",
		"a socket",
		"a pidfd",
		"the pipes of an exec",
		"a System V object",
	};

	return kind < ARRAY_LEN(names) ? names[kind] : "?";
}

int restore_objects(struct restore *r, struct err *e)
{
	int x = restore_ttys(r, e);

	if (x < 0)
		return x;
	x = restore_externals(r, e);
	if (x < 0)
		return x;
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		x = make(r, i);
		if (x < 0)
			return err_sys(e, ERR_UNSUPPORTED, x, "recreate %s", kind_name(r->m.object[i].kind));
	}
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *o = &r->m.object[i];
		AUTO_CLOSE int at = o->kind == MEM_OBJ_FIFO && o->b ? TAKE_FD(r->object[i]) : -1;

		x = at < 0 ? 0 : put(r, i, reopen(at, o->flags | O_NONBLOCK));
		if (x == 0 && at >= 0)
			x = set_flags(r->object[i], o->flags);
		if (x < 0)
			return err_sys(e, ERR_UNSUPPORTED, x, "recreate %s", kind_name(o->kind));
	}
	/* Watches come after the last opening of files, so that they do not report the restore itself. */
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		x = r->m.object[i].kind == MEM_OBJ_INOTIFY ? make_inotify(r, i) : 0;
		if (x < 0)
			return err_sys(e, ERR_UNSUPPORTED, x, "restore file watches");
	}
	x = restore_sockets(r, e);
	if (x == 0)
		x = restore_netlinks(r, e);
	return x < 0 ? x : restore_unix(r, e);
}
