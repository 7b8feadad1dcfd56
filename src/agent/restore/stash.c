/*
 * What a holder holds. Each block of an image's pages has the same distance from a 2 MiB border as in its process, so
 * that the kernel can move whole tables of pages. Neighbouring anonymous mappings are one block and one mapping here:
 * moved in one step they share one origin, as before, and the kernel can join them when the program makes them alike.
 *
 * Some mappings are not held, but read by each copy: those that a fork would empty (WIPEONFORK), locked ones (their
 * pages belong to the process in any case), stacks that grow, and shared ones. Of files, only those are held that every
 * user may read and that are the host's own: device and inode are then the same in the sandbox, and so is the name in
 * /proc.
 */
#include "agent/restore/stash.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/mman.h>
#include <unistd.h>

#define BORDER (2ULL * MIB)
#define GUARD (16ULL * MIB)
#define LOWEST (4ULL * GIB)
#define HIGHEST (1ULL << 46)
#define LEN_MAX (256ULL * GIB)
#define CHAIN_MAX GIB /* bytes of neighbouring mappings in one block, with gaps that have no pages */
#define TRIES 4096U
#define READ_ONCE (1ULL << 30)
#define NOT_HELD (MEM_VMA_GROWSDOWN | MEM_VMA_LOCKED | MEM_VMA_DROPPABLE)

struct hold {
	struct mem_image m;
	struct stash *s;
	const int *pages;
	int host;
};

static const struct mem_vma *vma(const struct hold *h, uint32_t i)
{
	return &h->m.vma[i];
}

static bool plain(const struct mem_vma *m)
{
	return !(m->flags & NOT_HELD) && !(m->advice & MEM_VMA_WIPEONFORK);
}

/*
 * Whether the kernel would join two neighbouring mappings that are separate in the process, because their pages have
 * different origins.
 */
static bool joins(const struct mem_vma *a, const struct mem_vma *m)
{
	const uint32_t same = MEM_VMA_NORESERVE;

	if (a->kind != MEM_VMA_ANON || m->kind != MEM_VMA_ANON || a->end != m->start || !plain(a) || !plain(m) ||
	    (a->flags & same) != (m->flags & same))
		return false;
	return !(a->prot == m->prot && a->flags == m->flags && a->advice == m->advice && a->run.n && m->run.n);
}

/* The image's file in the host's own root, if it is the same file and every user may read it; a descriptor or -1. */
static int open_file(const struct hold *h, const struct mem_vma *m, struct stat *ret)
{
	const struct mem_file *f = &h->m.file[m->file];
	struct open_how how = { .flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };
	char path[MEM_PATH_MAX + 1];
	AUTO_CLOSE int fd = -1;

	if (h->host < 0 || f->path.len < 2 || f->path.len > MEM_PATH_MAX)
		return -1;
	memcpy(path, h->m.bytes + f->path.off + 1, f->path.len - 1);
	path[f->path.len - 1] = '\0';
	fd = sys_openat2(h->host, path, &how);
	if (fd < 0 || fstat(fd, ret) < 0 || !S_ISREG(ret->st_mode) || !(ret->st_mode & S_IROTH) ||
	    (uint64_t)ret->st_size != f->size ||
	    (uint64_t)ret->st_mtim.tv_sec * 1000000000ULL + (uint64_t)ret->st_mtim.tv_nsec != f->mtime_ns)
		return -1;
	return TAKE_FD(fd);
}

/* ---- what is held where ----------------------------------------------------------------------------------------- */

/* The number of mappings from @i on that form one block; 0: mapping @i is not held. */
static uint32_t chain(const struct hold *h, const struct mem_proc *p, uint32_t i)
{
	const uint32_t end = p->vma.first + p->vma.n;
	bool pages = vma(h, i)->run.n;
	uint32_t n = 1;

	if (!plain(vma(h, i)))
		return 0;
	if (vma(h, i)->kind == MEM_VMA_FILE)
		return pages;
	if (vma(h, i)->kind != MEM_VMA_ANON)
		return 0;
	while (i + n < end && joins(vma(h, i + n - 1), vma(h, i + n)) &&
	       vma(h, i + n)->end - vma(h, i)->start <= CHAIN_MAX) {
		pages |= vma(h, i + n)->run.n;
		n++;
	}
	return pages ? n : 0;
}

static void plan(struct hold *h)
{
	const uint64_t page = h->m.head->page_size;
	struct stash *s = h->s;
	uint64_t at = 0;

	for (uint32_t p = 0; p < h->m.n[MEM_S_PROC]; p++) {
		const struct mem_proc *x = &h->m.proc[p];

		for (uint32_t i = x->vma.first, n; x->state == MEM_ALIVE && i < x->vma.first + x->vma.n;
		     i += n ? n : 1) {
			struct stash_block *b = &s->block[s->n];

			n = chain(h, x, i);
			if (!n)
				continue;
			*b = (struct stash_block){ .start = vma(h, i)->start,
						   .first = i,
						   .n = n,
						   .used = true,
						   .file = vma(h, i)->kind == MEM_VMA_FILE };
			b->len = vma(h, i + n - 1)->end - b->start;
			/* At least one page is left between two blocks, or the kernel would join them here. */
			at += page + (b->start - at - page) % BORDER;
			b->at = at;
			at += b->len;
			for (uint32_t k = 0; k < n; k++)
				s->of[i + k] = s->n;
			s->n++;
		}
	}
	s->len = (at + BORDER) & ~(BORDER - 1);
}

/* The first address from @at on where no process of the image has anything. */
static uint64_t clear_of_all(const struct hold *h, uint64_t at, uint64_t len)
{
	for (uint32_t i = 0; i < h->m.n[MEM_S_VMA]; i++) {
		if (vma(h, i)->start >= at + len + GUARD || vma(h, i)->end + GUARD <= at)
			continue;
		at = (vma(h, i)->end + GUARD + BORDER - 1) & ~(BORDER - 1);
		i = UINT32_MAX; /* start again with the first mapping */
	}
	return at;
}

static int reserve(struct hold *h, struct err *e)
{
	struct stash *s = h->s;
	uint64_t at = LOWEST;

	if (s->len > LEN_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "the image has too much address space");
	for (unsigned i = 0; i < TRIES; i++, at += GIB) {
		void *got;

		at = clear_of_all(h, at, s->len);
		if (at + s->len > HIGHEST)
			break;
		got = mmap((void *)(uintptr_t)at, s->len, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (got == (void *)(uintptr_t)at) {
			s->start = at;
			for (uint32_t k = 0; k < s->n; k++)
				s->block[k].at += at;
			return 0;
		}
		if (got != MAP_FAILED)
			munmap(got, s->len);
	}
	return err_set(e, ERR_UNSUPPORTED, -ENOMEM, "no address range is free in all processes of the image");
}

/* ---- pages ------------------------------------------------------------------------------------------------------ */

static int fill_run(const struct hold *h, const struct mem_run *x, uint64_t to)
{
	for (uint64_t done = 0; done < x->len;) {
		uint64_t left = x->len - done;
		ssize_t n = pread(h->pages[x->file], (void *)(uintptr_t)(to + done),
				  left < READ_ONCE ? left : READ_ONCE, (off_t)(x->off + done));

		if (n <= 0)
			return n < 0 ? -errno : -EBADMSG;
		done += (uint64_t)n;
	}
	return 0;
}

static int map_block(const struct hold *h, struct stash_block *b)
{
	const struct mem_vma *m = vma(h, b->first);
	int flags = MAP_PRIVATE | MAP_FIXED | (m->flags & MEM_VMA_NORESERVE ? MAP_NORESERVE : 0);
	AUTO_CLOSE int fd = -1;
	struct stat st;
	void *got;

	if (b->file) {
		fd = open_file(h, m, &st);
		if (fd < 0)
			return -ENOENT;
		b->dev = st.st_dev;
		b->ino = st.st_ino;
	}
	got = mmap((void *)(uintptr_t)b->at, b->len, PROT_READ | PROT_WRITE, flags | (b->file ? 0 : MAP_ANONYMOUS), fd,
		   b->file ? (off_t)m->offset : 0);
	return got == MAP_FAILED ? -errno : 0;
}

static int hold_block(struct hold *h, struct stash_block *b)
{
	int r = map_block(h, b);

	for (uint32_t i = b->first; r == 0 && i < b->first + b->n; i++)
		for (uint32_t k = 0; r == 0 && k < vma(h, i)->run.n; k++) {
			const struct mem_run *x = &h->m.run[vma(h, i)->run.first + k];

			r = x->file < h->s->n_pages ? fill_run(h, x, b->at + (x->start - b->start)) : -EBADMSG;
			h->s->bytes += x->len;
		}
	/*
	 * The protection of several anonymous mappings is set when they are moved; that of a file's mapping must be set
	 * here.
	 */
	if (r == 0 && b->file && mprotect((void *)(uintptr_t)b->at, b->len, (int)vma(h, b->first)->prot) < 0)
		r = -errno;
	return r;
}

/* Gives up a block: copies of the holder then read its pages themselves. */
static int give_back(struct hold *h, const struct stash_block *b)
{
	void *got = mmap((void *)(uintptr_t)b->at, b->len, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	for (uint32_t i = 0; i < b->n; i++)
		h->s->of[b->first + i] = MEM_NONE;
	return got == MAP_FAILED ? -errno : 0;
}

static int hold_all(struct hold *h, struct err *e)
{
	for (uint32_t i = 0; i < h->s->n; i++) {
		struct stash_block *b = &h->s->block[i];
		int r = hold_block(h, b);

		if (r < 0 && b->file)
			r = give_back(h, b);
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "read the image's memory");
	}
	return 0;
}

static int look_at(struct stash *s, int meta, const int *pages, struct err *e)
{
	bool ok = fstat(meta, &s->meta) == 0 && s->meta.st_size >= (off_t)sizeof(struct mem_head) &&
		  s->meta.st_size <= (off_t)MEM_META_MAX;

	for (uint32_t i = 0; ok && i < s->n_pages; i++)
		ok = fstat(pages[i], &s->pages[i]) == 0;
	return ok ? 0 : err_set(e, ERR_INVALID, -EBADMSG, "memory image: invalid list of files");
}

int stash_hold(int meta, const int *pages, uint32_t n_pages, int host, struct stash *s, struct err *e)
{
	struct hold h = { .s = s, .pages = pages, .host = host };
	struct restore own = { 0 };
	void *at;
	int r;

	*s = (struct stash){ .n_pages = n_pages };
	r = look_at(s, meta, pages, e);
	if (r == 0)
		r = restore_find_vdso(&own, e);
	if (r < 0)
		return r;
	memcpy(s->vdso, own.vdso, sizeof(s->vdso));
	s->n_vdso = own.n_vdso;
	at = mmap(NULL, (size_t)s->meta.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, meta, 0);
	if (at == MAP_FAILED)
		return err_sys(e, ERR_INTERNAL, -errno, "map the image");
	r = mem_check(at, (size_t)s->meta.st_size, &h.m, e);
	if (r == 0 && h.m.head->page_files != n_pages)
		r = err_set(e, ERR_INVALID, -EBADMSG, "memory image: got %u pages files", n_pages);
	if (r == 0) {
		s->block = calloc(h.m.n[MEM_S_VMA] + 1, sizeof(*s->block));
		s->of = malloc((h.m.n[MEM_S_VMA] + 1) * sizeof(*s->of));
		if (!s->block || !s->of)
			r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to hold an image");
	}
	if (r == 0) {
		memset(s->of, 0xff, (h.m.n[MEM_S_VMA] + 1) * sizeof(*s->of));
		plan(&h);
		r = s->n ? reserve(&h, e) : err_set(e, ERR_UNSUPPORTED, -ENODATA, "the image is empty");
	}
	if (r == 0)
		r = hold_all(&h, e);
	munmap(at, (size_t)s->meta.st_size);
	return r;
}

/* ---- in the agent ----------------------------------------------------------------------------------------------- */

/* Whether the file is unchanged, by the time of its last change of any kind (ctime). */
static bool same(int fd, const struct stat *was)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == was->st_dev && st.st_ino == was->st_ino &&
	       st.st_size == was->st_size && st.st_ctim.tv_sec == was->st_ctim.tv_sec &&
	       st.st_ctim.tv_nsec == was->st_ctim.tv_nsec;
}

bool stash_fits(struct stash *s, const struct restore *r, int meta, const int *pages)
{
	bool fits = same(meta, &s->meta) && r->m.head->page_files == s->n_pages;

	for (uint32_t i = 0; fits && i < s->n_pages; i++)
		fits = same(pages[i], &s->pages[i]);
	for (uint32_t i = 0; fits && i < s->n; i++) {
		struct stash_block *b = &s->block[i];
		struct stat st;

		if (b->file)
			b->used = s->of[b->first] != MEM_NONE && fstat(r->file[r->m.vma[b->first].file], &st) == 0 &&
				  st.st_dev == b->dev && st.st_ino == b->ino;
	}
	return fits;
}

const struct stash_block *stash_find(const struct restore *r, uint32_t i)
{
	const struct stash *s = r->stash;
	const struct stash_block *b = s && s->of[i] != MEM_NONE ? &s->block[s->of[i]] : NULL;

	return b && b->used ? b : NULL;
}

void stash_drop(struct agent *a)
{
	struct stash *s = a->stash;

	if (!s)
		return;
	a->stash = NULL;
	munmap((void *)(uintptr_t)s->start, s->len);
	free(s->block);
	free(s->of);
}
