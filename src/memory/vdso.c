/*
 * The space behind the vdso. All processes have the same vdso as cloche-dump, so its own shows where the bytes end and
 * how many pages there are; what is behind them was put there by an earlier cloche-dump.
 */
#include "memory/inject.h"
#include "base/base.h"
#include "base/sys.h"

#include <elf.h>
#include <linux/ptrace.h>
#include <sys/auxv.h>
#include <time.h>
#include <unistd.h>

#define ROOM_MIN 512U
#define STACK_MAX (64ULL << 20)
#define TRIES 100

int vdso_self(struct dump *d, struct err *e)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
	uint64_t end;

	if (!h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this kernel provides no vdso");
	end = h->e_shoff + (uint64_t)h->e_shnum * h->e_shentsize; /* the table of sections is the last thing in it */
	d->vdso_len = (end + PAGE - 1) & ~(PAGE - 1);
	d->vdso_used = (end + 15) & ~15ULL;
	return 0;
}

int vdso_find(const struct dump *d, struct proc *p, struct err *e)
{
	const uint64_t *auxv = (const uint64_t *)(const void *)(d->image.section[MEM_S_BYTES].data + p->rec.auxv.off);

	for (uint64_t i = 0; i + 1 < p->rec.auxv.len / 8 && auxv[i]; i += 2)
		if (auxv[i] == AT_SYSINFO_EHDR) {
			p->vdso = auxv[i + 1];
			p->vdso_end = p->vdso + d->vdso_len;
			p->vdso_tail = p->vdso + d->vdso_used;
			return 0;
		}
	return proc_refuse(p, e, "has no vdso");
}

static int ip_of(const struct thread *t, uint64_t *ret)
{
	uint64_t regs[DUMP_REGS_MAX];
	struct iovec io = { regs, sizeof(regs) };
	int r = (int)sys_ptrace(PTRACE_GETREGSET, t->host, NT_PRSTATUS, &io);

	*ret = r < 0 ? 0 : arch_ip(regs);
	return r;
}

/*
 * A thread that is still inside injected code, since an earlier cloche-dump was killed: it runs until it has left that
 * code.
 */
int vdso_settle(struct proc *p, struct thread *t, struct err *e)
{
	const struct timespec nap = { 0, 100000 };
	uint64_t ip;
	int r, status;

	for (unsigned i = 0; i < TRIES; i++) {
		r = ip_of(t, &ip);
		if (r < 0 || ip < p->vdso_tail || ip >= p->vdso_end)
			return r < 0 ? err_sys(e, ERR_INTERNAL, r, "registers") : 0;
		r = (int)sys_ptrace(PTRACE_CONT, t->host, 0, NULL);
		nanosleep(&nap, NULL);
		if (r == 0)
			r = (int)sys_ptrace(PTRACE_INTERRUPT, t->host, 0, NULL);
		while (r == 0) {
			r = stop_next(t->host, &status);
			if (r < 0 || status >> 16 == PTRACE_EVENT_STOP)
				break;
			r = (int)sys_ptrace(PTRACE_CONT, t->host, 0,
					    (void *)(uintptr_t)(status >> 16 ? 0 : status >> 8 & 0xff));
		}
		if (r < 0)
			return err_sys(e, ERR_CONFLICT, r, "process %u (%s) has ended in the meantime", p->pid,
				       p->name);
	}
	return err_set(e, ERR_CONFLICT, -EBUSY, "process %u (%s) is still used by an earlier image", p->pid, p->name);
}

/* Whether something on a thread's stack leads there: a signal's handler that will return. */
static bool on_stack(const struct proc *p, const struct thread *t)
{
	uint64_t sp = arch_sp(t->regs) & ~7ULL, end = sp, block[512];

	for (size_t i = 0; i < p->n_vmas; i++)
		if (sp >= p->vma[i].start && sp < p->vma[i].end)
			end = p->vma[i].end;
	if (end == sp || end - sp > STACK_MAX)
		return true;
	while (sp < end) {
		size_t n = end - sp < sizeof(block) ? end - sp : sizeof(block);

		if (pread(p->mem, block, n, (off_t)sp) != (ssize_t)n)
			return true;
		for (size_t i = 0; i < n / 8; i++)
			if (block[i] >= p->vdso_tail && block[i] < p->vdso_end)
				return true;
		sp += n;
	}
	return false;
}

/* Writes word by word through ptrace: the memory file would need CAP_DAC_OVERRIDE. */
int vdso_write(const struct proc *p, uint64_t at, const void *data, size_t n)
{
	const uint8_t *from = data;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i += 8) {
		uint64_t word = 0;

		memcpy(&word, from + i, n - i < 8 ? n - i : 8);
		r = (int)sys_ptrace(PTRACE_POKEDATA, p->thread[0].host, at + i, (void *)(uintptr_t)word);
	}
	return r;
}

int vdso_room(const struct proc *p, struct code *c, struct err *e)
{
	static const uint8_t zeros[PAGE];
	uint8_t tail[PAGE];
	size_t size = p->vdso_end - p->vdso_tail, n = size;
	bool used = false;

	if (pread(p->mem, tail, size, (off_t)p->vdso_tail) != (ssize_t)size)
		return err_sys(e, ERR_INTERNAL, -errno, "read the vdso of process %u", p->pid);
	while (n && !tail[n - 1])
		n--;
	for (size_t i = 0; n && !used && i < p->n_threads; i++)
		used = on_stack(p, &p->thread[i]);
	if (n && !used) {
		int r = vdso_write(p, p->vdso_tail, zeros, n);

		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "clear the room after the vdso of process %u", p->pid);
		n = 0;
	}
	n = (n + 15) & ~15UL;
	if (n + ROOM_MIN > size)
		return proc_refuse(p, e, "has no room after its vdso");
	c->at = p->vdso_tail + n;
	c->max = size - n;
	return 0;
}
