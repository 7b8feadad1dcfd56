/*
 * The image that the sandbox was restored from. A page that has the same bytes as there need not be written: the new
 * image points to it (a delta). Pages are compared by content, at the address where the process had them: memory that
 * was filled from an image looks like any other memory to the kernel, so there is no cheaper mark.
 */
#include "memory/dump.h"
#include "base/base.h"

#include <sys/mman.h>
#include <unistd.h>

struct base {
	struct mem_image m;
	struct {
		const uint8_t *data;
		uint64_t len;
	} pages[MEM_PAGE_FILES];
	/* Position of the last page that was found: the next one is probably near it. */
	const struct mem_proc *of;
	uint32_t vma, run; /* index of a mapping of ->of, and of a run of that mapping */
};

static const void *map_file(int fd, uint64_t max, uint64_t *ret_len)
{
	struct stat st;
	void *at;

	if (fstat(fd, &st) < 0 || st.st_size <= 0 || (uint64_t)st.st_size > max)
		return NULL;
	at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	*ret_len = (uint64_t)st.st_size;
	return at == MAP_FAILED ? NULL : at;
}

int base_open(struct dump *d, int meta, struct err *e)
{
	struct base *b = calloc(1, sizeof(*b));
	const void *data;
	uint64_t len;
	int r;

	if (!b)
		return err_set(e, ERR_INTERNAL, -ENOMEM, "no memory");
	data = map_file(meta, MEM_META_MAX, &len);
	if (!data)
		return err_sys(e, ERR_INTERNAL, -EIO, "map the image that it was restored from");
	r = mem_check(data, len, &b->m, e);
	if (r < 0)
		return r;
	if (b->m.head->page_files > d->ancestors)
		return err_set(e, ERR_INTERNAL, -EBADMSG,
			       "the image that it was restored from is itself based on others");
	/* An image without pages of its own has an empty file, which cannot be mapped. */
	for (uint32_t i = 0; i < b->m.head->page_files; i++)
		b->pages[i].data = map_file(d->ancestor[i].fd, UINT64_MAX, &b->pages[i].len);
	d->base = b;
	return 0;
}

const struct mem_proc *base_proc(const struct dump *d, const struct proc *p)
{
	for (size_t hops = 0; d->base && hops < d->n_procs; hops++) {
		for (uint32_t i = 0; i < d->base->m.n[MEM_S_PROC]; i++)
			if (d->base->m.proc[i].pid == p->pid)
				return &d->base->m.proc[i];
		if (!p->parent) /* the agent, or a process without a parent */
			break;
		p = &d->proc[p->parent];
	}
	return NULL;
}

/* Sets the position to the first mapping that ends after @at, and to its first run that ends after @at. */
static void seek(struct base *b, const struct mem_proc *of, uint64_t at)
{
	uint32_t low = 0, high = of->vma.n;
	const struct mem_vma *v;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (b->m.vma[of->vma.first + mid].end <= at)
			low = mid + 1;
		else
			high = mid;
	}
	b->of = of;
	b->vma = low;
	b->run = 0;
	if (low == of->vma.n)
		return;
	v = &b->m.vma[of->vma.first + low];
	low = 0;
	for (high = v->run.n; low < high;) {
		uint32_t mid = low + (high - low) / 2;
		const struct mem_run *x = &b->m.run[v->run.first + mid];

		if (x->start + x->len <= at)
			low = mid + 1;
		else
			high = mid;
	}
	b->run = low;
}

static const struct mem_run *found(const struct base *b, uint64_t at)
{
	const struct mem_vma *v = b->vma < b->of->vma.n ? &b->m.vma[b->of->vma.first + b->vma] : NULL;
	const struct mem_run *x = v && b->run < v->run.n ? &b->m.run[v->run.first + b->run] : NULL;

	return x && at >= x->start && at < x->start + x->len ? x : NULL;
}

/*
 * Compares two pages by words: musl's memcmp() takes a byte at a time, and all memory is compared while the sandbox is
 * held.
 */
static bool same_page(const uint8_t *one, const uint8_t *other)
{
	const uint64_t *a = (const uint64_t *)(const void *)one, *b = (const uint64_t *)(const void *)other;

	for (size_t i = 0; i < PAGE / 8; i += 8)
		if ((a[i] ^ b[i]) | (a[i + 1] ^ b[i + 1]) | (a[i + 2] ^ b[i + 2]) | (a[i + 3] ^ b[i + 3]) |
		    (a[i + 4] ^ b[i + 4]) | (a[i + 5] ^ b[i + 5]) | (a[i + 6] ^ b[i + 6]) | (a[i + 7] ^ b[i + 7]))
			return false;
	return true;
}

bool base_has(struct dump *d, const struct mem_proc *of, uint64_t at, const uint8_t *page, struct mem_run *ret)
{
	struct base *b = d->base;
	const struct mem_run *x = NULL;
	uint64_t off;

	if (!of)
		return false;
	if (b->of == of)
		x = found(b, at);
	if (!x) {
		seek(b, of, at);
		x = found(b, at);
	}
	if (!x)
		return false;
	off = x->off + (at - x->start);
	if (!b->pages[x->file].data || off + PAGE > b->pages[x->file].len ||
	    !same_page(b->pages[x->file].data + off, page))
		return false;
	*ret = (struct mem_run){ .start = at, .len = PAGE, .file = x->file + 1, .off = off };
	return true;
}
