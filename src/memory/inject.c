/*
 * The code is put into the unused end of the vdso's last page: the process's own copy of that page, which nothing of the
 * process is in. It sets everything it changed again by itself, so the order here only has to see to one thing: at any
 * moment the thread's registers and signal mask are either the old ones, or lead into complete code.
 */
#include "memory/inject.h"
#include "base/base.h"
#include "base/sys.h"

#include <elf.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOPS_MAX 64 /* stops for other reasons, during one call */

size_t inject_add(struct inject *j, const struct call *c, int pointer, size_t size)
{
	assert(j->n < INJECT_CALLS_MAX && j->used + size <= PAGE);
	j->call[j->n] = *c;
	j->answer[j->n] = UINT16_MAX;
	if (pointer >= 0) {
		j->call[j->n].arg[pointer] = j->used;
		j->call[j->n].in_page |= (uint8_t)(1U << pointer);
		j->answer[j->n] = (uint16_t)j->used;
		j->used += (size + 7) & ~7UL;
	}
	return j->n++;
}

const void *inject_answer(const struct inject *j, size_t call)
{
	assert(call < j->n && j->answer[call] < PAGE);
	return j->page + j->answer[call];
}

static int set_regs(const struct thread *t, uint64_t *regs)
{
	struct iovec io = { regs, t->regs_len };

	return (int)sys_ptrace(PTRACE_SETREGSET, t->host, NT_PRSTATUS, &io);
}

static int set_mask(const struct thread *t, uint64_t mask)
{
	return (int)sys_ptrace(PTRACE_SETSIGMASK, t->host, sizeof(mask), &mask);
}

/* Runs until the next stop at a system call (@want 0) or the stop that cloche-dump asked for. */
static int run_to(const struct thread *t, int want)
{
	int status = 0, sig = 0, r;

	for (unsigned i = 0; i < STOPS_MAX; i++) {
		r = (int)sys_ptrace(PTRACE_SYSCALL, t->host, 0, (void *)(uintptr_t)sig);
		if (r == 0)
			r = stop_next(t->host, &status);
		if (r < 0)
			return r;
		if (want ? status >> 16 == want : WSTOPSIG(status) == (SIGTRAP | 0x80))
			return 0;
		sig = status >> 16 ? 0 : WSTOPSIG(status);
	}
	return -EBUSY;
}

/* Runs the thread into the system call and out of it. */
static int one_call(const struct thread *t, long *ret)
{
	uint64_t regs[DUMP_REGS_MAX];
	struct iovec io = { regs, sizeof(regs) };
	int r = run_to(t, 0);

	if (r == 0)
		r = run_to(t, 0);
	if (r == 0)
		r = (int)sys_ptrace(PTRACE_GETREGSET, t->host, NT_PRSTATUS, &io);
	if (r == 0)
		*ret = arch_result(regs);
	return r;
}

/* Stops the thread on its return to its program, and restores its registers. */
static int leave(struct thread *t)
{
	int r = (int)sys_ptrace(PTRACE_INTERRUPT, t->host, 0, NULL);

	if (r == 0)
		r = run_to(t, PTRACE_EVENT_STOP);
	if (r == 0)
		r = set_mask(t, t->mask);
	if (r == 0)
		r = set_regs(t, t->regs);
	return r;
}

/* KiB; 0 when it cannot be read. Only of a process that has locked memory: the others are not asked. */
static uint64_t locked(const struct proc *p)
{
	AUTO_FREE char *status = NULL;

	if (!p->locked || proc_text(p->dir, "status", DUMP_TEXT_MAX, &status, NULL) < 0)
		return 0;
	return proc_number(status, "VmLck", 10, 0);
}

static int make_calls(struct proc *p, struct thread *t, struct inject *j, size_t from, size_t n)
{
	long page, ended;
	int r = one_call(t, &page);

	if (r == 0 && page > 0)
		p->locks_all |= locked(p) > p->locked;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = one_call(t, &j->result[from + i]);
	if (r == 0 && page < 0)
		r = (int)page;
	for (size_t i = 0; r == 0 && i < n; i++) {
		uint16_t at = j->answer[from + i];
		size_t len = at == UINT16_MAX ? 0 : (at + 64UL < PAGE ? 64 : PAGE - at);

		if (len && pread(p->mem, j->page + at, len, (off_t)(page + at)) != (ssize_t)len)
			r = -EIO;
	}
	return r == 0 ? one_call(t, &ended) : r;
}

/* Makes the thread execute as many calls as fit, from call @from on. Returns how many. */
static int make_round(struct proc *p, struct thread *t, struct inject *j, size_t from, struct err *e)
{
	uint64_t regs[DUMP_REGS_MAX];
	struct code c = { 0 };
	static const uint8_t zeros[CODE_MAX];
	size_t n = 0, entry = (j->input_n + 15) & ~15UL;
	int r = vdso_room(p, &c, e);

	if (r < 0)
		return r;
	memcpy(c.byte, j->input, j->input_n);
	c.n = entry;
	code_begin(&c);
	while (from + n < j->n && c.n + CODE_FRAME + CODE_CALL < c.max) {
		struct call k = j->call[from + n++];

		k.arg[1] += j->input_n ? c.at : 0;
		code_call(&c, &k);
	}
	memcpy(regs, t->regs, sizeof(regs));
	arch_restart(regs, proc_handles_signals(p));
	code_end(&c, regs, t->mask, t);
	if (c.full || !n)
		return proc_refuse(p, e, "has no room after its vdso");
	r = vdso_write(p, c.at, c.byte, c.n);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "write after the vdso of process %u", p->pid);
	memcpy(regs, t->regs, sizeof(regs));
	arch_enter(regs, c.at + entry);
	r = set_regs(t, regs);
	if (r == 0)
		r = set_mask(t, UINT64_MAX);
	if (r == 0)
		r = make_calls(p, t, j, from, n);
	if (r == 0)
		r = leave(t);
	if (r < 0) /* the thread is in the injected code, and returns to its program when it is released */
		return err_sys(e, ERR_CONFLICT, r, "a call made by process %u (%s)", p->pid, p->name);
	r = vdso_write(p, c.at, zeros, c.n);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "clear the room after the vdso of process %u", p->pid);
	return (int)n;
}

int inject_run(struct proc *p, struct thread *t, struct inject *j, struct err *e)
{
	int r = 0;

	for (size_t at = 0; r >= 0 && at < j->n; at += (size_t)r)
		r = make_round(p, t, j, at, e);
	return r < 0 ? r : 0;
}

#define OPTIONS PTRACE_O_TRACESYSGOOD

/*
 * Runs the thread into clone, past the event of the new process, and out of the call; then the page of results is
 * unmapped and the registers are restored.
 */
static int make_fork(struct thread *t, pid_t *ret)
{
	unsigned long child = 0;
	int status, r;
	long page, ended;

	r = one_call(t, &page);
	if (r == 0)
		r = run_to(t, 0);
	if (r == 0)
		r = (int)sys_ptrace(PTRACE_SYSCALL, t->host, 0, NULL);
	if (r == 0)
		r = stop_next(t->host, &status);
	if (r == 0 && (status >> 16 == PTRACE_EVENT_CLONE || status >> 16 == PTRACE_EVENT_FORK)) {
		r = (int)sys_ptrace(PTRACE_GETEVENTMSG, t->host, 0, &child);
		if (r == 0)
			r = run_to(t, 0);
	}
	if (r == 0)
		r = one_call(t, &ended);
	if (r == 0)
		r = leave(t);
	if (r == 0 && child)
		r = stop_next((pid_t)child, &status);
	if (r == 0)
		*ret = (pid_t)child;
	return r;
}

/*
 * Forks a sibling, not a child: its parent is then the agent, which reaps processes that are not its execs without a
 * report. So this is only for the agent's own children. The fork is stopped from birth, and ends by itself when it has
 * lost its tracer.
 */
int inject_fork(struct proc *p, struct err *e)
{
	const struct call fork = { SYS_clone, { CLONE_PARENT | SIGCHLD }, 0 };
	struct thread *t = &p->thread[0];
	uint64_t regs[DUMP_REGS_MAX];
	struct code c = { 0 };
	static const uint8_t zeros[CODE_MAX];
	int r = vdso_room(p, &c, e);

	if (r < 0)
		return r;
	code_begin(&c);
	code_call(&c, &fork);
	code_end_child(&c);
	memcpy(regs, t->regs, sizeof(regs));
	arch_restart(regs, proc_handles_signals(p));
	code_end(&c, regs, t->mask, t);
	if (c.full)
		return proc_refuse(p, e, "has no room after its vdso");
	r = vdso_write(p, c.at, c.byte, c.n);
	if (r == 0)
		r = (int)sys_ptrace(PTRACE_SETOPTIONS, t->host, 0,
				    (void *)(uintptr_t)(OPTIONS | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK));
	memcpy(regs, t->regs, sizeof(regs));
	arch_enter(regs, c.at);
	if (r == 0)
		r = set_regs(t, regs);
	if (r == 0)
		r = set_mask(t, UINT64_MAX);
	if (r == 0)
		r = make_fork(t, &p->copy);
	if (r == 0)
		r = (int)sys_ptrace(PTRACE_SETOPTIONS, t->host, 0, (void *)(uintptr_t)OPTIONS);
	if (r == 0 && p->copy)
		sys_ptrace(PTRACE_SETOPTIONS, p->copy, 0, (void *)(uintptr_t)(OPTIONS | PTRACE_O_EXITKILL));
	if (r == 0)
		r = vdso_write(p, c.at, zeros, c.n);
	if (r < 0)
		return err_sys(e, ERR_CONFLICT, r, "a copy of process %u (%s)", p->pid, p->name);
	return p->copy ? 0 : -EAGAIN;
}

void inject_forget(struct proc *p)
{
	int status;

	if (!p->copy)
		return;
	sys_ptrace(PTRACE_CONT, p->copy, 0, NULL);
	while (sys_wait4(p->copy, &status, __WALL) == p->copy && WIFSTOPPED(status))
		sys_ptrace(PTRACE_CONT, p->copy, 0, NULL);
	p->copy = 0;
}
