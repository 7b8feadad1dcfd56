/*
 * Restores the private pages of a process: copies them from the pages files into the mappings that were just made.
 *
 * Anonymous memory is filled by UFFDIO_COPY, from a window that shows the file: the kernel puts a new page with its
 * content in place, and neither clears it first nor takes a fault for it. That takes 0.5 to 0.6 of the time of preadv.
 * The process fills itself and closes the descriptor before it runs any of its own code, so no access ever waits for a
 * page. Runs of pages that are too small for that, private mappings of files, and everything on a kernel without
 * userfaultfd are read instead. The agent copies a part of one large process at the same time (help.c).
 */
#include "agent/restore/build.h"
#include "agent/restore/help.h"
#include "agent/restore/stash.h"
#include "base/sys.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define IOV_ONCE 1024U /* the kernel's limit for one call */
#define READ_ONCE (1ULL << 30) /* the kernel's limit of bytes for one call: 2 GiB less a page */
#define COPY_LEAST (64U * KIB) /* less than this is read: a registration costs as much as three pages */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* One read: pieces of memory whose bytes are adjacent in a file. */
struct reading {
	struct iovec *iov;
	uint32_t n, file;
	uint64_t off, len;
};

struct filling {
	struct build *b;
	struct reading read;
	struct uffdio_copy *last; /* the last call, which may still be extended */
	uint64_t window; /* offset in its file at which the window begins; UINT64_MAX: it shows nothing */
	uint32_t file; /* the file that the window shows */
	uint64_t left; /* bytes that a process that is helped copies itself */
};

static const struct mem_vma *vma(const struct build *b, uint32_t i)
{
	return &b->r->m.vma[b->p->vma.first + i];
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void read_end(struct build *b, struct reading *g)
{
	if (g->n)
		add(b, RESTORE_READ, BLOB_SIXTH, SYS_preadv, (uint64_t)b->r->pages[g->file],
		    (uint64_t)(uintptr_t)g->iov, g->n, g->off, 0, g->len);
	g->n = 0;
}

/* The vector grows in place: nothing else is allocated from that memory meanwhile. */
static void read_add(struct build *b, struct reading *g, const struct mem_run *x)
{
	struct iovec *last = g->n ? &g->iov[g->n - 1] : NULL;

	if (g->n && (g->file != x->file || g->off + g->len != x->off || g->len + x->len > READ_ONCE)) {
		read_end(b, g);
		last = NULL;
	}
	if (last && (uintptr_t)last->iov_base + last->iov_len == x->start) {
		last->iov_len += x->len;
	} else {
		if (g->n == IOV_ONCE)
			read_end(b, g);
		last = room(b, sizeof(*last));
		*last = (struct iovec){ (void *)(uintptr_t)x->start, x->len };
		if (!g->n)
			*g = (struct reading){ .iov = last, .file = x->file, .off = x->off };
		g->n++;
	}
	g->len += x->len;
}

static void read_run(struct filling *f, struct mem_run x)
{
	uint64_t left = x.len;

	for (; left; left -= x.len, x.start += x.len, x.off += x.len) {
		x.len = left < READ_ONCE ? left : READ_ONCE;
		read_add(f->b, &f->read, &x);
	}
}

/* ---- copying ---------------------------------------------------------------------------------------------------- */

/* Whether the mapping may be filled by UFFDIO_COPY: not if it grows down or may be dropped. */
static bool plain(const struct build *b, const struct mem_vma *m)
{
	return m->kind == MEM_VMA_ANON && !(m->flags & (MEM_VMA_GROWSDOWN | MEM_VMA_DROPPABLE)) &&
	       !stash_find(b->r, (uint32_t)(m - b->r->m.vma));
}

/*
 * Neighbours that the kernel may join, or that get one origin (anon_vma), must be filled by the same method: those from
 * @i on. Returns how many there are, and their bytes.
 */
static uint32_t stretch(const struct build *b, uint32_t i, uint64_t *ret_bytes)
{
	uint32_t n = 0;

	*ret_bytes = 0;
	for (; i + n < b->p->vma.n && plain(b, vma(b, i + n)) && (!n || vma(b, i + n - 1)->end == vma(b, i + n)->start);
	     n++)
		for (uint32_t k = 0; k < vma(b, i + n)->run.n; k++)
			*ret_bytes += b->r->m.run[vma(b, i + n)->run.first + k].len;
	return n;
}

/* Bytes of a process that are copied by UFFDIO_COPY, and not read. */
static uint64_t copied(const struct build *b)
{
	uint64_t bytes, all = 0;

	for (uint32_t i = 0, n; i < b->p->vma.n; i += n ? n : 1) {
		n = stretch(b, i, &bytes);
		all += bytes >= COPY_LEAST ? bytes : 0;
	}
	return all;
}

uint64_t restore_fill_copied(struct restore *r, uint32_t proc)
{
	const struct build b = { .r = r, .p = &r->m.proc[proc], .proc = proc };

	/* The number is taken for a moment that another process with the same descriptors may put its own at. */
	return b.p->state != MEM_ALIVE || restore_shares(r, b.p) ? 0 : copied(&b);
}

void restore_fill_open(struct build *b)
{
	struct uffdio_api api = { .api = UFFD_API };

	b->uffd = -1;
	if (!restore_fill_copied(b->r, b->proc))
		return;
	b->uffd = sys_userfaultfd(O_CLOEXEC | UFFD_USER_MODE_ONLY, b->r->agent->cookie);
	if (b->uffd >= 0)
		b->uffd = restore_high(b->r, b->uffd);
	if (b->uffd >= 0 && sys_ioctl(b->uffd, UFFDIO_API, &api) < 0) {
		fd_close(b->uffd);
		b->uffd = -1;
	}
	b->helped = restore_help_ask(b);
}

static void copy_piece(struct filling *f, const struct mem_run *x)
{
	const uint64_t from = f->b->window + (x->off - f->window);
	struct uffdio_copy *c = f->last;

	if (c && c->dst + c->len == x->start && c->src + c->len == from) {
		c->len += x->len;
		return;
	}
	f->last = c = room(f->b, sizeof(*c));
	*c = (struct uffdio_copy){ .dst = x->start, .src = from, .len = x->len, .mode = UFFDIO_COPY_MODE_DONTWAKE };
	add(f->b, RESTORE_READ, BLOB_OK, SYS_ioctl, (uint64_t)f->b->uffd, UFFDIO_COPY, (uint64_t)(uintptr_t)c, 0, 0, 0);
}

static void copy_run(struct filling *f, struct mem_run x)
{
	uint64_t left = x.len;

	for (; left; left -= x.len, x.start += x.len, x.off += x.len) {
		if (f->window == UINT64_MAX || x.off < f->window || x.off - f->window >= RESTORE_WINDOW) {
			f->window = x.off;
			f->last = NULL;
			add(f->b, RESTORE_READ, BLOB_FIRST, SYS_mmap, f->b->window, RESTORE_WINDOW, PROT_READ,
			    MAP_SHARED | MAP_FIXED, (uint64_t)f->b->r->pages[x.file], x.off);
		}
		x.len = RESTORE_WINDOW - (x.off - f->window);
		if (x.len > left)
			x.len = left;
		copy_piece(f, &x);
	}
}

/*
 * The run whose first page a process that is helped copies before the others: so all its mappings have their origin (anon_vma),
 * in their order, when two begin to copy. It is of the first file that has any.
 */
static uint32_t first_run(const struct restore *r, const struct mem_vma *m)
{
	uint32_t first = 0;

	for (uint32_t k = 1; k < m->run.n; k++)
		if (r->m.run[m->run.first + k].file < r->m.run[m->run.first + first].file)
			first = k;
	return first;
}

static void copy_first(struct filling *f, const struct mem_vma *m, uint32_t file)
{
	struct mem_run x = f->b->r->m.run[m->run.first + first_run(f->b->r, m)];

	f->last = NULL;
	x.len = f->b->r->m.head->page_size;
	if (x.file == file)
		copy_run(f, x);
}

static void copy_firsts(struct filling *f, uint32_t file)
{
	struct build *b = f->b;
	uint64_t bytes;

	f->window = UINT64_MAX;
	for (uint32_t i = 0, n; i < b->p->vma.n; i += n ? n : 1) {
		n = stretch(b, i, &bytes);
		for (uint32_t k = 0; bytes >= COPY_LEAST && k < n; k++)
			if (vma(b, i + k)->run.n)
				copy_first(f, vma(b, i + k), file);
	}
}

static void rest_of(const struct build *b, const struct mem_vma *m, uint32_t file, restore_fill_fn *fn, void *arg)
{
	const uint32_t first = m->run.n ? first_run(b->r, m) : 0;

	for (uint32_t k = 0; k < m->run.n; k++) {
		struct mem_run x = b->r->m.run[m->run.first + k];
		const uint64_t done = k == first ? b->r->m.head->page_size : 0;

		x.start += done;
		x.off += done;
		x.len -= done;
		if (x.file == file && x.len)
			fn(arg, &x);
	}
}

void restore_fill_rest(const struct build *b, restore_fill_fn *fn, void *arg)
{
	uint64_t bytes;

	for (uint32_t file = 0; file < b->r->m.head->page_files; file++)
		for (uint32_t i = 0, n; i < b->p->vma.n; i += n ? n : 1) {
			n = stretch(b, i, &bytes);
			for (uint32_t k = 0; bytes >= COPY_LEAST && k < n; k++)
				rest_of(b, vma(b, i + k), file, fn, arg);
		}
}

static void copy_own(void *arg, const struct mem_run *run)
{
	struct filling *f = arg;
	struct mem_run x = *run;

	if (x.len > f->left)
		x.len = f->left;
	f->left -= x.len;
	if (!x.len)
		return;
	f->last = NULL; /* one call fills one mapping */
	if (f->file != x.file)
		f->window = UINT64_MAX;
	f->file = x.file;
	copy_run(f, x);
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

static void fill_vma(struct filling *f, const struct mem_vma *m, uint32_t file,
		     void (*run)(struct filling *, struct mem_run))
{
	f->last = NULL; /* one call fills one mapping */
	for (uint32_t k = 0; k < m->run.n; k++)
		if (f->b->r->m.run[m->run.first + k].file == file)
			run(f, f->b->r->m.run[m->run.first + k]);
}

/* Fills file by file, so that one window can move along each file. */
static void fill_from(struct filling *f, uint32_t file)
{
	struct build *b = f->b;
	uint64_t bytes;

	f->window = UINT64_MAX;
	for (uint32_t i = 0, n; i < b->p->vma.n; i += n) {
		n = stretch(b, i, &bytes);
		if (b->uffd >= 0 && bytes >= COPY_LEAST) {
			for (uint32_t k = 0; k < n && !b->helped; k++)
				fill_vma(f, vma(b, i + k), file, copy_run);
			continue;
		}
		n = n ? n : 1;
		for (uint32_t k = 0; k < n; k++)
			if (!stash_find(b->r, b->p->vma.first + i + k))
				fill_vma(f, vma(b, i + k), file, read_run);
	}
	read_end(b, &f->read);
}

static void register_all(struct build *b)
{
	uint64_t bytes;

	for (uint32_t i = 0, n; i < b->p->vma.n; i += n ? n : 1) {
		n = stretch(b, i, &bytes);
		if (bytes >= COPY_LEAST) {
			struct uffdio_register *x = room(b, sizeof(*x));

			*x = (struct uffdio_register){ .range = { vma(b, i)->start,
								  vma(b, i + n - 1)->end - vma(b, i)->start },
						       .mode = UFFDIO_REGISTER_MODE_MISSING };
			add(b, RESTORE_READ, BLOB_OK, SYS_ioctl, (uint64_t)b->uffd, UFFDIO_REGISTER,
			    (uint64_t)(uintptr_t)x, 0, 0, 0);
		}
	}
}

void restore_fill(struct build *b)
{
	const bool huge = !(b->p->flags & MEM_PROC_THP_DISABLE);
	struct filling f = { .b = b };

	/* Huge pages are off meanwhile: they would fill holes with pages. */
	if (huge)
		add(b, RESTORE_READ, BLOB_OK, SYS_prctl, PR_SET_THP_DISABLE, 1, 0, 0, 0, 0);
	if (b->uffd >= 0)
		register_all(b);
	if (b->helped) {
		for (uint32_t file = 0; file < b->r->m.head->page_files; file++)
			copy_firsts(&f, file);
		restore_help_begin(b);
		f.last = NULL;
		f.window = UINT64_MAX;
		f.left = restore_help_own(b);
		restore_fill_rest(b, copy_own, &f);
	}
	for (uint32_t file = 0; file < b->r->m.head->page_files; file++)
		fill_from(&f, file);
	if (b->helped)
		restore_help_end(b);
	if (b->uffd >= 0) {
		/* Closing it ends all registrations. */
		add(b, RESTORE_READ, BLOB_OK, SYS_close, (uint64_t)b->uffd, 0, 0, 0, 0, 0);
		add(b, RESTORE_READ, BLOB_OK, SYS_munmap, b->window, RESTORE_WINDOW, 0, 0, 0, 0);
	}
	if (huge)
		add(b, RESTORE_READ, BLOB_OK, SYS_prctl, PR_SET_THP_DISABLE, 0, 0, 0, 0, 0);
}

/* How many calls a mapping needs at most: a run is cut at READ_ONCE and at the ends of windows. */
static uint64_t pieces(const struct restore *r, const struct mem_vma *m)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < m->run.n; i++)
		n += 2 + r->m.run[m->run.first + i].len / RESTORE_WINDOW;
	return n;
}

uint64_t restore_fill_ops(const struct restore *r, const struct mem_vma *m)
{
	return 3 + 2 * pieces(r, m); /* two for the first page */
}

uint64_t restore_fill_bytes(const struct restore *r, const struct mem_vma *m)
{
	return sizeof(struct uffdio_register) + 16 + (1 + pieces(r, m)) * (sizeof(struct uffdio_copy) + 16);
}
