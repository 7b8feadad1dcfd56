/* The sums of pieces of files, and a table of those that are known, by inode number. */
#include "layers/digests.h"
#include "base/base.h"
#include "base/piece.h"
#include "layers/tree.h"

#include <unistd.h>

#define BLOCK 4096U

struct file {
	uint64_t ino, size, pieces;
	uint8_t (*sum)[SHA256_SIZE];
};

struct digests {
	uint32_t piece;
	struct file *slot; /* by inode number; those without ->sum are free */
	size_t count, room; /* slots: a power of two, more than twice the count */
	uint64_t pieces;
};

static void add_u64(struct sha256 *s, uint64_t v)
{
	sha256_add(s, &v, sizeof(v));
}

static bool all_zero(const char *p, size_t n)
{
	return !p[0] && (n == 1 || !memcmp(p, p + 1, n - 1));
}

static void sum_part(struct sha256 *s, const char *data, size_t len, uint64_t at, uint64_t *run)
{
	size_t from = 0;

	for (size_t i = 0; i < len; i += BLOCK) {
		size_t n = len - i < BLOCK ? len - i : BLOCK;
		bool empty = all_zero(data + i, n);

		if (!empty && *run == UINT64_MAX) {
			*run = at + i;
			add_u64(s, *run);
			from = i;
		} else if (empty && *run != UINT64_MAX) {
			sha256_add(s, data + from, i - from);
			add_u64(s, at + i - *run);
			*run = UINT64_MAX;
		}
	}
	if (*run != UINT64_MAX)
		sha256_add(s, data + from, len - from);
}

int64_t digests_data(int fd, uint64_t at, uint64_t end)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? (int64_t)end : -errno;
	return (uint64_t)data < end ? (int64_t)((uint64_t)data - (uint64_t)data % BLOCK) : (int64_t)end;
}

static int sum_range(struct sha256 *s, int fd, uint64_t at, uint64_t end, const int *stop, char *buf)
{
	uint64_t run = UINT64_MAX;

	while (at < end) {
		int64_t data = digests_data(fd, at, end);
		ssize_t n;

		if (data < 0)
			return (int)data;
		if ((uint64_t)data > at && run != UINT64_MAX) {
			add_u64(s, at - run);
			run = UINT64_MAX;
		}
		at = (uint64_t)data;
		if (at == end)
			break;
		n = pread(fd, buf, end - at < TREE_BUF ? (size_t)(end - at) : TREE_BUF, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE;
		if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		sum_part(s, buf, (size_t)n, at, &run);
		at += (uint64_t)n;
	}
	if (run != UINT64_MAX)
		add_u64(s, end - run);
	add_u64(s, UINT64_MAX);
	return 0;
}

int digests_sum(struct sha256 *s, int fd, uint64_t size, const int *stop, char *buf)
{
	return sum_range(s, fd, 0, size, stop, buf);
}

int digests_piece(int fd, uint64_t size, uint64_t n, uint32_t piece, const int *stop, char *buf,
		  uint8_t ret[SHA256_SIZE])
{
	uint64_t at = n * piece, left = size - at;
	struct sha256 s;
	int r;

	sha256_init(&s);
	r = sum_range(&s, fd, at, at + (left < piece ? left : piece), stop, buf);
	if (r == 0)
		sha256_end(&s, ret);
	return r;
}

void digests_bytes(const char *data, size_t len, uint8_t (*ret)[SHA256_SIZE])
{
	for (size_t at = 0; at < len; at += DIGESTS_PIECE, ret++)
		piece_sum(data + at, len - at < DIGESTS_PIECE ? len - at : DIGESTS_PIECE, *ret);
}

int digests_pieces(int fd, uint64_t size, uint64_t at, const int *stop, char *buf, uint8_t (*ret)[SHA256_SIZE])
{
	const size_t len = size - at < TREE_BUF ? (size_t)(size - at) : TREE_BUF;
	size_t done = 0;

	static_assert(TREE_BUF == DIGESTS_AT_ONCE * DIGESTS_PIECE, "one buffer is filled");
	while (done < len) {
		ssize_t n = pread(fd, buf + done, len - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE;
		done += (size_t)n;
	}
	if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
		return -ECANCELED;
	digests_bytes(buf, len, ret);
	return (int)((len + DIGESTS_PIECE - 1) / DIGESTS_PIECE);
}

bool digests_is_none(const uint8_t sum[SHA256_SIZE])
{
	return all_zero((const char *)sum, SHA256_SIZE);
}

struct digests *digests_new(uint32_t piece)
{
	struct digests *d = calloc(1, sizeof(*d));

	if (d)
		d->piece = piece;
	return d;
}

void digests_free(struct digests *d)
{
	for (size_t i = 0; d && i < d->room; i++)
		free(d->slot[i].sum);
	free(d ? d->slot : NULL);
	free(d);
}

/*
 * Finds the slot of a file, or the free one where it belongs. One inode number may have several entries, of different
 * sizes.
 */
static struct file *find(const struct digests *d, uint64_t ino, uint64_t size)
{
	size_t at = (size_t)(ino * 0x9e3779b97f4a7c15ULL >> 20);

	for (;; at++) {
		struct file *f = &d->slot[at & (d->room - 1)];

		if (!f->sum || (f->ino == ino && f->size == size))
			return f;
	}
}

static bool grow(struct digests *d)
{
	struct digests more = *d;

	if (d->count * 2 + 2 <= d->room)
		return true;
	more.room = d->room ? d->room * 2 : 64;
	more.slot = calloc(more.room, sizeof(*more.slot));
	if (!more.slot)
		return false;
	for (size_t i = 0; i < d->room; i++)
		if (d->slot[i].sum)
			*find(&more, d->slot[i].ino, d->slot[i].size) = d->slot[i];
	free(d->slot);
	*d = more;
	return true;
}

uint8_t (*digests_add(struct digests *d, uint64_t ino, uint64_t size))[SHA256_SIZE]
{
	uint64_t pieces = d ? size / d->piece + !!(size % d->piece) : 0;
	struct file f = { .ino = ino, .size = size, .pieces = pieces }, *to;

	if (!d || !pieces || d->count == DIGESTS_FILES || pieces > DIGESTS_PIECES - d->pieces || !grow(d))
		return NULL;
	to = find(d, ino, size);
	/* Another thread may be filling in those, so a second request gets none. */
	f.sum = to->sum ? NULL : calloc((size_t)pieces, SHA256_SIZE);
	if (!f.sum)
		return NULL;
	*to = f;
	d->count++;
	d->pieces += pieces;
	return f.sum;
}

bool digests_find(const struct digests *d, uint64_t ino, uint64_t size, uint64_t n, uint8_t ret[SHA256_SIZE])
{
	const struct file *f = d && d->room ? find(d, ino, size) : NULL;

	if (!f || !f->sum || n >= f->pieces)
		return false;
	memcpy(ret, f->sum[n], SHA256_SIZE);
	return true;
}
