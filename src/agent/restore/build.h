/* The list of calls that make a process, in the making: map.c and memory.c write it. */
#pragma once
#include "agent/restore/restore.h"
#include "base/base.h"

#define RESTORE_WINDOW (32ULL * MIB)

/* Where we build: data and calls grow towards each other's end. */
struct build {
	struct restore *r;
	const struct mem_proc *p;
	uint32_t proc;
	uint64_t start, len; /* all of our place */
	uint8_t *at, *end; /* data */
	struct blob_op *op; /* the list that is being written */
	uint64_t n_ops, max_ops;
	uint64_t maps;
	uint64_t window; /* RESTORE_WINDOW bytes that show a pages file, while memory is filled */
	int uffd; /* fills it, or -1 */
	bool helped; /* by the agent: help.h */
};

static inline void *room(struct build *b, size_t n)
{
	uint8_t *p = b->at;

	n = (n + 15) & ~(size_t)15;
	if (n > (size_t)(b->end - b->at))
		restore_die(b->r, b->proc, RESTORE_AREA, -ENOSPC, 0);
	b->at += n;
	return p;
}

static inline uint64_t copy(struct build *b, const void *data, size_t n)
{
	return (uint64_t)(uintptr_t)memcpy(room(b, n), data, n);
}

static inline struct blob_op *add(struct build *b, enum restore_what what, enum blob_want want, long nr, uint64_t a0,
				  uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	struct blob_op *o = &b->op[b->n_ops];

	if (b->n_ops == b->max_ops)
		restore_die(b->r, b->proc, RESTORE_AREA, -ENOSPC, 1);
	b->n_ops++;
	*o = (struct blob_op){ (uint32_t)nr, (uint16_t)want, (uint16_t)what, { a0, a1, a2, a3, a4, a5 } };
	return o;
}

/* memory.c: all mappings with their content, behind the old memory's end and before anything else. */
void restore_memory(struct build *b);
/* How many calls that takes at most, and bytes of what they point to. */
uint64_t restore_memory_ops(const struct restore *r, const struct mem_proc *p);
uint64_t restore_memory_bytes(const struct restore *r, const struct mem_proc *p);
/* fill.c: asks for what fills it, where there is enough to fill; then the calls that do, and how many at most. */
void restore_fill_open(struct build *b);
void restore_fill(struct build *b);
uint64_t restore_fill_ops(const struct restore *r, const struct mem_vma *m);
uint64_t restore_fill_bytes(const struct restore *r, const struct mem_vma *m);
/* What would be copied by a userfaultfd of process @proc, in bytes. */
uint64_t restore_fill_copied(struct restore *r, uint32_t proc);
/* Of a process that is helped: all that is copied but the first page of each mapping, in one order for both. */
typedef void restore_fill_fn(void *arg, const struct mem_run *run);
void restore_fill_rest(const struct build *b, restore_fill_fn *fn, void *arg);
