#include "warden/digests.h"
#include "base/base.h"
#include "base/sys.h"
#include "warden/tree.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096U

struct file {
	int fd;
	uint64_t ino, size;
	uint64_t there; /* bytes that are as they will be */
	uint64_t pieces, taken; /* taken: given to somebody to sum up */
	uint8_t (*sum)[SHA256_SIZE];
};

struct digests {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	const int *stop;
	char *buf; /* the thread's */
	struct file file[DIGESTS_FILES];
	unsigned count, at; /* at: the first that is not all taken */
	uint64_t pieces;
	bool started; /* ->thread: with the first file */
	bool open; /* the last file may be told more of */
	bool end;
	int failed;
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

static int sum_range(struct sha256 *s, int fd, uint64_t at, uint64_t end, bool dense, const int *stop, char *buf)
{
	uint64_t run = UINT64_MAX;

	while (at < end) {
		int64_t data = dense ? (int64_t)at : find_data(fd, at, end);
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
	return sum_range(s, fd, 0, size, false, stop, buf);
}

static int sum_piece(int fd, uint64_t size, uint64_t n, bool dense, const int *stop, char *buf,
		     uint8_t ret[SHA256_SIZE])
{
	uint64_t at = n * DIGESTS_PIECE, left = size - at;
	struct sha256 s;
	int r;

	sha256_init(&s);
	r = sum_range(&s, fd, at, at + (left < DIGESTS_PIECE ? left : DIGESTS_PIECE), dense, stop, buf);
	if (r == 0)
		sha256_end(&s, ret);
	return r;
}

int digests_piece(int fd, uint64_t size, uint64_t n, const int *stop, char *buf, uint8_t ret[SHA256_SIZE])
{
	return sum_piece(fd, size, n, false, stop, buf, ret);
}

/* With the lock held. False: none is ready. */
static bool take(struct digests *d, struct file **ret, uint64_t *ret_n)
{
	while (d->at < d->count) {
		struct file *f = &d->file[d->at];
		uint64_t end = (f->taken + 1) * DIGESTS_PIECE;

		if (f->taken == f->pieces) {
			d->at++;
			continue;
		}
		if (f->there < (end < f->size ? end : f->size))
			return false;
		*ret = f;
		*ret_n = f->taken++;
		return true;
	}
	return false;
}

/* With the lock held, which is let go meanwhile. */
static bool sum_one(struct digests *d, char *buf)
{
	struct file *f;
	uint64_t n;
	int r;

	if (d->failed || !take(d, &f, &n))
		return false;
	pthread_mutex_unlock(&d->lock);
	/* To look for holes would wait for who writes. */
	r = sum_piece(f->fd, f->size, n, true, d->stop, buf, f->sum[n]);
	pthread_mutex_lock(&d->lock);
	if (r < 0)
		d->failed = r;
	return true;
}

static void *digests_main(void *arg)
{
	struct digests *d = arg;

	pthread_mutex_lock(&d->lock);
	for (;;) {
		if (sum_one(d, d->buf))
			continue;
		if (d->end || d->failed)
			break;
		pthread_cond_wait(&d->moved, &d->lock);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

static void destroy(struct digests *d)
{
	for (unsigned i = 0; i < d->count; i++) {
		fd_close(d->file[i].fd);
		free(d->file[i].sum);
	}
	pthread_cond_destroy(&d->moved);
	pthread_mutex_destroy(&d->lock);
	free(d->buf);
	free(d);
}

struct digests *digests_new(const int *stop)
{
	struct digests *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->stop = stop;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->moved, NULL);
	return d;
}

/* What is not there yet will never be. */
static void finish(struct digests *d, char *buf)
{
	pthread_mutex_lock(&d->lock);
	d->end = true;
	pthread_cond_signal(&d->moved);
	while (buf && sum_one(d, buf))
		;
	pthread_mutex_unlock(&d->lock);
	if (d->started)
		pthread_join(d->thread, NULL);
	d->started = false;
}

void digests_free(struct digests *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->failed = d->failed ? d->failed : -ECANCELED;
	pthread_mutex_unlock(&d->lock);
	finish(d, NULL);
	destroy(d);
}

static bool start(struct digests *d)
{
	if (!d->buf)
		d->buf = malloc(TREE_BUF);
	if (!d->started)
		d->started = d->buf && pthread_create(&d->thread, NULL, digests_main, d) == 0;
	return d->started;
}

void digests_file(struct digests *d, int fd, uint64_t size)
{
	uint64_t pieces = size / DIGESTS_PIECE + !!(size % DIGESTS_PIECE);
	struct file f = { .size = size, .pieces = pieces };
	struct stat st;

	if (!d)
		return;
	d->open = false;
	if (size <= DIGESTS_PIECE || !start(d))
		return;
	pthread_mutex_lock(&d->lock);
	if (d->count < DIGESTS_FILES && pieces <= DIGESTS_PIECES - d->pieces && fstat(fd, &st) == 0) {
		f.ino = st.st_ino;
		f.sum = malloc((size_t)pieces * SHA256_SIZE);
		f.fd = f.sum ? sys_fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
		d->open = f.fd >= 0;
	}
	if (d->open) {
		d->file[d->count++] = f;
		d->pieces += pieces;
	} else {
		free(f.sum);
	}
	pthread_mutex_unlock(&d->lock);
}

void digests_more(struct digests *d, uint64_t at)
{
	if (!d || !d->open)
		return;
	pthread_mutex_lock(&d->lock);
	d->file[d->count - 1].there = at;
	pthread_cond_signal(&d->moved);
	pthread_mutex_unlock(&d->lock);
}

void digests_end(struct digests *d, char *buf)
{
	if (d)
		finish(d, buf);
}

bool digests_find(const struct digests *d, uint64_t ino, uint64_t size, uint64_t n, uint8_t ret[SHA256_SIZE])
{
	if (!d || d->failed)
		return false;
	for (unsigned i = 0; i < d->count; i++) {
		const struct file *f = &d->file[i];

		if (f->ino != ino || f->size != size || n >= f->taken)
			continue;
		memcpy(ret, f->sum[n], SHA256_SIZE);
		return true;
	}
	return false;
}
