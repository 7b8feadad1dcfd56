/*
 * Holding every thread of a sandbox by ptrace. Without EXITKILL: when this program ends, however it ends, the kernel lets
 * go of all of them.
 */
#include "memory/dump.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <dirent.h>
#include <linux/kcmp.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STOP_MS 5000
/* time that a thread may be blocked in the kernel, where no signal wakes it; after that the caller may try again */
#define STUCK_MS 100
#define VFORK_MS 2
#define PASSES_MAX 100
#ifndef __WALL
#define __WALL 0x40000000
#endif

/* Whether an error of /proc means that the process was reaped: which error it is depends on how far the kernel is. */
static bool is_gone(int r)
{
	return r == -ENOENT || r == -ESRCH;
}

static int open_proc(pid_t pid, const char *more)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d%s", (int)pid, more);
	return sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

static void name_proc(struct proc *p)
{
	const char *at;
	size_t n = 0;

	if (proc_field(p->status, "Name", &at)) {
		at += strspn(at, "\t");
		for (; *at && *at != '\n' && n < sizeof(p->name) - 1; at++)
			p->name[n++] = *at < 0x20 || *at > 0x7e ? '?' : *at;
	}
	p->name[n] = '\0';
}

/* Zombies have no more than a status. */
static bool is_zombie(const char *status)
{
	const char *at;

	return proc_field(status, "State", &at) && at[strspn(at, "\t")] == 'Z';
}

/* A thread that is ending can still be listed, although it cannot be held any more. */
static bool has_ended(const struct proc *p, pid_t tid)
{
	AUTO_FREE char *status = NULL;
	char name[64];
	const char *at;

	snprintf(name, sizeof(name), "task/%d/status", (int)tid);
	if (proc_text(p->dir, name, DUMP_TEXT_MAX, &status, NULL) < 0)
		return true;
	return proc_field(status, "State", &at) && strchr("ZX", at[strspn(at, "\t")]);
}

static int first_is_gone(const struct proc *p, struct err *e)
{
	return err_set(e, ERR_CONFLICT, -EBUSY, "process %u (%s): its first thread has ended, others have not", p->pid,
		       p->name);
}

static int add_proc(struct dump *d, pid_t host, uint32_t parent, struct err *e)
{
	struct proc *more, *p;
	int r;

	if (d->n_procs > MEM_PROCS_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u processes", MEM_PROCS_MAX);
	more = reallocarray(d->proc, d->n_procs + 1, sizeof(*more));
	if (!more)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "processes");
	d->proc = more;
	p = &d->proc[d->n_procs];
	*p = (struct proc){ .host = host, .parent = parent, .dir = open_proc(host, ""), .pidfd = -1, .mem = -1 };
	if (p->dir < 0)
		return is_gone(p->dir) ? 0 : err_sys(e, ERR_INTERNAL, p->dir, "open /proc/%d", (int)host);
	r = proc_text(p->dir, "status", DUMP_TEXT_MAX, &p->status, NULL);
	if (r < 0) {
		fd_close(p->dir);
		return is_gone(r) ? 0 : err_sys(e, ERR_INTERNAL, r, "read status");
	}
	name_proc(p);
	p->pid = proc_inside(p->status, "NSpid");
	p->zombie = is_zombie(p->status);
	d->n_procs++; /* from here on, stop_release() frees it */
	if (p->zombie && proc_number(p->status, "Threads", 10, 1) > 1)
		return first_is_gone(p, e);
	if (!p->zombie) {
		p->pidfd = sys_pidfd_open(host, 0);
		if (p->pidfd < 0 && has_ended(p, host))
			p->zombie = true;
		else if (p->pidfd < 0)
			return err_sys(e, ERR_INTERNAL, p->pidfd, "hold process %u", p->pid);
	}
	return 1;
}

static bool known_thread(const struct proc *p, pid_t tid)
{
	for (size_t i = 0; i < p->n_threads; i++)
		if (p->thread[i].host == tid)
			return true;
	return false;
}

static bool known_proc(const struct dump *d, pid_t pid)
{
	for (size_t i = 0; i < d->n_procs; i++)
		if (d->proc[i].host == pid)
			return true;
	return false;
}

/* Seizes a thread. 1: it is held. 0: it has just ended. */
static int seize(struct dump *d, struct proc *p, pid_t tid, struct err *e)
{
	struct thread *more;
	long r;

	if (d->n_threads >= MEM_THREADS_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u threads", MEM_THREADS_MAX);
	more = reallocarray(p->thread, p->n_threads + 1, sizeof(*more));
	if (!more)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "threads");
	p->thread = more;
	r = sys_ptrace(PTRACE_SEIZE, tid, 0, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD);
	if ((r == -ESRCH || r == -EPERM) && has_ended(p, tid)) {
		p->zombie |= tid == p->host && !p->n_threads;
		return 0;
	}
	if (r == -EPERM && proc_number(p->status, "TracerPid", 10, 0))
		return proc_refuse(p, e, "is traced by another process");
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "hold thread %d of process %u (%s)", (int)tid, p->pid, p->name);
	p->thread[p->n_threads++] = (struct thread){ .host = tid, .seized = true };
	d->n_threads++;
	r = sys_ptrace(PTRACE_INTERRUPT, tid, 0, NULL);
	return r < 0 && r != -ESRCH ? err_sys(e, ERR_INTERNAL, (int)r, "stop thread %d", (int)tid) : 1;
}

static int add_children(struct dump *d, size_t at, pid_t tid, struct err *e);

/*
 * Whether a thread must be thawed before it can be held. A thread that was stopped by a signal changes into the
 * tracer's stop when it is seized, and the kernel makes the tracer wait for that; but in version 1's freezer it cannot.
 * It is held later, when all processes that could continue it are held.
 */
static bool must_thaw_first(const struct dump *d, const struct proc *p, pid_t tid)
{
	char path[48], text[64];

	snprintf(path, sizeof(path), "task/%d/wchan", (int)tid);
	return !d->thawed && fd_get(p->dir, path, text, sizeof(text)) >= 0 && !strcmp(text, "do_signal_stop");
}

static int seize_threads(struct dump *d, size_t at, struct err *e)
{
	int fd = open_proc(d->proc[at].host, "/task");
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	int r = 0, new = 0;

	if (!dir) {
		fd_close(fd);
		return is_gone(fd) ? 0 : err_sys(e, ERR_INTERNAL, fd < 0 ? fd : -ENOMEM, "list threads");
	}
	while (r >= 0 && (de = readdir(dir))) {
		pid_t tid = (pid_t)strtol(de->d_name, NULL, 10);

		if (tid <= 0 || known_thread(&d->proc[at], tid))
			continue;
		if (must_thaw_first(d, &d->proc[at], tid)) {
			r = add_children(d, at, tid, e);
			new += r > 0 ? r : 0;
		} else {
			r = seize(d, &d->proc[at], tid, e);
			new += r > 0;
		}
	}
	closedir(dir);
	if (r >= 0 && d->proc[at].zombie && d->proc[at].n_threads)
		return first_is_gone(&d->proc[at], e);
	return r < 0 ? r : new;
}

static int add_children(struct dump *d, size_t at, pid_t tid, struct err *e)
{
	AUTO_FREE char *text = NULL;
	char name[64], *end;
	int r, new = 0;

	snprintf(name, sizeof(name), "task/%d/children", (int)tid);
	r = proc_text(d->proc[at].dir, name, 65536, &text, NULL);
	if (is_gone(r))
		return 0;
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "list children");
	for (const char *c = text; r >= 0; c = end) {
		pid_t pid = (pid_t)strtol(c, &end, 10);

		if (end == c)
			break;
		if (known_proc(d, pid))
			continue;
		r = add_proc(d, pid, (uint32_t)at, e);
		new += r > 0;
	}
	return r < 0 ? r : new;
}

static int pass(struct dump *d, struct err *e)
{
	int r, new = 0;

	for (size_t i = 0; i < d->n_procs; i++) {
		if (d->proc[i].zombie)
			continue;
		r = seize_threads(d, i, e);
		if (r < 0)
			return r;
		new += r;
		for (size_t t = 0; t < d->proc[i].n_threads; t++) {
			r = add_children(d, i, d->proc[i].thread[t].host, e);
			if (r < 0)
				return r;
			new += r;
		}
	}
	return new;
}

int stop_all(struct dump *d, struct err *e)
{
	int r = add_proc(d, d->agent, MEM_NONE, e);

	if (r == 0)
		return err_set(e, ERR_LOST, -ESRCH, "the agent has ended");
	if (r < 0)
		return r;
	for (unsigned i = 0; i < PASSES_MAX; i++) {
		r = pass(d, e);
		if (r <= 0)
			return r;
	}
	return err_set(e, ERR_CONFLICT, -EBUSY, "processes are started faster than they can be stopped");
}

int stop_next(pid_t tid, int *ret_status)
{
	pid_t r;

	do {
		r = sys_wait4(tid, ret_status, __WALL);
	} while (r == -EINTR);
	if (r < 0)
		return r;
	return WIFSTOPPED(*ret_status) ? 0 : -ESRCH;
}

/*
 * A thread that is in the middle of a signal's delivery stops for that first: it is given the signal back, and stops
 * again for us before its handler's first instruction.
 */
static int stopped(struct proc *p, struct thread *t, int status, struct err *e)
{
	int event = status >> 16;
	long r;

	if (event == PTRACE_EVENT_STOP) {
		t->stopped = true;
		if (WSTOPSIG(status) != SIGTRAP)
			p->stopped = true;
		return 0;
	}
	r = sys_ptrace(PTRACE_INTERRUPT, t->host, 0, NULL);
	if (r == 0)
		r = sys_ptrace(PTRACE_CONT, t->host, 0, (void *)(uintptr_t)(event ? 0 : WSTOPSIG(status)));
	return r < 0 ? err_sys(e, ERR_INTERNAL, (int)r, "stop process %u (%s)", p->pid, p->name) : 0;
}

/* Removes a thread that was ending already. Its parent is held, so its state does not change any more. */
static int ended(struct dump *d, struct proc *p, size_t at, struct err *e)
{
	if (p->thread[at].host == p->host && p->n_threads > 1)
		return first_is_gone(p, e);
	memmove(&p->thread[at], &p->thread[at + 1], (p->n_threads - at - 1) * sizeof(*p->thread));
	p->n_threads--;
	d->n_threads--;
	p->zombie = !p->n_threads;
	return 0;
}

/* Sleeps where no signal wakes it. */
static bool in_kernel(const struct proc *p, const struct thread *t)
{
	char path[48], text[512], *at;

	snprintf(path, sizeof(path), "task/%d/stat", (int)t->host);
	if (fd_get(p->dir, path, text, sizeof(text)) < 0 || !(at = strrchr(text, ')')))
		return false;
	return at[1] == ' ' && at[2] == 'D';
}

/*
 * A process that starts a program by vfork waits in the kernel until the child runs it. If that child is held
 * meanwhile, it is continued until then: it stops after its execve, or ends. Returns whether there is such a child.
 */
static bool help_vfork(struct dump *d, size_t at)
{
	bool found = false;

	for (size_t i = at + 1; i < d->n_procs; i++) {
		struct proc *c = &d->proc[i];
		struct thread *t = c->thread;

		if (c->parent != at || c->n_threads != 1 || sys_kcmp(d->proc[at].host, c->host, KCMP_VM, 0, 0) != 0)
			continue;
		found = true;
		if (!t->stopped)
			continue;
		if (sys_ptrace(PTRACE_SETOPTIONS, t->host, 0,
			       (void *)(uintptr_t)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC)) < 0 ||
		    sys_ptrace(PTRACE_CONT, t->host, 0, NULL) < 0)
			return false;
		t->stopped = false;
	}
	return found;
}

static int look_at_one(struct dump *d, size_t at, size_t *thread, uint64_t since, struct err *e)
{
	struct proc *p = &d->proc[at];
	struct thread *t = &p->thread[*thread];
	uint64_t waited = clock_mono_ns() - since;
	int status;
	pid_t got = sys_wait4(t->host, &status, __WALL | WNOHANG);

	if (got == t->host && WIFSTOPPED(status)) {
		++*thread;
		return stopped(p, t, status, e);
	}
	if (got == t->host || (got < 0 && got != -EINTR))
		return ended(d, p, *thread, e);
	++*thread;
	if (waited < VFORK_MS * 1000000ULL || (waited < STOP_MS * 1000000ULL && !in_kernel(p, t)))
		return 0;
	if (waited < STOP_MS * 1000000ULL && (help_vfork(d, at) || waited < STUCK_MS * 1000000ULL))
		return 0;
	return err_set(e, ERR_CONFLICT, -ETIMEDOUT, "process %u (%s) cannot be stopped: the kernel is busy with it",
		       p->pid, p->name);
}

static int wait_all(struct dump *d, struct err *e)
{
	const struct timespec nap = { 0, 20000 };
	uint64_t begin = clock_mono_ns(), since = begin;
	bool waiting;
	int r = 0;

	do {
		/* The agent can always be stopped: until it is, all others are still frozen. */
		if (d->proc[0].n_threads && !d->proc[0].thread[0].stopped &&
		    clock_mono_ns() - begin < STOP_MS * 1000000ULL)
			since = clock_mono_ns();
		waiting = false;
		for (size_t i = 0; r == 0 && i < d->n_procs; i++)
			for (size_t t = 0; r == 0 && t < d->proc[i].n_threads;) {
				if (d->proc[i].thread[t].stopped) {
					t++;
					continue;
				}
				waiting = true;
				r = look_at_one(d, i, &t, since, e);
			}
		if (waiting)
			nanosleep(&nap, NULL);
	} while (r == 0 && waiting);
	return r;
}

/* Called when nothing changes any more: finds the processes that are left, and their parents. */
static int settle(struct dump *d, struct err *e)
{
	for (size_t i = 1; i < d->n_procs; i++) {
		struct proc *p = &d->proc[i];
		AUTO_FREE char *status = NULL;
		pid_t parent;

		if (proc_text(p->dir, "status", DUMP_TEXT_MAX, &status, NULL) < 0) {
			/* A process without a held thread was reaped by its parent before the parent stopped. */
			if (!p->zombie && p->n_threads)
				return err_set(e, ERR_CONFLICT, -ESRCH, "process %u (%s) has ended in the meantime",
					       p->pid, p->name);
			p->zombie = p->gone = true;
			continue;
		}
		parent = (pid_t)proc_number(status, "PPid", 10, 0);
		p->parent = 0;
		for (uint32_t k = 1; k < i; k++)
			if (d->proc[k].host == parent)
				p->parent = k;
		free(p->status);
		p->status = TAKE_PTR(status);
		name_proc(p); /* it may have started a program since */
	}
	return 0;
}

/* A fork under way is finished before its caller stops, so there may be new processes. */
int stop_wait(struct dump *d, struct err *e)
{
	int r;

	do {
		r = wait_all(d, e);
		if (r == 0)
			r = pass(d, e);
	} while (r > 0);
	if (r == 0 && d->proc[0].zombie)
		r = err_set(e, ERR_LOST, -ESRCH, "the agent has ended");
	return r == 0 ? settle(d, e) : r;
}

int stop_memory(struct proc *p, struct err *e)
{
	p->mem = sys_openat(p->dir, "mem", O_RDONLY | O_CLOEXEC, 0);
	return p->mem < 0 ? err_sys(e, ERR_INTERNAL, p->mem, "open the memory of process %u", p->pid) : 0;
}

void stop_release(struct dump *d)
{
	for (size_t i = 0; i < d->n_procs; i++)
		for (size_t t = 0; t < d->proc[i].n_threads; t++) {
			struct thread *th = &d->proc[i].thread[t];

			/* A thread that never stopped cannot be detached; it is released when this program ends. */
			if (th->seized && th->stopped)
				sys_ptrace(PTRACE_DETACH, th->host, 0, NULL);
			th->seized = th->stopped = false;
		}
}
