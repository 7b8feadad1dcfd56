/* Registers and restarted system calls on x86-64. */
#ifdef __x86_64__
#include "memory/arch.h"
#include "base/base.h"
#include "base/sys.h"

#include <elf.h>
#include <linux/futex.h>
#include <linux/ptrace.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <signal.h>

#define FP_MAX 65536U
#define CS_64 0x33U
#define TF 0x100U

/* struct user_regs_struct */
enum {
	R15,
	R14,
	R13,
	R12,
	RBP,
	RBX,
	R11,
	R10,
	R9,
	R8,
	RAX,
	RCX,
	RDX,
	RSI,
	RDI,
	ORIG_RAX,
	RIP,
	CS,
	FLAGS,
	RSP,
	SS,
	FS_BASE,
	GS_BASE
};

/* As instructions count them. */
enum { N_RAX, N_RCX, N_RDX, N_RBX, N_RSP, N_RBP, N_RSI, N_RDI, N_R8, N_R9, N_R10, N_R11 };

/* What the kernel keeps from programs: a call that was interrupted. */
#define RESTARTSYS (-512L)
#define RESTARTNOINTR (-513L)
#define RESTARTNOHAND (-514L)
#define RESTART_BLOCK (-516L)

const char *arch_check(const uint64_t *regs)
{
	if (regs[CS] != CS_64)
		return "runs 32-bit code";
	/* With the trap flag, each injected instruction would be a trap that the program does not expect. */
	return regs[FLAGS] & TF ? "single-steps its own code (trap flag)" : NULL;
}

uint64_t arch_ip(const uint64_t *regs)
{
	return regs[RIP];
}

uint64_t arch_sp(const uint64_t *regs)
{
	return regs[RSP];
}

void arch_set_ip(uint64_t *regs, uint64_t ip)
{
	regs[RIP] = ip;
	regs[ORIG_RAX] = UINT64_MAX;
}

long arch_result(const uint64_t *regs)
{
	return (long)regs[RAX];
}

bool arch_restarts(const uint64_t *regs)
{
	long r = (long)regs[RAX];

	return (long)regs[ORIG_RAX] >= 0 &&
	       (r == RESTARTSYS || r == RESTARTNOINTR || r == RESTARTNOHAND || r == RESTART_BLOCK);
}

/*
 * Calls that end with EINTR when the thread is stopped. Those on files do so where they wait for another process, which copies the
 * same file or folder from a lower layer of the overlay: they have done nothing yet, and no program expects EINTR of them.
 */
static bool ends_when_stopped(uint64_t call)
{
	switch (call) {
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_rt_sigtimedwait:
	case SYS_open:
	case SYS_openat:
	case SYS_openat2:
	case SYS_creat:
	case SYS_truncate:
	case SYS_chmod:
	case SYS_fchmod:
	case SYS_fchmodat:
	case SYS_chown:
	case SYS_fchown:
	case SYS_lchown:
	case SYS_fchownat:
	case SYS_utime:
	case SYS_utimes:
	case SYS_futimesat:
	case SYS_utimensat:
	case SYS_rename:
	case SYS_renameat:
	case SYS_renameat2:
	case SYS_link:
	case SYS_linkat:
	case SYS_symlink:
	case SYS_symlinkat:
	case SYS_mkdir:
	case SYS_mkdirat:
	case SYS_mknod:
	case SYS_mknodat:
	case SYS_unlink:
	case SYS_unlinkat:
	case SYS_rmdir:
	case SYS_bind:
	case SYS_setxattr:
	case SYS_lsetxattr:
	case SYS_fsetxattr:
	case SYS_removexattr:
	case SYS_lremovexattr:
	case SYS_fremovexattr:
		return true;
	default:
		return false;
	}
}

/* Of a wait with a time limit it is not known how much is left, and a program that sets one looks at the clock. */
static bool waits_for_ever(const uint64_t *regs)
{
	switch (regs[ORIG_RAX]) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return (int)regs[R10] < 0;
	case SYS_epoll_pwait2:
		return !regs[R10];
	default:
		return false;
	}
}

void arch_again(uint64_t *regs)
{
	if ((long)regs[RAX] != -EINTR || !(ends_when_stopped(regs[ORIG_RAX]) || waits_for_ever(regs)))
		return;
	regs[RAX] = regs[ORIG_RAX];
	regs[RIP] -= 2; /* the system call instruction */
	regs[ORIG_RAX] = UINT64_MAX;
}

/*
 * Whether the call ends early, as by a signal. The kernel does not show how much time is left. A sleep that returns the
 * rest to its caller ends early, and the caller sleeps for the rest. So does a relative wait for a futex, whose callers
 * have to expect that, and poll() in a program that handles signals: after a handler, poll() is never restarted by
 * itself, so such a program counts time itself. If the call were restarted with its whole time, again and again, it
 * would never time out. Any other call is restarted.
 */
static bool ends_early(const uint64_t *regs, bool handles_signals)
{
	if ((long)regs[RAX] != RESTART_BLOCK)
		return false;
	switch (regs[ORIG_RAX]) {
	case SYS_nanosleep:
		return regs[RSI];
	case SYS_clock_nanosleep:
		return regs[R10];
	case SYS_futex:
		return (regs[RSI] & 127) == FUTEX_WAIT;
	case SYS_poll:
		return handles_signals;
	default:
		return false;
	}
}

void arch_restart(uint64_t *regs, bool handles_signals)
{
	if (!arch_restarts(regs))
		return;
	if (ends_early(regs, handles_signals)) {
		regs[RAX] = (uint64_t)-EINTR;
	} else {
		regs[RAX] = regs[ORIG_RAX];
		regs[RIP] -= 2; /* the system call instruction */
	}
	regs[ORIG_RAX] = UINT64_MAX;
}

void arch_restart_later(uint64_t *regs, bool handles_signals)
{
	if (!arch_restarts(regs))
		return;
	if (ends_early(regs, handles_signals))
		arch_restart(regs, handles_signals);
	else if ((long)regs[RAX] == RESTART_BLOCK) /* what the kernel has kept for it is not in the copy */
		regs[RAX] = (uint64_t)RESTARTNOHAND;
}

void arch_enter(uint64_t *regs, uint64_t ip)
{
	arch_set_ip(regs, ip);
}

int arch_state(struct dump *d, struct thread *t, struct err *e)
{
	AUTO_FREE uint8_t *fp = malloc(FP_MAX);
	struct iovec io = { fp, FP_MAX };
	long r = fp ? sys_ptrace(PTRACE_GETREGSET, t->host, NT_X86_XSTATE, &io) : -ENOMEM;

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "vector registers");
	t->rec.tls[0] = t->regs[FS_BASE];
	t->rec.tls[1] = t->regs[GS_BASE];
	return image_bytes(&d->image, fp, io.iov_len, &t->rec.fp, e);
}

static void put(struct code *c, const void *bytes, size_t n)
{
	if (c->full || c->n + n > c->max || c->n + n > sizeof(c->byte)) {
		c->full = true;
		return;
	}
	memcpy(c->byte + c->n, bytes, n);
	c->n += n;
}

/* mov reg, value: changes no flags, as nothing here does. */
static void set(struct code *c, unsigned reg, uint64_t value)
{
	uint8_t op[10];
	size_t n = 0;
	bool wide = value > UINT32_MAX;

	if (wide || reg > 7)
		op[n++] = (uint8_t)(0x40 | (wide ? 8 : 0) | (reg > 7));
	op[n++] = (uint8_t)(0xb8 + (reg & 7));
	memcpy(op + n, &value, wide ? 8 : 4);
	put(c, op, n + (wide ? 8 : 4));
}

/* lea reg, [rbx + offset] */
static void set_in_page(struct code *c, unsigned reg, uint64_t offset)
{
	uint32_t at = (uint32_t)offset;
	uint8_t op[7] = { (uint8_t)(0x48 | (reg > 7 ? 4 : 0)), 0x8d, (uint8_t)(0x83 | (reg & 7) << 3) };

	memcpy(op + 3, &at, 4);
	put(c, op, sizeof(op));
}

void code_call(struct code *c, const struct call *call)
{
	static const uint8_t arg[6] = { N_RDI, N_RSI, N_RDX, N_R10, N_R8, N_R9 };

	for (unsigned i = 0; i < 6; i++)
		if (call->in_page & 1U << i)
			set_in_page(c, arg[i], call->arg[i]);
		else
			set(c, arg[i], call->arg[i]);
	set(c, N_RAX, (uint64_t)call->nr);
	put(c, "\x0f\x05", 2); /* syscall */
}

void code_begin(struct code *c)
{
	const struct call map = { SYS_mmap,
				  { 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0 },
				  0 };

	code_call(c, &map);
	put(c, "\x48\x89\xc3", 3); /* mov rbx, rax; an error is an address that nothing can be written to */
}

void code_end_child(struct code *c)
{
	put(c, "\x48\x89\xc1\xe3\x02\xeb\x0c", 7); /* mov rcx, rax; jrcxz over the jump; jmp behind what follows */
	put(c, "\xbf\x00\x00\x00\x00\xb8\xe7\x00\x00\x00\x0f\x05", 12); /* exit_group(0) */
}

void code_end(struct code *c, const uint64_t *regs, uint64_t mask, const struct thread *t)
{
	static const struct {
		uint8_t n, reg;
	} back[] = { { N_RAX, RAX }, { N_RBX, RBX }, { N_RCX, RCX }, { N_RDX, RDX }, { N_RSI, RSI },
		     { N_RDI, RDI }, { N_R8, R8 },   { N_R9, R9 },   { N_R10, R10 }, { N_R11, R11 } };
	const struct call unmap = { SYS_munmap, { 0, PAGE }, 1 };
	struct call unblock = { SYS_rt_sigprocmask, { SIG_SETMASK, 0, 0, sizeof(mask) }, 0 };
	size_t start, end;

	(void)t;
	code_call(c, &unmap);
	start = c->n;
	/* Twice: the address of the mask is known when the length of the rest is. It is always a wide one. */
	for (unsigned pass = 0; pass < 2; pass++) {
		c->n = start;
		unblock.arg[1] = pass ? c->at + end : UINT64_MAX;
		code_call(c, &unblock);
		for (size_t i = 0; i < ARRAY_LEN(back); i++)
			set(c, back[i].n, regs[back[i].reg]);
		put(c, "\xff\x25\x00\x00\x00\x00", 6); /* jmp [rip] */
		put(c, &regs[RIP], 8);
		end = c->n;
	}
	put(c, &mask, sizeof(mask));
	put(c, "\xff", 1); /* a mark, so that space in use can be distinguished from free space */
}
#endif
