/*
 * Memory protection keys: which ones a process has allocated. The key of each mapping is in smaps, and the rights of
 * each thread are among its registers. Only a call that uses a key shows whether it is allocated: at an address where
 * nothing is mapped, the call fails with another error for a free key, and changes nothing.
 */
#include "memory/inject.h"
#include "base/base.h"

#include <sys/mman.h>
#include <sys/syscall.h>

struct call pkey_question(uint64_t key)
{
	return (struct call){ SYS_pkey_mprotect, { 0, PAGE, PROT_NONE, key }, 0 };
}

bool pkey_is_given(long result)
{
	return result == -ENOMEM;
}

/* A mapping that can only be run has a key that the kernel takes for itself, and takes again. */
static int check_vmas(struct proc *p, struct err *e)
{
	for (size_t i = 0; i < p->n_vmas; i++) {
		struct vma *v = &p->vma[i];
		const uint32_t key = v->flags >> MEM_VMA_KEY_SHIFT;

		if (!key || p->rec.pkeys >> key & 1)
			continue;
		if (v->prot != PROT_EXEC)
			return proc_refuse(p, e, "has memory with protection key %u, which it has freed", key);
		v->flags &= (1U << MEM_VMA_KEY_SHIFT) - 1;
	}
	return 0;
}

int pkey_ask(struct proc *p, struct err *e)
{
	AUTO_FREE struct inject *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "calls");
#ifndef __x86_64__
	return proc_refuse(p, e, "uses memory protection keys"); /* the threads' rights are not carried here */
#endif
	for (uint64_t key = 1; key < MEM_PKEYS; key++) {
		const struct call c = pkey_question(key);

		inject_add(j, &c, -1, 0);
	}
	r = inject_run(p, &p->thread[0], j, e);
	if (r < 0)
		return r;
	for (unsigned key = 1; key < MEM_PKEYS; key++)
		p->rec.pkeys |= pkey_is_given(j->result[key - 1]) ? 1U << key : 0;
	return check_vmas(p, e);
}
