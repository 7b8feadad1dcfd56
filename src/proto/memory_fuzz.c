/* Any bytes as a memory image: nothing is read outside them, and what passes can be walked by its own numbers. */
#include "proto/memory.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum;

static void touch(const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n--)
		sum += *b++;
}

static void walk(const struct mem_image *m)
{
	touch(m->bytes, m->n[MEM_S_BYTES]);
	for (uint32_t i = 0; i < m->n[MEM_S_PROC]; i++) {
		const struct mem_proc *p = &m->proc[i];

		for (uint32_t t = 0; t < p->thread.n; t++) {
			touch(m->bytes + m->thread[p->thread.first + t].regs.off,
			      m->thread[p->thread.first + t].regs.len);
			touch(m->bytes + m->thread[p->thread.first + t].fp.off, m->thread[p->thread.first + t].fp.len);
		}
		for (uint32_t v = 0; v < p->vma.n; v++) {
			const struct mem_vma *x = &m->vma[p->vma.first + v];

			touch(&m->run[x->run.first], x->run.n * sizeof(struct mem_run));
			if (x->file != MEM_NONE)
				touch(&m->file[x->file], sizeof(struct mem_file));
		}
		for (uint32_t f = 0; f < p->fd.n; f++)
			touch(&m->object[m->fd[p->fd.first + f].object], sizeof(struct mem_object));
		if (p->action.n)
			touch(&m->action[p->action.first], p->action.n * sizeof(struct mem_action));
	}
	for (uint32_t i = 0; i < m->n[MEM_S_OBJECT]; i++)
		touch(m->bytes + m->object[i].data.off, m->object[i].data.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mem_image m;
	uint64_t *copy = malloc(size ? size : 1); /* of the right size: reading past it is seen */

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	if (mem_check(copy, size, &m, NULL) == 0)
		walk(&m);
	free(copy);
	return 0;
}
