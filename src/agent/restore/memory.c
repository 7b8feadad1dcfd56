/*
 * The memory of a process. Each mapping is made once and is of the kind it was: anonymous memory is anonymous, a private
 * mapping of a file is one of that file. Then the pages that the process had of its own are read into them. So all that
 * a program can do to its memory later (give pages back, let it grow, fork) gives what it would have given before.
 *
 * The order is: map everything writable that is to be filled, fill it, then set protection, advice, names and locks. The
 * kernel joins neighbours that are alike, as it did in the source: what differs only by what is set later has one
 * origin (anon_vma) and can be joined again when the program makes it alike.
 */
#include "agent/restore/build.h"
#include "agent/restore/stash.h"
#include "base/sys.h"
#include "proto/memory_advice.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define LOOK_STEP (256U * KIB)
#define POPULATE_READ 22 /* MADV_POPULATE_READ */
#define MAPS_MAX 60000U /* the kernel's own limit is 65530 for a process */
#define DROPPABLE 0x08 /* MAP_DROPPABLE */
#define ONFAULT 1 /* MLOCK_ONFAULT */
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif
#define SET_ANON_NAME 0
#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

static const struct mem_vma *vma(const struct build *b, uint32_t i)
{
	return &b->r->m.vma[b->p->vma.first + i];
}

/* Whether the mapping is made writable at first, because pages are read into it. */
static bool opened(const struct mem_vma *m)
{
	return m->run.n && !(m->prot & PROT_WRITE);
}

/* The block of a holder's pages that is moved to the mapping's place, instead of reading them (stash.h); NULL: none. */
static const struct stash_block *held(const struct build *b, const struct mem_vma *m)
{
	return stash_find(b->r, (uint32_t)(m - b->r->m.vma));
}

/* ---- mapping ---------------------------------------------------------------------------------------------------- */

static void map(struct build *b, const struct mem_vma *m, uint64_t flags, int fd)
{
	uint64_t prot = m->prot | (opened(m) ? PROT_WRITE : 0);

	if (++b->maps > MAPS_MAX)
		restore_die(b->r, b->proc, RESTORE_MAP, -ENOMEM, 1);
	add(b, RESTORE_MAP, BLOB_FIRST, SYS_mmap, m->start, m->end - m->start, prot, flags | MAP_FIXED,
	    (uint64_t)(int64_t)fd, fd < 0 ? 0 : m->offset);
}

/* System V shared memory: the first mapping of an attachment represents all of it. */
static void attach(struct build *b, const struct mem_vma *m)
{
	struct mem_sysv s;

	if (m->offset)
		return;
	memcpy(&s, restore_bytes(b->r, b->r->m.object[m->object].data), sizeof(s));
	add(b, RESTORE_MAP, BLOB_SECOND, SYS_shmat, s.id, m->start, m->flags & MEM_VMA_MAY_WRITE ? 0 : SHM_RDONLY, 0, 0,
	    0);
}

/* The protection of shared memory that was just attached. */
static uint32_t attached(const struct mem_vma *m)
{
	return PROT_READ | (m->flags & MEM_VMA_MAY_WRITE ? PROT_WRITE : 0U);
}

static void map_vma(struct build *b, const struct mem_vma *m)
{
	uint64_t flags = MAP_PRIVATE | (m->flags & MEM_VMA_NORESERVE ? MAP_NORESERVE : 0);

	switch ((enum mem_vma_kind)m->kind) {
	case MEM_VMA_ANON:
		if (m->flags & MEM_VMA_DROPPABLE)
			flags = DROPPABLE;
		map(b, m, flags | MAP_ANONYMOUS | (m->flags & MEM_VMA_GROWSDOWN ? MAP_GROWSDOWN : 0), -1);
		break;
	case MEM_VMA_FILE:
		map(b, m, flags, b->r->file[m->file]);
		break;
	case MEM_VMA_OBJECT:
		map(b, m, flags, b->r->object[m->object]);
		break;
	case MEM_VMA_FILE_SHARED:
		map(b, m, MAP_SHARED, b->r->file[m->file]);
		break;
	case MEM_VMA_SHMEM:
		map(b, m, MAP_SHARED, b->r->object[m->object]);
		break;
	case MEM_VMA_SYSV:
		attach(b, m);
		break;
	case MEM_VMA_VDSO:
	case MEM_VMA_VVAR:
		break;
	}
}

static void move_or_map(struct build *b, const struct mem_vma *m)
{
	const struct stash_block *x = held(b, m);

	if (!x)
		map_vma(b, m);
	else if (m == &b->r->m.vma[x->first])
		add(b, RESTORE_MAP, BLOB_FIFTH, SYS_mremap, x->at, x->len, x->len, MREMAP_MAYMOVE | MREMAP_FIXED,
		    x->start, 0);
}

/* Two mappings that the kernel would make one, and that were two: each has pages since before they became neighbours. */
static bool apart(const struct mem_vma *a, const struct mem_vma *m)
{
	return a->kind == MEM_VMA_ANON && m->kind == MEM_VMA_ANON && a->end == m->start && a->prot == m->prot &&
	       a->flags == m->flags && a->advice == m->advice && a->run.n && m->run.n &&
	       !((a->flags | m->flags) & (MEM_VMA_GROWSDOWN | MEM_VMA_DROPPABLE)) && !a->name.len && !m->name.len;
}

/* Every second one of such gets something that its neighbours do not have, while they get their first pages. */
static void mark_apart(struct build *b, int advice)
{
	bool marked = false;

	for (uint32_t i = 1; i < b->p->vma.n; i++) {
		const struct mem_vma *m = vma(b, i);

		marked = apart(m - 1, m) && !marked && !held(b, m);
		if (marked)
			add(b, RESTORE_MAP, BLOB_OK, SYS_madvise, m->start, m->end - m->start, (uint64_t)advice, 0, 0,
			    0);
	}
}

/* ---- what was set for it later ---------------------------------------------------------------------------------- */

static void set_name(struct build *b, const struct mem_vma *m)
{
	char name[MEM_VMA_NAME_MAX + 1] = "";

	memcpy(name, restore_bytes(b->r, m->name), m->name.len);
	add(b, RESTORE_MAP, BLOB_OK, SYS_prctl, PR_SET_VMA, SET_ANON_NAME, m->start, m->end - m->start,
	    copy(b, name, sizeof(name)), 0);
}

static void set_vma(struct build *b, const struct mem_vma *m)
{
	uint64_t len = m->end - m->start;

	if (m->kind == MEM_VMA_VDSO || m->kind == MEM_VMA_VVAR)
		return;
	/* Neighbouring anonymous mappings are held with the same protection. */
	if (held(b, m) ? !held(b, m)->file && m->prot != (PROT_READ | PROT_WRITE) : opened(m))
		add(b, RESTORE_MAP, BLOB_OK, SYS_mprotect, m->start, len, m->prot, 0, 0, 0);
	if (m->kind == MEM_VMA_SYSV && m->prot != attached(m))
		add(b, RESTORE_MAP, BLOB_OK, SYS_mprotect, m->start, len, m->prot, 0, 0, 0);
	for (size_t i = 0; i < MEM_ADVICES && !(m->flags & MEM_VMA_DROPPABLE); i++)
		if (m->advice & mem_advice[i].bit)
			add(b, RESTORE_MAP, mem_advice[i].must ? BLOB_OK : BLOB_ANY, SYS_madvise, m->start, len,
			    (uint64_t)mem_advice[i].advice, 0, 0, 0);
	if (m->name.len)
		set_name(b, m);
	if (m->flags & MEM_VMA_LOCKED)
		add(b, RESTORE_MAP, BLOB_OK, SYS_mlock2, m->start, len, m->flags & MEM_VMA_ONFAULT ? ONFAULT : 0, 0, 0,
		    0);
}

/* Whether all of it seems to be in the page cache: a process that is held for a request must not wait for a disk. */
static bool cached(int fd, uint64_t off, uint64_t len)
{
	uint8_t byte;
	struct iovec v = { &byte, 1 };

	for (uint64_t at = off; at < off + len; at += LOOK_STEP)
		if (syscall(SYS_preadv2, fd, &v, 1, (long)at, 0L, RWF_NOWAIT) != 1)
			return false;
	return true;
}

/*
 * What a process made ahead will read first is mapped ahead, too: its program's own pages. They are the page cache's, so
 * that it costs page tables.
 */
static void look_ahead(struct build *b)
{
	for (uint32_t v = 0; v < b->p->vma.n; v++) {
		const struct mem_vma *m = vma(b, v);
		uint64_t len = m->end - m->start;

		/* Before 5.14 there is no such thing. */
		if (m->kind == MEM_VMA_FILE && m->file == b->p->exe && cached(b->r->file[m->file], m->offset, len))
			add(b, RESTORE_MAP, BLOB_ANY, SYS_madvise, m->start, len, POPULATE_READ, 0, 0, 0);
	}
}

void restore_memory(struct build *b)
{
	for (uint32_t i = 0; i < b->p->vma.n; i++)
		move_or_map(b, vma(b, i));
	if (b->r->stash)
		add(b, RESTORE_UNMAP, BLOB_OK, SYS_munmap, b->r->stash->start, b->r->stash->len, 0, 0, 0, 0);
	mark_apart(b, MADV_DONTDUMP);
	restore_fill(b);
	mark_apart(b, MADV_DODUMP);
	for (uint32_t i = 0; i < b->p->vma.n; i++)
		set_vma(b, vma(b, i));
	/* The last process is the youngest; in a warm image it is the one that waits for code. */
	if (b->r->held && b->proc + 1 == b->r->m.n[MEM_S_PROC])
		look_ahead(b);
}

uint64_t restore_memory_ops(const struct restore *r, const struct mem_proc *p)
{
	uint64_t n = 12;

	for (uint32_t v = 0; v < p->vma.n; v++)
		n += 7 + MEM_ADVICES + restore_fill_ops(r, &r->m.vma[p->vma.first + v]);
	return n;
}

uint64_t restore_memory_bytes(const struct restore *r, const struct mem_proc *p)
{
	uint64_t n = 0;

	for (uint32_t v = 0; v < p->vma.n; v++)
		n += MEM_VMA_NAME_MAX + 17 + restore_fill_bytes(r, &r->m.vma[p->vma.first + v]);
	return n;
}
