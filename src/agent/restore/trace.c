/*
 * The last step of a restore. Every thread waits at the end of its list; only a tracer can set its registers and remove
 * the code that it executes at the same time. All are held until all are done, and then released.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <elf.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEIZE 0x4206
#define INTERRUPT 0x4207
#define GETSIGMASK 0x420a
#define SETSIGMASK 0x420b
#define STOP_EVENT 128
#define SYSGOOD_EXITKILL (0x1UL | 0x100000UL)
#ifndef NT_ARM_TLS
#define NT_ARM_TLS 0x401
#endif

#ifdef __x86_64__
#define REGS 27
enum { R_R10 = 7, R_RAX = 10, R_RDX = 12, R_RSI = 13, R_RDI = 14, R_ORIG = 15, R_IP = 16 };
static const uint8_t instruction[] = { 0x0f, 0x05 };
#else
#define REGS 34
enum { R_PC = 32 };
static const uint8_t instruction[] = { 0x01, 0x00, 0x00, 0xd4 };
#endif

static long trace(long req, uint32_t tid, unsigned long addr, const void *data)
{
	return sys_ptrace(req, (pid_t)tid, addr, data);
}

static int regset(long req, uint32_t tid, uint32_t note, const void *data, size_t len)
{
	struct iovec v = { (void *)(uintptr_t)data, len };

	return (int)trace(req, tid, note, &v);
}

/* Waits until the thread stops. Returns its status, or -errno if it is gone. */
static int stopped(uint32_t tid)
{
	int status;

	while (waitpid((pid_t)tid, &status, __WALL) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFSTOPPED(status) ? status >> 8 : -ECHILD;
}

/* Finds a system call instruction in the code that all processes still have. */
static uint64_t find_call(void)
{
	const size_t n = (size_t)(__stop_cloche_blob - __start_cloche_blob);
	const uint8_t *at = memmem(__start_cloche_blob, n, instruction, sizeof(instruction));

	assert(at);
	return (uint64_t)(at - __start_cloche_blob);
}

static void set_call(uint64_t *regs, uint64_t at, long nr, const uint64_t a[4])
{
#ifdef __x86_64__
	regs[R_RAX] = (uint64_t)nr;
	regs[R_RDI] = a[0];
	regs[R_RSI] = a[1];
	regs[R_RDX] = a[2];
	regs[R_R10] = a[3];
	regs[R_ORIG] = ~0ULL; /* the thread does not continue the system call that it waits in */
	regs[R_IP] = at;
#else
	memcpy(regs, a, 4 * sizeof(*regs));
	regs[8] = (uint64_t)nr;
	regs[R_PC] = at;
#endif
}

static long result(const uint64_t *regs)
{
#ifdef __x86_64__
	return (long)regs[R_RAX];
#else
	return (long)regs[0];
#endif
}

/* A call made by the thread itself. The instruction may be gone when it returns: it is stopped before it notices. */
static int inject(uint32_t tid, uint64_t at, long nr, const uint64_t a[4])
{
	uint64_t regs[REGS];
	int x = regset(PTRACE_GETREGSET, tid, NT_PRSTATUS, regs, sizeof(regs));

	if (x < 0)
		return x;
	set_call(regs, at, nr, a);
	x = regset(PTRACE_SETREGSET, tid, NT_PRSTATUS, regs, sizeof(regs));
	for (unsigned i = 0; x >= 0 && i < 2; i++) {
		x = (int)trace(PTRACE_SYSCALL, tid, 0, NULL);
		if (x >= 0)
			x = stopped(tid);
		if (x >= 0 && x != (SIGTRAP | 0x80))
			x = -EINTR;
	}
	if (x >= 0)
		x = regset(PTRACE_GETREGSET, tid, NT_PRSTATUS, regs, sizeof(regs));
	return x < 0 ? x : (int)result(regs);
}

static int set_registers(const struct restore *r, const struct mem_thread *t)
{
	const uint8_t *extra = restore_bytes(r, t->extra);
	uint64_t regs[REGS], mask = t->sigmask;
	int x;

	memcpy(regs, restore_bytes(r, t->regs), sizeof(regs));
#ifdef __x86_64__
	/* A call that was interrupted (-ERESTARTSYS, NOINTR, NOHAND) is begun anew or ended by the kernel, by what signals wait. */
	if ((long)regs[R_RAX] < -514 || (long)regs[R_RAX] > -512 || (long)regs[R_ORIG] < 0)
		regs[R_ORIG] = ~0ULL;
	x = regset(PTRACE_SETREGSET, t->tid, NT_X86_XSTATE, restore_bytes(r, t->fp), t->fp.len);
#else
	x = regset(PTRACE_SETREGSET, t->tid, NT_PRFPREG, restore_bytes(r, t->fp), t->fp.len);
	if (x >= 0)
		x = regset(PTRACE_SETREGSET, t->tid, NT_ARM_TLS, t->tls, 8);
#endif
	for (uint64_t at = 0; x >= 0 && at < t->extra.len;) {
		uint32_t h[2];

		memcpy(h, extra + at, sizeof(h));
		x = regset(PTRACE_SETREGSET, t->tid, h[0], extra + at + 8, h[1]);
		at += 8 + (uint64_t)h[1];
	}
	if (x >= 0)
		x = regset(PTRACE_SETREGSET, t->tid, NT_PRSTATUS, regs, sizeof(regs));
	if (x >= 0)
		x = (int)trace(SETSIGMASK, t->tid, sizeof(mask), &mask);
	return x;
}

static int seize(const struct restore *r, const struct mem_proc *p)
{
	int x = 0;

	for (uint32_t i = 0; x >= 0 && i < p->thread.n; i++) {
		uint32_t tid = r->m.thread[p->thread.first + i].tid;

		x = (int)trace(SEIZE, tid, 0, (const void *)SYSGOOD_EXITKILL);
		if (x >= 0)
			x = (int)trace(INTERRUPT, tid, 0, NULL);
	}
	return x;
}

static int hold(const struct restore *r, const struct mem_proc *p)
{
	int x = 0;

	for (uint32_t i = 0; x >= 0 && i < p->thread.n; i++) {
		x = stopped(r->m.thread[p->thread.first + i].tid);
		if (x >= 0 && x != (SIGTRAP | STOP_EVENT << 8))
			x = -EINTR;
	}
	return x;
}

/* Continues the thread until it stops with the status @expected: as from waitpid(), >> 8. */
static int go_to(uint32_t tid, int sig, int expected)
{
	int x = (int)trace(PTRACE_CONT, tid, 0, (const void *)(uintptr_t)sig);

	if (x >= 0)
		x = stopped(tid);
	return x < 0 ? x : x == expected ? 0 : -EINTR;
}

/* Removes the restoring code from a thread's process, and sets the thread's registers. */
static int finish(const struct restore *r, uint32_t i, uint64_t call, enum restore_what *what)
{
	const struct mem_proc *p = &r->m.proc[i];
	uint64_t at = r->places[2 * i] + call;
	int x = 0;

	*what = RESTORE_LEAVE;
	if (!(p->flags & MEM_PROC_DUMPABLE))
		x = inject(p->pid, at, SYS_prctl, (const uint64_t[4]){ PR_SET_DUMPABLE, 0, 0, 0 });
	if (x >= 0 && !p->files && restore_shares(r, p))
		x = inject(p->pid, at, SYS_close_range, (const uint64_t[4]){ (uint64_t)r->base, UINT32_MAX, 0, 0 });
	if (x >= 0)
		x = inject(p->pid, at, SYS_munmap, (const uint64_t[4]){ r->places[2 * i], r->places[2 * i + 1], 0, 0 });
	/* From the end of a call into a stop as the others have: only there the kernel looks whether a call was interrupted. */
	if (x >= 0)
		x = (int)trace(INTERRUPT, p->pid, 0, NULL);
	if (x >= 0)
		x = go_to(p->pid, 0, SIGTRAP | STOP_EVENT << 8);
	*what = x < 0 ? RESTORE_LEAVE : RESTORE_REGS;
	for (uint32_t t = 0; x >= 0 && t < p->thread.n; t++)
		x = set_registers(r, &r->m.thread[p->thread.first + t]);
	return x;
}

/*
 * Whether the signals in @s include one that stops a process. The sender of such a signal is never visible to the
 * program.
 */
static bool has_stop(const struct restore *r, struct mem_span s)
{
	const uint8_t *info = restore_bytes(r, s);
	uint32_t sig;

	for (uint64_t at = 0; at < s.len; at += 128) {
		memcpy(&sig, info + at, sizeof(sig));
		if (sig == SIGSTOP)
			return true;
	}
	return false;
}

/*
 * Queues pending stop signals. They would have stopped the process while it was being made, so map.c leaves them out.
 */
static int queue_stops(const struct restore *r, const struct mem_proc *p)
{
	int x = 0;

	if (has_stop(r, p->pending))
		x = kill((pid_t)p->pid, SIGSTOP) < 0 ? -errno : 0;
	for (uint32_t i = 0; x == 0 && i < p->thread.n; i++) {
		const struct mem_thread *t = &r->m.thread[p->thread.first + i];

		if (has_stop(r, t->pending))
			x = syscall(SYS_tgkill, p->pid, t->tid, SIGSTOP) < 0 ? -errno : 0;
	}
	return x;
}

/* Drops the SIGCHLD that the stop has sent to the parent: the parent has taken it before, or has it in the image. */
static int forget_stop(const struct restore *r, uint32_t i, uint64_t call)
{
	const struct mem_proc *p = &r->m.proc[i];
	const uint64_t shared = r->places[2 * i] + r->places[2 * i + 1] - r->shared_len;
	const uint8_t *info = restore_bytes(r, p->pending);
	int x;

	for (uint64_t at = 0; at < p->pending.len; at += 128) {
		uint32_t sig;

		memcpy(&sig, info + at, sizeof(sig));
		if (sig == SIGCHLD)
			return 0;
	}
	x = inject(p->pid, r->places[2 * i] + call, SYS_rt_sigtimedwait,
		   (const uint64_t[4]){ shared + offsetof(struct blob_shared, child_signal), 0,
					shared + offsetof(struct blob_shared, no_time), 8 });
	return x == -EAGAIN ? 0 : x;
}

/*
 * A process that was stopped is stopped again while it is held and all other signals are blocked, so that it takes none
 * of them meanwhile. If its parent knew of the stop, the parent waits for it here, so that it is not reported a second
 * time.
 */
static int stop_again(const struct restore *r, uint32_t i, uint64_t call)
{
	const struct mem_proc *p = &r->m.proc[i];
	const int sig = p->stop_signal ? (int)p->stop_signal : SIGSTOP;
	const uint64_t all = ~(1ULL << (sig - 1));
	int x = 0;

	for (uint32_t t = 0; x >= 0 && t < p->thread.n; t++)
		x = (int)trace(SETSIGMASK, r->m.thread[p->thread.first + t].tid, sizeof(all), &all);
	if (x >= 0 && syscall(SYS_tgkill, p->pid, p->pid, SIGSTOP) < 0)
		x = -errno;
	if (x >= 0)
		x = go_to(p->pid, 0, SIGSTOP);
	for (uint32_t t = 0; x >= 0 && t < p->thread.n; t++)
		x = go_to(r->m.thread[p->thread.first + t].tid, t ? 0 : sig, sig | STOP_EVENT << 8);
	if (x >= 0)
		x = queue_stops(r, p);
	for (uint32_t t = 0; x >= 0 && t < p->thread.n; t++) {
		const struct mem_thread *th = &r->m.thread[p->thread.first + t];

		x = (int)trace(SETSIGMASK, th->tid, sizeof(th->sigmask), &th->sigmask);
	}
	if (x < 0 || p->parent == MEM_NONE)
		return x;
	if (!p->stop_signal)
		x = inject(r->m.proc[p->parent].pid, r->places[2 * p->parent] + call, SYS_wait4,
			   (const uint64_t[4]){ p->pid, 0, WUNTRACED | __WALL, 0 });
	return x < 0 ? x : forget_stop(r, p->parent, call);
}

int restore_finish(struct restore *r, uint32_t *ret_proc, enum restore_what *what)
{
	const struct mem_proc *all = r->m.proc;
	const uint32_t n = r->m.n[MEM_S_PROC];
	uint64_t call = find_call();
	int x = 0;

	*what = RESTORE_TRACE;
	/* First all of them are asked to stop: each stops on its own processor while the next is asked. */
	for (uint32_t i = 0; i < 2 * n; i++) {
		*ret_proc = i % n;
		if (all[i % n].state == MEM_ALIVE)
			x = i < n ? seize(r, &all[i]) : hold(r, &all[i % n]);
		if (x < 0)
			return x;
	}
	/* Children come last, and are to be stopped while their parents can still be made to ask. */
	for (uint32_t i = n; x >= 0 && i-- > 0;) {
		*ret_proc = i;
		if (all[i].state != MEM_ALIVE)
			continue;
		x = finish(r, i, call, what);
		if (x >= 0 && all[i].flags & MEM_PROC_STOPPED)
			x = stop_again(r, i, call);
		else if (x >= 0)
			x = queue_stops(r, &all[i]);
	}
	return x < 0 ? x : 0;
}

void restore_let_go(const struct restore *r)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_THREAD]; i++)
		trace(PTRACE_DETACH, r->m.thread[i].tid, 0, NULL);
}

bool restore_all_held(const struct restore *r)
{
	uint64_t mask;

	for (uint32_t i = 0; i < r->m.n[MEM_S_THREAD]; i++)
		if (trace(GETSIGMASK, r->m.thread[i].tid, sizeof(mask), &mask) < 0)
			return false;
	return true;
}
