/*
 * A process during its restore: a copy of the agent with the right id, that takes its place among the others, puts its
 * descriptors where they were, becomes its user, and continues where its memory is replaced (map.c). It runs no code of
 * the image. If it fails, all of them end.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/seccomp.h"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPEN_TRIES 20000U /* ten seconds at least */

static long futex(uint32_t *word, int op, uint32_t value)
{
	return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

void restore_die(const struct restore *r, uint32_t proc, enum restore_what what, int error, uint32_t detail)
{
	struct blob_shared *s = r->shared;
	uint32_t none = 0;

	if (__atomic_compare_exchange_n(&s->failed, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		s->what = what;
		s->proc = proc;
		s->detail = detail;
		s->error = error;
		__atomic_store_n(&s->failed, 2, __ATOMIC_SEQ_CST);
		futex(&s->ready, FUTEX_WAKE, 1);
		futex(&s->arrived, FUTEX_WAKE, 1);
	}
	_exit(127);
}

/* Reports to the agent that this process has arrived at the barrier. */
static void arrive(struct restore *r)
{
	struct blob_shared *s = r->shared;

	__atomic_add_fetch(&s->arrived, 1, __ATOMIC_SEQ_CST);
	futex(&s->arrived, FUTEX_WAKE, 1);
}

/* And waits for the others. */
static void meet(struct restore *r, uint32_t phase)
{
	struct blob_shared *s = r->shared;
	uint32_t at;

	arrive(r);
	while ((at = __atomic_load_n(&s->phase, __ATOMIC_SEQ_CST)) < phase)
		futex(&s->phase, FUTEX_WAIT, at);
}

/* The foreground group can be said once all groups are there. */
static void take_terminal(struct restore *r, uint32_t i, bool foreground)
{
	const struct mem_proc *p = &r->m.proc[i];
	const struct mem_object *o;
	const uint8_t *data = NULL;
	struct mem_pty pty;
	int x;

	if (p->tty == MEM_NONE || p->sid != p->pid || p->state != MEM_ALIVE)
		return;
	if (!foreground) {
		x = sys_ioctl(r->object[p->tty], TIOCSCTTY, NULL);
		if (x < 0)
			restore_die(r, i, RESTORE_TTY, x, 0);
		return;
	}
	o = &r->m.object[p->tty];
	if (o->kind == MEM_OBJ_EXTERNAL && o->data.len)
		data = restore_bytes(r, o->data);
	for (uint32_t k = 0; o->kind == MEM_OBJ_PTS && k < r->m.n[MEM_S_OBJECT]; k++)
		if (r->m.object[k].kind == MEM_OBJ_PTMX && r->m.object[k].a == o->a)
			data = restore_bytes(r, r->m.object[k].data);
	if (!data)
		return;
	memcpy(&pty, data, sizeof(pty));
	/* A group whose last process has ended since is no reason to stop. */
	if (pty.foreground)
		sys_ioctl(r->object[p->tty], TIOCSPGRP, &pty.foreground);
}

static void join_family(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];
	uint32_t by = r->plan[i].creator, failed = i;
	int x = 0;

	/* Joins the group before it has children, which then start in that group. */
	if (r->groups && p->exec != MEM_NONE && p->state == MEM_ALIVE &&
	    (by == MEM_NONE || r->m.proc[by].exec != p->exec))
		x = (int)sys_write(r->groups[p->exec], "0", 1);
	if (x < 0)
		restore_die(r, i, RESTORE_CGROUP, x, 0);
	x = restore_spawn(r, i, true, &failed);
	if (x < 0)
		restore_die(r, failed, RESTORE_CLONE, x, 0);
	if (p->sid == p->pid && setsid() < 0)
		restore_die(r, i, RESTORE_SESSION, -errno, 0);
	/* A controlling terminal is inherited by children, too. */
	take_terminal(r, i, false);
	x = restore_spawn(r, i, false, &failed);
	if (x < 0)
		restore_die(r, failed, RESTORE_CLONE, x, 0);
	if (r->phases == 1 && !r->proc[i].asks)
		arrive(r);
	else if (r->phases)
		meet(r, 1);
	if (r->phases < 2)
		return;
	/* The first of a group may be about to make it. */
	for (unsigned tries = 0; getpgid(0) != (pid_t)p->pgid && setpgid(0, (pid_t)p->pgid) < 0; tries++) {
		if (errno != EPERM || tries > 20000 || p->pgid == p->pid)
			restore_die(r, i, RESTORE_GROUP, -errno, p->pgid);
		usleep(50);
	}
	meet(r, 2);
	take_terminal(r, i, true);
}

/* Ends this process as the original had ended. */
static _Noreturn void be_dead(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];
	int sig = p->status & 0x7f;
	sigset_t all;

	if (p->state == MEM_PLACEHOLDER) {
		/* A placeholder exits when no process needs its number any more. */
		meet(r, 3);
		_exit(0);
	}
	prctl(PR_SET_NAME, p->comm, 0, 0, 0);
	if (!r->agent->single_id &&
	    (sys_setresgid(p->gid[0], p->gid[1], p->gid[2]) < 0 || sys_setresuid(p->uid[0], p->uid[1], p->uid[2]) < 0))
		restore_die(r, i, RESTORE_USER, -EPERM, 0);
	if (sig) {
		sys_prlimit(RLIMIT_CORE, 0, 0); /* cloche-dump refuses one that has left a core */
		signal(sig, SIG_DFL);
		sigfillset(&all);
		sigprocmask(SIG_UNBLOCK, &all, NULL);
		kill(getpid(), sig);
	}
	_exit(p->status >> 8 & 0xff);
}

/* Stops this process until its parent continues it. */
static void raise_stop(void)
{
	syscall(SYS_tgkill, getpid(), getpid(), SIGSTOP);
}

/*
 * Waits until those of our children that are to have ended have done so, and drops their SIGCHLD, which was taken
 * before the image was made.
 */
static void bury(struct restore *r, uint32_t i)
{
	static const struct timespec now;
	sigset_t all;
	siginfo_t si;

	for (uint32_t c = 0; c < r->m.n[MEM_S_PROC]; c++) {
		if (r->m.proc[c].parent != i || r->m.proc[c].state != MEM_ZOMBIE)
			continue;
		while (waitid(P_PID, r->m.proc[c].pid, &si, WEXITED | WNOWAIT | __WALL) < 0)
			if (errno != EINTR)
				restore_die(r, i, RESTORE_ZOMBIE, -errno, r->m.proc[c].pid);
	}
	/* A child that was continued, and whose parent had not seen that yet, is stopped and continued again. */
	for (uint32_t c = 0; c < r->m.n[MEM_S_PROC]; c++) {
		const struct mem_proc *p = &r->m.proc[c];

		if (p->parent != i || p->state != MEM_ALIVE || !(p->flags & MEM_PROC_CONTINUED))
			continue;
		while (waitid(P_PID, p->pid, &si, WSTOPPED | __WALL) < 0)
			if (errno != EINTR)
				restore_die(r, i, RESTORE_STOP, -errno, p->pid);
		if (kill((pid_t)p->pid, SIGCONT) < 0)
			restore_die(r, i, RESTORE_STOP, -errno, p->pid);
	}
	if (r->m.proc[i].parent != MEM_NONE && r->m.proc[i].flags & MEM_PROC_CONTINUED)
		raise_stop();
	/*
	 * The SIGCHLD of children that ended, stopped or continued, and the SIGCONT of this process, are pending, since
	 * all signals are blocked. They are dropped.
	 */
	sigfillset(&all);
	while (sigtimedwait(&all, &si, &now) > 0)
		;
}

/*
 * Registers the watches of an epoll. It knows a file by its descriptor number, so each file gets that number for a
 * moment.
 */
static int add_watches(struct restore *r, const struct mem_object *o, int epoll, uint32_t flags)
{
	for (uint32_t w = 0; w < o->watch.n; w++) {
		const struct mem_watch *x = &r->m.watch[o->watch.first + w];
		struct epoll_event ev = { .events = x->events, .data.u64 = x->data };
		int s;

		if (x->flags != flags)
			continue;
		/* One that is not armed: whatever makes it ready disarms it again. */
		if (flags & MEM_WATCH_TOLD && x->events & EPOLLONESHOT)
			ev.events |= MEM_WATCH_ALL;
		s = sys_dup3(r->object[x->object], (int)x->fd_num, O_CLOEXEC);
		if (s >= 0)
			s = epoll_ctl(epoll, EPOLL_CTL_ADD, (int)x->fd_num, &ev) < 0 ? -errno : 0;
		if (s >= 0 && flags & MEM_WATCH_TOLD && epoll_wait(epoll, &ev, 1, 0) != 1 && x->events & EPOLLONESHOT) {
			ev.events = x->events;
			s = epoll_ctl(epoll, EPOLL_CTL_MOD, (int)x->fd_num, &ev) < 0 ? -errno : 0;
		}
		fd_close((int)x->fd_num);
		if (s < 0)
			return s;
	}
	return 0;
}

/* The first process that has an epoll registers its watches, while no number below the base is in use. */
static void set_epolls(struct restore *r, uint32_t i)
{
	for (uint32_t k = 0; k < r->m.n[MEM_S_OBJECT]; k++) {
		const struct mem_object *o = &r->m.object[k];
		uint32_t first = MEM_NONE;
		int x;

		if (o->kind != MEM_OBJ_EPOLL || !o->watch.n)
			continue;
		for (uint32_t p = 0; p < r->m.n[MEM_S_PROC] && first == MEM_NONE; p++)
			for (uint32_t f = 0; f < r->m.proc[p].fd.n; f++)
				if (r->m.fd[r->m.proc[p].fd.first + f].object == k)
					first = p;
		if (first != i)
			continue;
		/*
		 * Watches whose events are taken from the queue at once come first, while the queue has no events of
		 * others.
		 */
		x = add_watches(r, o, r->object[k], MEM_WATCH_TOLD);
		if (x == 0)
			x = add_watches(r, o, r->object[k], 0);
		if (x < 0)
			restore_die(r, i, RESTORE_EPOLL, x, 0);
	}
}

static int open_own(struct restore *r, const struct mem_object *o)
{
	char path[MEM_PATH_MAX + 1];
	const struct mem_file *f;
	int fd;

	if (o->kind == MEM_OBJ_PIDFD) {
		fd = sys_pidfd_open((pid_t)o->a, (unsigned)(o->flags & (O_NONBLOCK | O_EXCL))); /* PIDFD_THREAD */
		return fd;
	}
	f = &r->m.file[o->file];
	memcpy(path, restore_bytes(r, f->path), f->path.len);
	path[f->path.len] = '\0';
	fd = sys_openat(AT_FDCWD, path, (int)(o->flags & (O_ACCMODE | O_NONBLOCK | O_DIRECTORY)) | O_CLOEXEC | O_NOCTTY,
			0);
	if (fd >= 0 && o->pos)
		lseek(fd, (off_t)o->pos, SEEK_SET);
	return fd;
}

/* Opens files that only exist together with processes, as the user. */
static void open_owns(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];

	for (uint32_t f = 0; f < p->fd.n; f++) {
		const struct mem_fd *d = &r->m.fd[p->fd.first + f];
		const struct mem_object *o = &r->m.object[d->object];
		int fd;

		if (!restore_is_own(r, o) || r->object[d->object] >= 0)
			continue;
		fd = open_own(r, o);
		/* Of another process, that may not be its user yet. */
		for (unsigned tries = 0; fd == -EACCES && tries < OPEN_TRIES; tries++) {
			usleep(500);
			fd = open_own(r, o);
		}
		if (fd >= 0)
			fd = restore_high(r, fd);
		if (fd < 0)
			restore_die(r, i, o->kind == MEM_OBJ_PIDFD ? RESTORE_PIDFD : RESTORE_REOPEN, fd,
				    (uint32_t)o->a);
		r->object[d->object] = fd; /* in our own memory only */
	}
}

/*
 * The first process that has the file sets the receiver of its signals. Other processes may have to exist for that:
 * restore_plan().
 */
static void set_owner(struct restore *r, uint32_t i, const struct mem_fd *d)
{
	const struct mem_object *o = &r->m.object[d->object];
	struct {
		int type, pid;
	} own = { (int)o->owner_type, (int)o->owner_pid };
	int x = 0;

	for (uint32_t p = 0; p < i; p++)
		if (restore_number(r, &r->m.proc[p], d->object) != MEM_NONE)
			return;
	if (o->owner_pid)
		x = sys_fcntl((int)d->num, F_SETOWN_EX, (long)(uintptr_t)&own);
	if (x >= 0 && o->owner_sig)
		x = sys_fcntl((int)d->num, F_SETSIG, (long)o->owner_sig);
	if (x >= 0 && o->flags & O_ASYNC)
		x = sys_fcntl((int)d->num, F_SETFL, (long)o->flags);
	if (x < 0)
		restore_die(r, i, RESTORE_OWNER, x, d->num);
}

static void place_fds(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];
	int x = restore_locks(r, p);

	if (x < 0)
		restore_die(r, i, RESTORE_LOCK, x, 0);

	for (uint32_t f = 0; x >= 0 && f < p->fd.n; f++) {
		const struct mem_fd *d = &r->m.fd[p->fd.first + f];
		const struct mem_object *o = &r->m.object[d->object];

		x = sys_dup3(r->object[d->object], (int)d->num, d->cloexec ? O_CLOEXEC : 0);
		if (x >= 0 && (o->owner_pid || o->owner_sig || o->flags & O_ASYNC))
			set_owner(r, i, d);
	}
	if (x < 0)
		restore_die(r, i, RESTORE_FDS, x, 0);
}

/* Sets the ids for file access. Needs CAP_SETUID and CAP_SETGID, which the change of users has left permitted. */
static int set_fs_ids(const struct mem_proc *p)
{
	int x = caps_raise_effective();

	if (x < 0)
		return x;
	syscall(SYS_setfsgid, p->gid[3]);
	syscall(SYS_setfsuid, p->uid[3]);
	return (uint32_t)syscall(SYS_setfsgid, -1) == p->gid[3] && (uint32_t)syscall(SYS_setfsuid, -1) == p->uid[3] ?
		       0 :
		       -EPERM;
}

/*
 * As an exec of that user, and CHECKPOINT_RESTORE for the threads' ids and the name of the program; that one is dropped
 * before anything of the process runs.
 */
static void become_user(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];
	const uint32_t one = r->agent->single_id ? r->agent->single_id - 1 : 0;
	int x = 0;

	if (r->agent->single_id) {
		for (unsigned k = 0; k < 4; k++)
			x |= p->uid[k] != one || p->gid[k] != one ? -EPERM : 0;
	} else {
		x = sys_setgroups(p->groups.len / 4, restore_bytes(r, p->groups));
		if (x == 0)
			x = sys_setresgid(p->gid[0], p->gid[1], p->gid[2]);
		if (x == 0)
			x = sys_setresuid(p->uid[0], p->uid[1], p->uid[2]);
		/* The ids for file access follow the effective ids, unless they were set later. */
		if (x == 0 && (p->gid[3] != p->gid[1] || p->uid[3] != p->uid[1]))
			x = set_fs_ids(p);
	}
	/* From here on the process has no capability of the agent, except to change ids. */
	if (x == 0)
		x = caps_set(CAPS_RESTORE | restore_caps(r, p),
			     restore_inheritable(r, p)); /* none is ever added later */
	/*
	 * Files below /proc/PID belong to its user then, as they will later; no other process runs yet that could open
	 * them.
	 */
	if (x == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		x = -errno;
	if (x < 0)
		restore_die(r, i, RESTORE_USER, x, 0);
}

static uint64_t most_caps(const struct restore *r)
{
	return r->agent->host_writable ? CAPS_ROOT & ~CAPS_FILE_RIGHTS : CAPS_ROOT;
}

uint64_t restore_caps(const struct restore *r, const struct mem_proc *p)
{
	/* Only a process that is root of the sandbox, or can become it, has capabilities. */
	return p->uid[0] && p->uid[1] && p->uid[2] ? 0 : p->caps[1] & most_caps(r);
}

/* Those it may get by running a file that gives them; another user than root keeps what root had left it. */
uint64_t restore_inheritable(const struct restore *r, const struct mem_proc *p)
{
	return p->caps[0] & most_caps(r);
}

static void settings(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];
	int x;

	umask(p->umask);
	if (p->flags & MEM_PROC_SUBREAPER && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		restore_die(r, i, RESTORE_SETTINGS, -errno, 0);
	if (p->flags & MEM_PROC_THP_DISABLE && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
		restore_die(r, i, RESTORE_SETTINGS, -errno, 0);
	for (unsigned k = 0; k < MEM_BARRIERS; k++)
		if (p->flags & MEM_PROC_BARRIER(k) && syscall(SYS_membarrier, mem_barriers[k].enrol, 0, 0) < 0)
			restore_die(r, i, RESTORE_SETTINGS, -errno, 0);
	x = exec_pin(r->agent);
	if (x < 0)
		restore_die(r, i, RESTORE_SETTINGS, x, 0);
	if (r->agent->host_writable) {
		x = seccomp_install_no_setid();
		if (x < 0)
			restore_die(r, i, RESTORE_FILTER, x, 0);
	}
}

static void sysv(const struct restore *r, uint32_t i)
{
	int x = restore_sysv_own(r, &r->m.proc[i]);

	if (x < 0)
		restore_die(r, i, RESTORE_SYSV, x, 0);
}

void restore_become(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];

	/* Blocks all signals by a raw system call: libc would leave two unblocked. */
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &(uint64_t){ ~0ULL }, NULL, sizeof(uint64_t));
	join_family(r, i);
	if (p->state != MEM_ALIVE)
		be_dead(r, i);
	bury(r, i);
	/*
	 * Descriptors of the agent are below base and are closed. Of processes that share a table, the first one closes
	 * them.
	 */
	if (!p->files && sys_close_range(0, (unsigned)r->base - 1, 0) < 0)
		restore_die(r, i, RESTORE_FDS, -EIO, 0);
	/*
	 * Before the change of user: a process that became another user in this folder (su) could not enter it
	 * again.
	 */
	if (r->file[p->cwd] < 0 || fchdir(r->file[p->cwd]) < 0)
		restore_die(r, i, RESTORE_CWD, -errno, 0);
	become_user(r, i);
	settings(r, i);
	sysv(r, i);
	open_owns(r, i);
	set_epolls(r, i);
	place_fds(r, i);
	restore_enter(r, i);
}
