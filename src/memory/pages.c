/* The pages file: filled in memory, so that the processes wait for one copy only; writer.c brings it to the disk. */
#include "memory/dump.h"
#include "base/base.h"
#include "base/piece.h"
#include "base/sys.h"

#include <unistd.h>

#define EAGER (512U << 10) /* bytes after which the buffer is passed to an idle writer */

/* Passes the first @len bytes of the buffer to the writer, and copies the rest to a new buffer. */
static void hand_on(struct pages *g, size_t len)
{
	uint8_t *rest = NULL;

	if (!len)
		return;
	if (len < g->have && writer_buffer(g->writer, &rest) < 0)
		len = g->have; /* the file has failed already */
	if (rest)
		memcpy(rest, g->data + len, g->have - len);
	writer_put(g->writer, g->fd, g->data, len);
	g->before += len;
	g->have -= len;
	g->data = rest;
}

void pages_flush(struct pages *g)
{
	hand_on(g, g->have);
}

static int write_error(int r, struct err *e)
{
	return err_sys(e, r == -ENOSPC || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r, "write pages");
}

int pages_finish(struct pages *g, uint8_t ret_sum[SHA256_SIZE], struct err *e)
{
	int r = writer_end(g->writer, ret_sum);

	return r < 0 ? write_error(r, e) : 0;
}

uint64_t pages_end(const struct pages *g)
{
	return g->before + g->have;
}

int pages_room(struct pages *g, size_t n, uint8_t **ret, struct err *e)
{
	int r = 0;

	static_assert(PAGES_CHUNK * PAGE <= WRITER_BUFFER, "an empty one has room");
	assert(n <= PAGES_CHUNK);
	if (WRITER_BUFFER - g->have < n * PAGE || (g->have >= EAGER && writer_idle(g->writer)))
		hand_on(g, g->have - g->have % PIECE_SIZE); /* so that their sums can be taken in any order */
	if (!g->data)
		r = writer_buffer(g->writer, &g->data);
	if (r < 0)
		return write_error(r, e);
	*ret = g->data + g->have;
	return 0;
}

void pages_added(struct pages *g, size_t n)
{
	g->have += n * PAGE;
	assert(g->have <= WRITER_BUFFER);
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
		if (last->file == run->file && last->start + last->len == run->start &&
		    last->off + last->len == run->off) {
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

/* Adds a piece of a file, which may have holes. */
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
		return err_sys(e, ERR_INTERNAL, -errno, "read a file without a name");
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
			at = (uint64_t)data & ~(PAGE - 1); /* no change on a filesystem without holes */
		if (at >= size)
			break;
		len = size - at < PAGES_CHUNK * PAGE ? size - at : PAGES_CHUNK * PAGE;
		r = add_piece(d, fd, at, len, ret, e);
		at += len;
	}
	return r;
}
