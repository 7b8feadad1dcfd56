/* Registers and restarted system calls on aarch64. */
#ifdef __aarch64__
#include "memory/arch.h"
#include "base/base.h"
#include "base/sys.h"

#include <elf.h>
#include <linux/ptrace.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef NT_ARM_TLS
#define NT_ARM_TLS 0x401
#endif
#define FP_SIZE 528U
#define EXTRA_MAX 32768U

/* struct user_pt_regs */
enum { X0, X8 = 8, SP = 31, PC, PSTATE, REGS };

const char *arch_check(const uint64_t *regs)
{
	return regs[PSTATE] & 0x10 ? "runs 32-bit code" : NULL;
}

uint64_t arch_ip(const uint64_t *regs)
{
	return regs[PC];
}

uint64_t arch_sp(const uint64_t *regs)
{
	return regs[SP];
}

void arch_set_ip(uint64_t *regs, uint64_t ip)
{
	regs[PC] = ip;
}

long arch_result(const uint64_t *regs)
{
	return (long)regs[X0];
}

/* Before a thread stops, the kernel has set it back to the call's instruction: it begins anew by itself. */
bool arch_restarts(const uint64_t *regs)
{
	(void)regs;
	return false;
}

/* The kernel does not report what the first argument was, since the result has replaced it. */
void arch_again(uint64_t *regs)
{
	(void)regs;
}

void arch_restart(uint64_t *regs, bool handles_signals)
{
	(void)handles_signals;
	(void)regs;
}

void arch_restart_later(uint64_t *regs, bool handles_signals)
{
	arch_restart(regs, handles_signals);
}

void arch_enter(uint64_t *regs, uint64_t ip)
{
	regs[PC] = ip;
	regs[PSTATE] &= ~0xc00ULL; /* a branch target may be expected only where one was */
}

static int add_note(struct buf *b, pid_t tid, uint32_t note)
{
	uint8_t data[EXTRA_MAX];
	struct iovec io = { data, sizeof(data) };
	uint32_t head[2] = { note, 0 };
	int r;

	if (sys_ptrace(PTRACE_GETREGSET, tid, note, &io) < 0)
		return 0; /* this CPU has none of it */
	head[1] = (uint32_t)io.iov_len;
	r = buf_add(b, head, sizeof(head));
	return r < 0 ? r : buf_add(b, data, io.iov_len);
}

int arch_state(struct dump *d, struct thread *t, struct err *e)
{
	/* SVE, PAC keys (data and instruction, generic), tagged addresses, which PAC keys are on */
	static const uint32_t notes[] = { 0x405, 0x407, 0x408, 0x409, 0x40a };
	AUTO(buf_done) struct buf extra = BUF_INIT(EXTRA_MAX);
	uint8_t fp[FP_SIZE];
	struct iovec io = { fp, sizeof(fp) };
	long r = sys_ptrace(PTRACE_GETREGSET, t->host, NT_PRFPREG, &io);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "vector registers");
	io = (struct iovec){ t->rec.tls, sizeof(t->rec.tls) };
	r = sys_ptrace(PTRACE_GETREGSET, t->host, NT_ARM_TLS, &io);
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(notes); i++)
		r = add_note(&extra, t->host, notes[i]);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "registers");
	r = image_bytes(&d->image, fp, sizeof(fp), &t->rec.fp, e);
	return r < 0 ? (int)r : image_bytes(&d->image, extra.data, extra.len, &t->rec.extra, e);
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

static void op(struct code *c, uint32_t instruction)
{
	put(c, &instruction, sizeof(instruction));
}

/* movz and as many movk as it takes; @all: always four, so that the length is known. */
static void set(struct code *c, unsigned reg, uint64_t value, bool all)
{
	op(c, 0xd2800000U | (uint32_t)(value & 0xffff) << 5 | reg);
	for (unsigned i = 1; i < 4; i++)
		if (all || value >> (16 * i) & 0xffff)
			op(c, 0xf2800000U | i << 21 | (uint32_t)(value >> (16 * i) & 0xffff) << 5 | reg);
}

static void svc(struct code *c)
{
	op(c, 0xd4000001U);
}

void code_call(struct code *c, const struct call *call)
{
	for (unsigned i = 0; i < 6; i++)
		if (call->in_page & 1U << i)
			op(c, 0x91000000U | (uint32_t)call->arg[i] << 10 | 19U << 5 | i); /* add xi, x19, offset */
		else
			set(c, i, call->arg[i], false);
	set(c, X8, (uint64_t)call->nr, false);
	svc(c);
}

void code_begin(struct code *c)
{
	const struct call map = { SYS_mmap,
				  { 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0 },
				  0 };

	code_call(c, &map);
	op(c, 0xaa0003f3U); /* mov x19, x0 */
}

void code_end_child(struct code *c)
{
	op(c, 0xb5000080U); /* cbnz x0, behind what follows */
	set(c, X0, 0, false);
	set(c, X8, SYS_exit_group, false);
	svc(c);
}

/*
 * No branch to a distant address leaves all registers unchanged, so the kernel restores them: the frame that it would
 * put on the stack for a signal is placed behind the code, which ends in rt_sigreturn.
 */
void code_end(struct code *c, const uint64_t *regs, uint64_t mask, const struct thread *t)
{
	const struct call unmap = { SYS_munmap, { 0, PAGE }, 1 };
	struct {
		uint8_t info[128];
		uint64_t flags, link, stack[3], mask, unused[16];
		uint64_t fault, regs[REGS], pad;
		uint32_t magic, size;
		uint32_t fpsr, fpcr;
		uint8_t vector[512];
		uint64_t end[3];
	} frame = { .mask = mask, .magic = 0x46508001U, .size = FP_SIZE };
	uint8_t fp[FP_SIZE];
	struct iovec io = { fp, sizeof(fp) };
	uint64_t at;

	static_assert(offsetof(__typeof__(frame), fault) == 128 + 176 &&
			      offsetof(__typeof__(frame), magic) == 128 + 176 + 288,
		      "as the kernel has it");
	if (sys_ptrace(PTRACE_GETREGSET, t->host, NT_PRFPREG, &io) < 0) {
		c->full = true;
		return;
	}
	memcpy(frame.regs, regs, sizeof(frame.regs));
	memcpy(frame.vector, fp, sizeof(frame.vector));
	memcpy(&frame.fpsr, fp + 512, 4);
	memcpy(&frame.fpcr, fp + 516, 4);
	code_call(c, &unmap);
	at = (c->at + c->n + 28 + 15) & ~15ULL; /* seven instructions follow */
	set(c, X0, at, true);
	op(c, 0x9100001fU); /* mov sp, x0 */
	set(c, X8, SYS_rt_sigreturn, false);
	svc(c);
	while (!c->full && c->at + c->n < at)
		op(c, 0xd503201fU); /* nop */
	frame.end[2] = 1; /* a mark, so that space in use can be distinguished from free space */
	put(c, &frame, sizeof(frame));
}
#endif
