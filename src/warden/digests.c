#include "warden/digests.h"
#include "base/base.h"
#include "warden/tree.h"

#include <unistd.h>

#define BLOCK 4096U

struct file {
	uint64_t ino, size, pieces;
	uint8_t (*sum)[SHA256_SIZE];
};

struct digests {
	struct file file[DIGESTS_FILES];
	unsigned count;
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

/* Where data begins again, at @at or later: @end when nowhere before it. */
static int64_t find_data(int fd, uint64_t at, uint64_t end)
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
		int64_t data = find_data(fd, at, end);
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

int digests_piece(int fd, uint64_t size, uint64_t n, const int *stop, char *buf, uint8_t ret[SHA256_SIZE])
{
	uint64_t at = n * DIGESTS_PIECE, left = size - at;
	struct sha256 s;
	int r;

	sha256_init(&s);
	r = sum_range(&s, fd, at, at + (left < DIGESTS_PIECE ? left : DIGESTS_PIECE), stop, buf);
	if (r == 0)
		sha256_end(&s, ret);
	return r;
}

void digests_bytes(const char *data, size_t len, uint64_t at, uint8_t ret[SHA256_SIZE])
{
	uint64_t run = UINT64_MAX;
	struct sha256 s;

	sha256_init(&s);
	sum_part(&s, data, len, at, &run);
	if (run != UINT64_MAX)
		add_u64(&s, at + len - run);
	add_u64(&s, UINT64_MAX);
	sha256_end(&s, ret);
}

static bool is_dense(const char *data, size_t len)
{
	for (size_t i = 0; i < len; i += BLOCK)
		if (all_zero(data + i, len - i < BLOCK ? len - i : BLOCK))
			return false;
	return true;
}

void digests_bytes_two(const char *const data[2], size_t len, const uint64_t at[2], uint8_t *const ret[2])
{
	struct sha256 s[2];

	if (!len || !is_dense(data[0], len) || !is_dense(data[1], len)) {
		for (unsigned i = 0; i < 2; i++)
			digests_bytes(data[i], len, at[i], ret[i]);
		return;
	}
	for (unsigned i = 0; i < 2; i++) {
		sha256_init(&s[i]);
		add_u64(&s[i], at[i]);
	}
	sha256_add_two(&s[0], data[0], &s[1], data[1], len);
	for (unsigned i = 0; i < 2; i++) {
		add_u64(&s[i], len);
		add_u64(&s[i], UINT64_MAX);
		sha256_end(&s[i], ret[i]);
	}
}

struct digests *digests_new(void)
{
	return calloc(1, sizeof(struct digests));
}

void digests_free(struct digests *d)
{
	for (unsigned i = 0; d && i < d->count; i++)
		free(d->file[i].sum);
	free(d);
}

uint8_t (*digests_add(struct digests *d, uint64_t ino, uint64_t size))[SHA256_SIZE]
{
	uint64_t pieces = size / DIGESTS_PIECE + !!(size % DIGESTS_PIECE);
	struct file f = { .ino = ino, .size = size, .pieces = pieces };

	if (!d || d->count == DIGESTS_FILES || pieces > DIGESTS_PIECES - d->pieces)
		return NULL;
	f.sum = calloc((size_t)pieces, SHA256_SIZE);
	if (!f.sum)
		return NULL;
	d->file[d->count++] = f;
	d->pieces += pieces;
	return f.sum;
}

bool digests_find(const struct digests *d, uint64_t ino, uint64_t size, uint64_t n, uint8_t ret[SHA256_SIZE])
{
	for (unsigned i = 0; d && i < d->count; i++) {
		const struct file *f = &d->file[i];

		if (f->ino != ino || f->size != size || n >= f->pieces)
			continue;
		memcpy(ret, f->sum[n], SHA256_SIZE);
		return true;
	}
	return false;
}
