/* The pages file: filled in memory, so that the processes wait for one copy only, and written behind their backs. */
#include "dump/dump.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/mman.h>
#include <unistd.h>

#define HELD (72ULL << 20) /* what is held in memory at most: then the processes wait for the file */

int pages_init(struct pages *g, int fd, struct err *e)
{
	void *data = mmap(NULL, HELD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (data == MAP_FAILED)
		return err_sys(e, ERR_INTERNAL, -errno, "memory for pages");
	madvise(data, HELD, MADV_HUGEPAGE); /* a wish */
	*g = (struct pages){ .fd = fd, .data = data, .size = HELD };
	return 0;
}

void pages_done(struct pages *g)
{
	if (g->data)
		munmap(g->data, g->size);
	fd_close(g->fd);
	*g = (struct pages){ .fd = -1 };
}

int pages_flush(struct pages *g, struct err *e)
{
	int r = fd_write_all(g->fd, g->data, g->have);

	if (r < 0)
		return err_sys(e, r == -ENOSPC || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r, "write pages");
	g->written += g->have;
	g->have = 0;
	return 0;
}

uint64_t pages_end(const struct pages *g)
{
	return g->written + g->have;
}

int pages_room(struct pages *g, size_t n, uint8_t **ret, struct err *e)
{
	int r = 0;

	assert(n <= PAGES_CHUNK);
	if (g->size - g->have < n * PAGE)
		r = pages_flush(g, e);
	if (r == 0)
		*ret = g->data + g->have;
	return r;
}

void pages_added(struct pages *g, size_t n)
{
	g->have += n * PAGE;
	assert(g->have <= g->size);
}

static bool zero_page(const uint8_t *p)
{
	const uint64_t *w = (const uint64_t *)(const void *)p;

	for (size_t i = 0; i < PAGE / 8; i += 8)
		if (w[i] | w[i + 1] | w[i + 2] | w[i + 3] | w[i + 4] | w[i + 5] | w[i + 6] | w[i + 7])
			return false;
	return true;
}

bool pages_zero(const uint8_t *p)
{
	return zero_page(p);
}

int pages_run(struct dump *d, struct mem_range *range, const struct mem_run *run, struct err *e)
{
	struct mem_run *last;
	int r;

	if (range->n) {
		last = image_at(&d->image, MEM_S_RUN, range->first + range->n - 1);
		if (last->file == run->file && last->start + last->len == run->start && last->off + last->len == run->off) {
			last->len += run->len;
			return 0;
		}
	} else {
		range->first = image_count(&d->image, MEM_S_RUN);
	}
	r = image_add(&d->image, MEM_S_RUN, run, NULL, e);
	range->n += r == 0;
	return r;
}

/* One piece of a file that may have holes in it. */
static int add_piece(struct dump *d, int fd, uint64_t at, size_t len, struct mem_range *ret, struct err *e)
{
	size_t n = (len + PAGE - 1) / PAGE, kept = 0;
	uint64_t base;
	uint8_t *to = NULL;
	ssize_t got;
	int r = pages_room(&d->pages, n, &to, e);

	if (r < 0)
		return r;
	got = pread(fd, to, len, (off_t)at);
	if (got < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read a file that has no name");
	memset(to + got, 0, n * PAGE - (size_t)got);
	base = pages_end(&d->pages);
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct mem_run run = { .start = at + i * PAGE, .len = PAGE, .off = base + kept * PAGE };

		if (zero_page(to + i * PAGE))
			continue;
		memmove(to + kept * PAGE, to + i * PAGE, PAGE);
		kept++;
		r = pages_run(d, ret, &run, e);
	}
	pages_added(&d->pages, kept);
	return r;
}

int pages_file(struct dump *d, int fd, uint64_t size, struct mem_range *ret, struct err *e)
{
	uint64_t at = 0;
	int r = 0;

	*ret = (struct mem_range){ 0 };
	while (r == 0 && at < size) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		size_t len;

		if (data < 0 && errno == ENXIO)
			break;
		if (data > 0)
			at = (uint64_t)data & ~(PAGE - 1); /* a filesystem without holes says where we are */
		if (at >= size)
			break;
		len = size - at < PAGES_CHUNK * PAGE ? size - at : PAGES_CHUNK * PAGE;
		r = add_piece(d, fd, at, len, ret, e);
		at += len;
	}
	return r;
}
