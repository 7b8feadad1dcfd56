/* Content of mappings: which pages are a process's own, and bringing them together in few calls. */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* The kernel's PAGEMAP_SCAN (6.7): older headers do not have it. */
struct scan_region {
	uint64_t start, end, categories;
};
struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, anyof, want;
};
#define SCAN _IOWR('f', 16, struct scan_arg)
#define SCAN_FILE (1U << 2)
#define SCAN_PRESENT (1U << 3)
#define SCAN_SWAPPED (1U << 4)
#define SCAN_ZERO (1U << 5)

#define SCAN_GUARD (1U << 8) /* 6.16 */

#define PM_GUARD (1ULL << 58)
#define PM_PRESENT (1ULL << 63)
#define PM_SWAP (1ULL << 62)
#define PM_FILE (1ULL << 61)

#define PIECES 256U

/* State of copying one mapping. */
struct copy {
	struct dump *d;
	struct proc *p;
	const struct vma *v;
	struct mem_range *run;
	pid_t pid; /* the process whose memory is read */
	int mem; /* its /proc/PID/mem */
	const struct mem_proc *base; /* the process's record in the base image, or NULL */
	struct iovec piece[PIECES];
	size_t pieces, pages;
};

static ssize_t read_pieces(const struct copy *c, uint8_t *to)
{
	ssize_t all = 0, n;

	for (size_t i = 0; i < c->pieces; i++, all += n) {
		n = pread(c->mem, to + all, c->piece[i].iov_len, (off_t)(uintptr_t)c->piece[i].iov_base);
		if (n != (ssize_t)c->piece[i].iov_len)
			return n < 0 ? -errno : all + n;
	}
	return all;
}

static int read_bytes(const struct copy *c, uint8_t *to, size_t len, struct err *e)
{
	struct iovec local = { to, len };
	ssize_t n;
	size_t at = 0;

	/*
	 * process_vm_readv() pins pages. Of a page that a process shares with another since a fork, the kernel then
	 * makes a copy of its own: it would be charged to the sandbox, whose limit could end it.
	 */
	if (c->p->copy || c->v->cow)
		n = read_pieces(c, to);
	else
		n = sys_process_vm_readv(c->pid, &local, 1, c->piece, c->pieces);
	if (n == (ssize_t)len)
		return 0;
	/* Through /proc/PID/mem, pages can be read that the process itself may not read. */
	for (size_t i = 0; i < c->pieces; i++)
		for (size_t k = 0; k < c->piece[i].iov_len; k += PAGE, at += PAGE) {
			n = pread(c->mem, to + at, PAGE, (off_t)((uintptr_t)c->piece[i].iov_base + k));
			if (n < 0)
				return err_sys(e, ERR_INTERNAL, -errno, "read memory of process %u", c->p->pid);
			if (n != (ssize_t)PAGE)
				memset(to + at, 0, PAGE);
		}
	return 0;
}

/* In anonymous memory, a page of zeros need not be stored: a page that is missing reads as zeros. */
static int take_piece(struct copy *c, uint64_t start, size_t n, uint8_t *page, uint8_t **to, uint64_t *off,
		      struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++, page += PAGE) {
		struct mem_run run = { .start = start + i * PAGE, .len = PAGE, .off = *off };

		if (c->v->kind == MEM_VMA_ANON && pages_zero(page))
			continue;
		if (!base_has(c->d, c->base, run.start, page, &run)) {
			if (*to != page)
				memmove(*to, page, PAGE);
			*to += PAGE;
			*off += PAGE;
		}
		r = pages_run(c->d, c->run, &run, e);
	}
	return r;
}

static int flush(struct copy *c, struct err *e)
{
	uint64_t off;
	uint8_t *from, *to, *base;
	int r;

	if (!c->pages)
		return 0;
	r = pages_room(&c->d->pages, c->pages, &base, e);
	if (r == 0)
		r = read_bytes(c, base, c->pages * PAGE, e);
	if (r < 0)
		return r;
	off = pages_end(&c->d->pages);
	from = to = base;
	for (size_t i = 0; r == 0 && i < c->pieces; i++) {
		size_t n = c->piece[i].iov_len / PAGE;

		r = take_piece(c, (uintptr_t)c->piece[i].iov_base, n, from, &to, &off, e);
		from += n * PAGE;
	}
	pages_added(&c->d->pages, (size_t)(to - base) / PAGE);
	c->pieces = c->pages = 0;
	return r;
}

/* Pages from @start to @end are the process's own. */
static int want(struct copy *c, uint64_t start, uint64_t end, struct err *e)
{
	struct iovec *last;
	int r = 0;

	while (r == 0 && start < end) {
		size_t n = (end - start) / PAGE, room = PAGES_CHUNK - c->pages;

		if (!room || c->pieces == PIECES) {
			r = flush(c, e);
			continue;
		}
		n = n < room ? n : room;
		last = c->pieces ? &c->piece[c->pieces - 1] : NULL;
		if (last && (uintptr_t)last->iov_base + last->iov_len == start)
			last->iov_len += n * PAGE;
		else
			c->piece[c->pieces++] = (struct iovec){ (void *)(uintptr_t)start, n * PAGE };
		c->pages += n;
		start += n * PAGE;
	}
	return r;
}

static int by_scan(struct copy *c, int pagemap, struct err *e)
{
	struct scan_region found[256];
	struct scan_arg a = {
		.size = sizeof(a),
		.start = c->v->start,
		.end = c->v->end,
		.vec = (uintptr_t)found,
		.vec_len = ARRAY_LEN(found),
		.inverted = SCAN_FILE | SCAN_ZERO,
		.mask = SCAN_FILE | SCAN_ZERO,
		.anyof = SCAN_PRESENT | SCAN_SWAPPED,
		.want = SCAN_PRESENT,
	};
	int r = 0;

	if (c->v->kind != MEM_VMA_ANON) /* in a mapping of a file, a missing page would show the file */
		a.inverted = a.mask = SCAN_FILE;
	if (c->v->guards) {
		a.inverted |= SCAN_GUARD;
		a.mask |= SCAN_GUARD;
	}
	while (r == 0 && a.start < a.end) {
		int n = sys_ioctl(pagemap, SCAN, &a);

		if (n < 0)
			return n == -ENOTTY || n == -EINVAL ? -EOPNOTSUPP : err_sys(e, ERR_INTERNAL, n, "scan pages");
		for (int i = 0; r == 0 && i < n; i++)
			r = want(c, found[i].start, found[i].end, e);
		if (a.walk_end <= a.start)
			break;
		a.start = a.walk_end;
	}
	return r;
}

static int by_pagemap(struct copy *c, int pagemap, struct err *e)
{
	uint64_t entry[512];
	int r = 0;

	for (uint64_t at = c->v->start; r == 0 && at < c->v->end;) {
		size_t n = (c->v->end - at) / PAGE;
		ssize_t got;

		n = n < ARRAY_LEN(entry) ? n : ARRAY_LEN(entry);
		got = pread(pagemap, entry, n * 8, (off_t)(at / PAGE * 8));
		if (got <= 0)
			return err_sys(e, ERR_INTERNAL, got < 0 ? -errno : -EIO, "read pagemap");
		n = (size_t)got / 8;
		for (size_t i = 0; r == 0 && i < n; i++)
			if (entry[i] & (PM_PRESENT | PM_SWAP) && !(entry[i] & (PM_FILE | PM_GUARD)))
				r = want(c, at + i * PAGE, at + (i + 1) * PAGE, e);
		at += n * PAGE;
	}
	return r;
}

static int copy_vma(struct copy *c, int pagemap, struct err *e)
{
	int r;

	r = by_scan(c, pagemap, e);
	if (r == -EOPNOTSUPP)
		r = by_pagemap(c, pagemap, e);
	return r == 0 ? flush(c, e) : r;
}

static int add_record(struct dump *d, struct proc *p, const struct vma *v, uint32_t *ret, struct err *e)
{
	struct mem_vma rec = {
		.start = v->start,
		.end = v->end,
		.kind = v->kind,
		.prot = v->prot,
		.flags = v->flags,
		.file = v->file,
		.object = v->object,
		.advice = v->advice,
		.offset = v->kind == MEM_VMA_ANON ? 0 : v->offset,
		.name = v->name,
	};
	uint64_t brk = (p->rec.mm[5] + PAGE - 1) & ~(PAGE - 1);
	int r;

	if (rec.kind == MEM_VMA_ANON && rec.start >= (p->rec.mm[4] & ~(PAGE - 1)) && rec.end <= brk)
		rec.flags |= MEM_VMA_HEAP;
	if (!p->rec.vma.n)
		p->rec.vma.first = image_count(&d->image, MEM_S_VMA);
	r = image_add(&d->image, MEM_S_VMA, &rec, ret, e);
	p->rec.vma.n += r == 0;
	return r;
}

/* Whose memory is read: the process's, or that of its fork. */
struct source {
	pid_t pid;
	int mem, pagemap;
	const struct mem_proc *base;
};

static void source_donep(struct source *s)
{
	fd_close(s->mem);
	fd_close(s->pagemap);
}

static int source_open(const struct dump *d, const struct proc *p, pid_t pid, struct source *ret, struct err *e)
{
	char path[64];

	ret->pid = pid;
	ret->base = base_proc(d, p);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	ret->pagemap = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	ret->mem = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (ret->pagemap < 0 || ret->mem < 0)
		return err_sys(e, ERR_INTERNAL, ret->mem < 0 ? ret->mem : ret->pagemap, "memory of process %u", p->pid);
	return 0;
}

static int copy_content(struct dump *d, struct proc *p, const struct vma *v, const struct source *s,
			struct mem_range *run, struct err *e)
{
	struct copy c = { .d = d, .p = p, .v = v, .run = run, .pid = s->pid, .mem = s->mem, .base = s->base };

	return copy_vma(&c, s->pagemap, e);
}

static bool has_content(const struct vma *v)
{
	/*
	 * Memory that the kernel may drop (MAP_DROPPABLE) is left out: it holds random state, which two copies must not
	 * share.
	 */
	return (v->kind == MEM_VMA_ANON && !(v->flags & MEM_VMA_DROPPABLE)) || v->kind == MEM_VMA_FILE ||
	       v->kind == MEM_VMA_OBJECT;
}

static int guards_of(int pagemap, const struct vma *v, struct buf *b)
{
	uint64_t entry[512], place[2] = { 0 };
	int r = 0;

	for (uint64_t at = v->start; r == 0 && at < v->end;) {
		size_t n = (v->end - at) / PAGE;
		ssize_t got;

		n = n < ARRAY_LEN(entry) ? n : ARRAY_LEN(entry);
		got = pread(pagemap, entry, n * 8, (off_t)(at / PAGE * 8));
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		for (size_t i = 0; r == 0 && i < (size_t)got / 8; i++, at += PAGE) {
			if (!(entry[i] & PM_GUARD))
				continue;
			if (place[1] != at) {
				r = place[1] ? buf_add(b, place, sizeof(place)) : 0;
				place[0] = at;
			}
			place[1] = at + PAGE;
		}
	}
	return r == 0 && place[1] ? buf_add(b, place, sizeof(place)) : r;
}

int vma_guards(struct dump *d, struct proc *p, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1U << 20);
	AUTO_CLOSE int pagemap = -1;
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->n_vmas; i++) {
		const size_t was = b.len;

		if (!p->vma[i].guards)
			continue;
		if (pagemap < 0)
			pagemap = sys_openat(p->dir, "pagemap", O_RDONLY | O_CLOEXEC, 0);
		r = pagemap < 0 ? pagemap : guards_of(pagemap, &p->vma[i], &b);
		if (r == 0 && b.len > was && (p->vma[i].flags & MEM_VMA_LOCKED || p->vma[i].shared))
			return proc_refuse(p, e, "has guard pages in memory that is locked or shared");
	}
	if (r < 0)
		return err_sys(e, r == -E2BIG ? ERR_TOO_LARGE : ERR_INTERNAL, r, "guard pages of process %u", p->pid);
	return image_bytes(&d->image, b.data, b.len, &p->rec.guards, e);
}

int vma_dump_early(struct dump *d, struct proc *p, struct err *e)
{
	__attribute__((cleanup(source_donep))) struct source s = { .mem = -1, .pagemap = -1 };
	int r = source_open(d, p, p->host, &s, e);

	for (size_t i = 0; r == 0 && i < p->n_vmas; i++)
		if (p->vma[i].in_source && has_content(&p->vma[i])) {
			r = copy_content(d, p, &p->vma[i], &s, &p->vma[i].run, e);
			p->vma[i].copied = true;
		}
	return r;
}

int vma_dump(struct dump *d, struct proc *p, struct err *e)
{
	__attribute__((cleanup(source_donep))) struct source s = { .mem = -1, .pagemap = -1 };
	int r = source_open(d, p, p->copy ? p->copy : p->host, &s, e);

	for (size_t i = 0; r == 0 && i < p->n_vmas; i++) {
		const struct vma *v = &p->vma[i];
		struct mem_vma *rec;
		uint32_t at;

		r = add_record(d, p, v, &at, e);
		if (r < 0 || !has_content(v))
			continue;
		rec = image_at(&d->image, MEM_S_VMA, at);
		if (v->copied)
			rec->run = v->run;
		else
			r = copy_content(d, p, v, &s, &rec->run, e);
	}
	return r;
}
