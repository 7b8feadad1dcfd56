/* Writes and sums up pages in a thread. */
#include "memory/writer.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/piece.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "memory/confine.h"

#include <linux/prctl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#define BUFFERS 72U /* buffers, at most: when all are full, the processes wait for the file */
#define AHEAD 16U /* buffers that get their memory before they are needed */
#define SOON (1U << 20) /* bytes after which the disk is asked to write them */
#define SUMS_FIRST 256U
#define PUT_SUMS (WRITER_BUFFER / PIECE_SIZE)

enum summing { SUM_OPEN, SUM_THREAD, SUM_HELPER, SUM_HELPED };

struct put {
	int fd;
	uint8_t *data;
	size_t len;
	bool whole; /* it consists of whole pieces, so it can be summed before the data ahead of it */
	enum summing summing; /* protected by ->lock */
	uint8_t sum[PUT_SUMS][SHA256_SIZE]; /* with SUM_HELPED: the sums of its pieces */
};

struct writer {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint8_t *data; /* BUFFERS buffers */
	unsigned used; /* buffers that were taken at least once */
	unsigned touched, wanted; /* buffers that have their memory already, and that shall have it ahead of need */
	/* free buffers among the used ones; the last one is taken first, since it may still be in a cache */
	uint8_t *free[BUFFERS];
	unsigned n_free;
	struct put queue[BUFFERS];
	unsigned first, queued; /* ->queue is a ring; with ->busy, ->first is being written */
	bool busy, end;
	int result;
	uint64_t put; /* bytes that were put */
	/* Used by the thread alone: */
	bool sums;
	uint64_t written, begun; /* bytes of the file, and of these given to the disk */
	uint8_t *part; /* the incomplete last piece: its first ->written % PIECE_SIZE bytes */
	uint8_t (*sum)[SHA256_SIZE];
	size_t n_sums, room;
};

static int sums_room(struct writer *w)
{
	if (w->room - w->n_sums < PUT_SUMS) {
		const size_t room = w->room ? w->room * 2 : SUMS_FIRST;
		void *more = realloc(w->sum, room * SHA256_SIZE);

		if (!more)
			return -ENOMEM;
		w->sum = more;
		w->room = room;
	}
	return 0;
}

static int add_sum(struct writer *w, const uint8_t *data, size_t len)
{
	int r = sums_room(w);

	if (r == 0)
		piece_sum(data, len, w->sum[w->n_sums++]);
	return r;
}

/* Sums up data that follows ->written. */
static int sum_up(struct writer *w, const uint8_t *data, size_t len)
{
	size_t have = (size_t)(w->written % PIECE_SIZE);
	int r = 0;

	while (r == 0 && len) {
		size_t n = PIECE_SIZE - have < len ? PIECE_SIZE - have : len;

		if (n == PIECE_SIZE) {
			r = add_sum(w, data, n);
		} else {
			memcpy(w->part + have, data, n);
			have += n;
			if (have == PIECE_SIZE)
				r = add_sum(w, w->part, PIECE_SIZE);
			have %= PIECE_SIZE;
		}
		data += n;
		len -= n;
	}
	return r;
}

/* Takes the sums of a buffer from writer_end(), if that computes them. */
static int sum_one(struct writer *w, struct put *p)
{
	bool helped;
	int r;

	pthread_mutex_lock(&w->lock);
	while (p->summing == SUM_HELPER)
		pthread_cond_wait(&w->moved, &w->lock);
	helped = p->summing == SUM_HELPED;
	if (!helped)
		p->summing = SUM_THREAD;
	pthread_mutex_unlock(&w->lock);
	if (!helped)
		return sum_up(w, p->data, p->len);
	r = sums_room(w);
	if (r == 0) {
		memcpy(w->sum[w->n_sums], p->sum, p->len / PIECE_SIZE * SHA256_SIZE);
		w->n_sums += p->len / PIECE_SIZE;
	}
	return r;
}

/* Writes a buffer; the disk works while the sum is computed. */
static int write_one(struct writer *w, struct put *p)
{
	const uint64_t end = w->written + p->len;
	int r = fd_write_all(p->fd, p->data, p->len);

	if (r == 0 && w->sums && end - w->begun >= SOON) {
		/* This only starts the writing early, so errors do not matter. */
		(void)!sync_file_range(p->fd, (off_t)w->begun, (off_t)(end - w->begun), SYNC_FILE_RANGE_WRITE);
		w->begun = end;
	}
	if (r == 0 && w->sums)
		r = sum_one(w, p);
	w->written = end;
	return r;
}

/* Drops the thread's capabilities and installs the filter: it only needs what is open already. */
static int confine_thread(void)
{
	struct err e = { 0 };
	int r = caps_set(0, 0);

	if (r == 0)
		r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return r == 0 ? confine(&e) : r;
}

/*
 * While there is nothing to write: touches memory for the next buffer, so that the reading thread does not wait for
 * it.
 */
static bool touch_next(struct writer *w)
{
	uint8_t *data;

	if (w->touched < w->used)
		w->touched = w->used;
	if (w->touched >= w->wanted)
		return false;
	data = w->data + (size_t)w->touched++ * WRITER_BUFFER;
	pthread_mutex_unlock(&w->lock);
	/* a huge page; the reading thread may already write there, so no byte is changed */
	__atomic_fetch_or(data, 0, __ATOMIC_RELAXED);
	pthread_mutex_lock(&w->lock);
	return true;
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	int r = confine_thread();

	pthread_mutex_lock(&w->lock);
	w->result = r;
	for (;;) {
		struct put *p = &w->queue[w->first];

		while (!w->queued && !w->end)
			if (!touch_next(w))
				pthread_cond_wait(&w->moved, &w->lock);
		if (!w->queued)
			break;
		w->busy = true;
		r = w->result;
		pthread_mutex_unlock(&w->lock);
		if (r == 0)
			r = write_one(w, p);
		pthread_mutex_lock(&w->lock);
		w->result = r;
		w->first = (w->first + 1) % BUFFERS;
		w->queued--;
		w->busy = false;
		w->free[w->n_free++] = p->data;
		pthread_cond_signal(&w->moved);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int writer_new(struct writer **ret, struct err *e)
{
	const size_t size = (size_t)(BUFFERS + 1) * WRITER_BUFFER;
	struct writer *w = calloc(1, sizeof(*w));
	void *data;
	int r;

	if (!w)
		return err_set(e, ERR_INTERNAL, -ENOMEM, "no memory");
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (data == MAP_FAILED) {
		r = err_sys(e, ERR_INTERNAL, -errno, "memory for pages");
		free(w);
		return r;
	}
	madvise(data, size, MADV_HUGEPAGE); /* only a hint; a failure is harmless */
	/* Aligns the buffers to huge pages. */
	w->data = (uint8_t *)data + (-(uintptr_t)data & (WRITER_BUFFER - 1));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->moved, NULL);
	r = pthread_create(&w->thread, NULL, writer_main, w);
	if (r)
		return err_sys(e, ERR_INTERNAL, -r, "start a thread");
	*ret = w;
	return 0;
}

int writer_sum(struct writer *w, struct err *e)
{
	w->part = malloc(PIECE_SIZE);
	w->sums = w->part; /* the thread sees this with the first buffer that it gets */
	return w->part ? 0 : err_set(e, ERR_INTERNAL, -ENOMEM, "no memory");
}

void writer_expect(struct writer *w, uint64_t bytes)
{
	const uint64_t n = bytes / (w->sums ? 1 : 2) / WRITER_BUFFER;

	pthread_mutex_lock(&w->lock);
	w->wanted = n < AHEAD ? (unsigned)n : AHEAD;
	pthread_cond_signal(&w->moved);
	pthread_mutex_unlock(&w->lock);
}

int writer_buffer(struct writer *w, uint8_t **ret)
{
	int r;

	pthread_mutex_lock(&w->lock);
	while (!w->n_free && w->used == BUFFERS)
		pthread_cond_wait(&w->moved, &w->lock);
	r = w->result;
	if (r == 0)
		*ret = w->n_free ? w->free[--w->n_free] : w->data + (size_t)w->used++ * WRITER_BUFFER;
	pthread_mutex_unlock(&w->lock);
	return r;
}

void writer_put(struct writer *w, int fd, uint8_t *buffer, size_t len)
{
	struct put *p;

	pthread_mutex_lock(&w->lock);
	assert(w->queued < BUFFERS && len <= WRITER_BUFFER);
	p = &w->queue[(w->first + w->queued++) % BUFFERS];
	p->fd = fd;
	p->data = buffer;
	p->len = len;
	p->whole = w->put % PIECE_SIZE == 0 && len % PIECE_SIZE == 0;
	p->summing = SUM_OPEN;
	w->put += len;
	pthread_cond_signal(&w->moved);
	pthread_mutex_unlock(&w->lock);
}

bool writer_idle(struct writer *w)
{
	bool idle;

	pthread_mutex_lock(&w->lock);
	idle = !w->queued;
	pthread_mutex_unlock(&w->lock);
	return idle;
}

/* The last one that no thread has taken, so that the other thread comes to it last. */
static struct put *open_put(struct writer *w)
{
	for (unsigned n = w->queued; n-- > w->busy;) {
		struct put *p = &w->queue[(w->first + n) % BUFFERS];

		if (p->whole && p->summing == SUM_OPEN)
			return p;
	}
	return NULL;
}

/* ->lock is held, but not while sums are taken. */
static void help(struct writer *w)
{
	struct put *p;

	while (w->sums && w->result == 0 && (p = open_put(w))) {
		p->summing = SUM_HELPER;
		pthread_mutex_unlock(&w->lock);
		for (size_t at = 0; at < p->len; at += PIECE_SIZE)
			piece_sum(p->data + at, PIECE_SIZE, p->sum[at / PIECE_SIZE]);
		pthread_mutex_lock(&w->lock);
		p->summing = SUM_HELPED;
		pthread_cond_signal(&w->moved);
	}
}

int writer_end(struct writer *w, uint8_t ret_sum[SHA256_SIZE])
{
	struct sha256 s;
	int r;

	pthread_mutex_lock(&w->lock);
	w->end = true;
	pthread_cond_signal(&w->moved);
	help(w);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	r = w->result;
	if (r == 0 && w->sums && w->written % PIECE_SIZE)
		r = add_sum(w, w->part, (size_t)(w->written % PIECE_SIZE));
	if (r < 0 || !w->sums)
		return r;
	sha256_init(&s);
	sha256_add(&s, &w->written, sizeof(w->written));
	sha256_add(&s, w->sum, w->n_sums * SHA256_SIZE);
	sha256_end(&s, ret_sum);
	return 0;
}
