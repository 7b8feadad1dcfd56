/* Copies large files by three threads: the caller reads, one thread sums up, one writes. */
#include "layers/copy_pipeline.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/digests.h"
#include "layers/xattr.h"
#include "linux/sched_slice.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define ALIGN 4096U /* alignment that disks require for direct writes */
#define BATCH 4U /* pieces in one write: the rest of the buffer is filled meanwhile */
#define PIECES 256U /* pieces in flight, however small */
#define HEAD_START (16U << 10) /* bytes of a file from which writing it early is worth it */
#define NEWS (256U << 10) /* new bytes after which a waiting thread is woken up */

struct file {
	struct file *next;
	int fd;
	struct stat st;
	uint32_t uid, gid;
	bool direct; /* written past the page cache, until the disk refuses that */
};

struct piece {
	struct file *file;
	uint64_t at;
	size_t len;
	size_t where; /* offset in ->buf */
	uint8_t (*sum)[SHA256_SIZE];
	bool last; /* the last piece of its file */
	bool summed, written;
};

struct copy_pipeline_spare {
	pthread_mutex_t lock;
	struct copy_pipeline *pipeline; /* NULL: none, or in use */
};

struct copy_pipeline {
	/*
	 * The threads are kept for the next pipeline. A thread that wakes up gets an idle processor, but a new one
	 * often has to queue behind its creator, which reads until all is read.
	 */
	pthread_t summer, writer;
	pthread_mutex_t lock;
	pthread_cond_t to_do[2]; /* for summer and writer */
	pthread_cond_t moved; /* for the reader */
	const int *stop;
	struct copy_pipeline_spare *spare;
	char *buf;
	/*
	 * Pieces are counted over all files; number n is in piece[n % PIECES]. Their bytes are in the ring buffer
	 * ->buf, one after the other, until each piece and all before it are both summed up and written.
	 */
	struct piece piece[PIECES];
	uint64_t first, read, to_sum, to_write;
	size_t fill; /* where in ->buf the next piece may begin */
	size_t news; /* bytes that no thread was woken up for yet */
	struct file *file, **last; /* files whose last byte is not written: they are finished in order */
	bool used; /* a file was added since copy_pipeline_end() */
	unsigned few; /* small files that were written at once */
	bool started; /* the threads */
	unsigned busy, writing; /* threads that work without the lock; and of these, those that write */
	bool end; /* no more files will be added */
	bool told; /* ->then was called, or will never be */
	bool quit;
	int failed;
	void (*then)(void *arg); /* called when all is written */
	void *then_arg;
};

static struct piece *nth(struct copy_pipeline *p, uint64_t n)
{
	return &p->piece[n % PIECES];
}

static void fail(struct copy_pipeline *p, int r)
{
	p->failed = p->failed ? p->failed : r;
	pthread_cond_broadcast(&p->moved);
}

/* Called with the lock held; releases it until leave(). */
static void begin(struct copy_pipeline *p)
{
	p->busy++;
	pthread_mutex_unlock(&p->lock);
}

static void leave(struct copy_pipeline *p)
{
	pthread_mutex_lock(&p->lock);
	p->busy--;
	pthread_cond_broadcast(&p->moved);
}

/* Called with the lock held, which is released meanwhile. False: there is nothing to sum up. */
static bool sum_some(struct copy_pipeline *p)
{
	struct piece *x = nth(p, p->to_sum);

	if (p->failed || p->to_sum == p->read)
		return false;
	p->to_sum++;
	begin(p);
	digests_bytes(p->buf + x->where, x->len, x->sum);
	leave(p);
	x->summed = true;
	return true;
}

/* The part that is still to be written of @n pieces of one file, the first of which are written up to @done. */
static int rest_of(struct copy_pipeline *p, uint64_t first, uint64_t n, size_t len, size_t done, struct iovec v[BATCH])
{
	int count = 0;

	for (uint64_t i = first; i < first + n; i++) {
		const struct piece *x = nth(p, i);
		size_t from = (size_t)(x->at - nth(p, first)->at), to = from + x->len < len ? from + x->len : len;

		char *data = p->buf + x->where;

		data += from < done ? done - from : 0;
		from = from < done ? done : from;
		if (from >= to)
			continue;
		if (count && (char *)v[count - 1].iov_base + v[count - 1].iov_len == data)
			v[count - 1].iov_len += to - from;
		else
			v[count++] = (struct iovec){ data, to - from };
	}
	return count;
}

/* Writes @n pieces, which are contiguous in one file, from number @first on. */
static int put(struct copy_pipeline *p, uint64_t first, uint64_t n_pieces)
{
	const struct piece *x = nth(p, first), *end = nth(p, first + n_pieces - 1);
	size_t len = (size_t)(end->at - x->at) + end->len, done = 0;
	struct file *f = x->file;

	/* put_tail() has written the end of the file already. */
	if (f->direct)
		len = len / ALIGN * ALIGN;
	while (done < len) {
		struct iovec v[BATCH];
		ssize_t n = pwritev(f->fd, v, rest_of(p, first, n_pieces, len, done, v), (off_t)(x->at + done));

		if (n < 0 && errno == EINTR)
			continue;
		/* The disk refuses this direct write: writes through the cache instead. */
		if (n < 0 && errno == EINVAL && sys_fcntl(f->fd, F_GETFL, 0) & O_DIRECT) {
			int r = sys_fcntl(f->fd, F_SETFL, O_RDWR);

			if (r < 0)
				return r;
			continue;
		}
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	/* Only starts writing early; fsync reports errors. */
	if (len >= HEAD_START)
		(void)!sync_file_range(f->fd, (off_t)x->at, (off_t)len, SYNC_FILE_RANGE_WRITE);
	return 0;
}

/* Sets owner, mode and times. Owner first: changing it clears set-id bits. Times last. */
static int dress(const struct file *f)
{
	const struct timespec times[2] = { f->st.st_atim, f->st.st_mtim };
	int r = sys_fchownat(f->fd, "", f->uid, f->gid, AT_EMPTY_PATH);

	if (r == 0)
		r = sys_fchmod(f->fd, f->st.st_mode & 07777);
	if (r == 0 && futimens(f->fd, times) < 0)
		r = -errno;
	return r;
}

static void file_free(struct file *f)
{
	fd_close(f->fd);
	free(f);
}

/* Called with the lock held. */
static struct file *take_file(struct copy_pipeline *p)
{
	struct file *f = p->file;

	if (f)
		p->file = f->next;
	if (!p->file)
		p->last = &p->file;
	return f;
}

/* Called with the lock held, which is released meanwhile. */
static void write_pieces(struct copy_pipeline *p, uint64_t first, uint64_t n)
{
	struct file *whole = nth(p, first + n - 1)->last ? take_file(p) : NULL;
	int r;

	p->to_write += n;
	p->writing++;
	begin(p);
	r = put(p, first, n);
	if (whole) {
		r = r == 0 ? dress(whole) : r;
		file_free(whole);
	}
	leave(p);
	p->writing--;
	for (uint64_t i = first; i < first + n; i++)
		nth(p, i)->written = true;
	if (r < 0)
		fail(p, r);
}

/* Writes what was read of a file. Each write waits for the disk, and then for a processor. */
static bool write_some(struct copy_pipeline *p)
{
	uint64_t first = p->to_write, n = 1;

	if (p->failed || first == p->read)
		return false;
	while (n < BATCH && first + n < p->read && nth(p, first + n)->file == nth(p, first)->file)
		n++;
	write_pieces(p, first, n);
	return true;
}

/* The reader writes as well instead of waiting, if a file is one piece, so that no other thread works on it. */
static bool help_write(struct copy_pipeline *p)
{
	const struct piece *x = nth(p, p->to_write);

	if (p->failed || p->to_write == p->read || x->at || !x->last)
		return false;
	write_pieces(p, p->to_write, 1);
	return true;
}

static void work(struct copy_pipeline *p, bool (*one)(struct copy_pipeline *p), pthread_cond_t *to_do)
{
	pthread_mutex_lock(&p->lock);
	while (one(p) || (!p->quit && pthread_cond_wait(to_do, &p->lock) == 0))
		;
	pthread_mutex_unlock(&p->lock);
}

static void *sum_main(void *arg)
{
	struct copy_pipeline *p = arg;

	(void)sched_slice_long(); /* reading and writing go before summing up */
	work(p, sum_some, &p->to_do[0]);
	return NULL;
}

/* Writes what is there; when that was all, wakes the threads that wait for it. */
static bool write_more(struct copy_pipeline *p)
{
	if (write_some(p))
		return true;
	if (!p->end || p->told || p->failed || p->writing)
		return false;
	p->told = true;
	begin(p);
	if (p->then)
		p->then(p->then_arg);
	leave(p);
	return true;
}

static void *write_main(void *arg)
{
	struct copy_pipeline *p = arg;

	(void)sched_slice_short(); /* the disk is idle until this thread runs again */
	work(p, write_more, &p->to_do[1]);
	return NULL;
}

static void wake(struct copy_pipeline *p)
{
	p->news = 0;
	pthread_cond_signal(&p->to_do[1]);
	pthread_cond_signal(&p->to_do[0]);
}

/* Waits until all is done, or all threads have given up. */
static void settle(struct copy_pipeline *p)
{
	pthread_mutex_lock(&p->lock);
	p->end = true;
	wake(p);
	while (help_write(p) || sum_some(p))
		;
	wake(p); /* if this thread was the last to write */
	while (p->busy || !(p->failed || p->told))
		pthread_cond_wait(&p->moved, &p->lock);
	p->end = p->told = false;
	pthread_mutex_unlock(&p->lock);
}

static void stop_threads(struct copy_pipeline *p)
{
	pthread_mutex_lock(&p->lock);
	p->quit = true;
	wake(p);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->summer, NULL);
	if (p->started)
		pthread_join(p->writer, NULL);
	p->started = p->quit = false;
}

static void copy_pipeline_destroy(struct copy_pipeline *p)
{
	if (!p)
		return;
	if (p->started)
		stop_threads(p);
	if (p->buf)
		munmap(p->buf, COPY_PIPELINE_MEMORY);
	pthread_cond_destroy(&p->moved);
	pthread_cond_destroy(&p->to_do[0]);
	pthread_cond_destroy(&p->to_do[1]);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct copy_pipeline_spare *copy_pipeline_spare_new(void)
{
	struct copy_pipeline_spare *s = calloc(1, sizeof(*s));

	if (s)
		pthread_mutex_init(&s->lock, NULL);
	return s;
}

void copy_pipeline_spare_free(struct copy_pipeline_spare *s)
{
	if (!s)
		return;
	copy_pipeline_destroy(s->pipeline);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct copy_pipeline *spare_swap(struct copy_pipeline_spare *s, struct copy_pipeline *p)
{
	struct copy_pipeline *was;

	if (!s)
		return p;
	pthread_mutex_lock(&s->lock);
	was = s->pipeline;
	s->pipeline = p;
	pthread_mutex_unlock(&s->lock);
	return was;
}

static char *buf_new(void)
{
	char *buf = mmap(NULL, COPY_PIPELINE_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buf == MAP_FAILED)
		return NULL;
	(void)!madvise(buf, COPY_PIPELINE_MEMORY, MADV_HUGEPAGE); /* otherwise single pages are used */
	return buf;
}

/*
 * Keeps the threads off the reader's processor while there are others: the kernel tends to put a woken thread beside
 * its waker, even if another processor is idle (in a virtual machine it may not know that), and the reader continues to
 * read. If this fails, only time is lost.
 */
static void make_room(const struct copy_pipeline *p)
{
	cpu_set_t set;
	int cpu = sched_getcpu();

	if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(set), &set) < 0)
		return;
	CPU_CLR(cpu, &set);
	if (!CPU_COUNT(&set))
		return;
	(void)pthread_setaffinity_np(p->writer, sizeof(set), &set);
	(void)pthread_setaffinity_np(p->summer, sizeof(set), &set);
}

static bool start(struct copy_pipeline *p)
{
	if (!p->buf)
		p->buf = buf_new();
	if (!p->buf)
		return false;
	if (p->started)
		return true;
	if (pthread_create(&p->summer, NULL, sum_main, p) != 0)
		return false;
	p->started = pthread_create(&p->writer, NULL, write_main, p) == 0;
	if (!p->started)
		stop_threads(p);
	return p->started;
}

static struct copy_pipeline *copy_pipeline_make(void)
{
	struct copy_pipeline *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->moved, NULL);
	pthread_cond_init(&p->to_do[0], NULL);
	pthread_cond_init(&p->to_do[1], NULL);
	p->last = &p->file;
	return p;
}

struct copy_pipeline *copy_pipeline_new(const int *stop, struct copy_pipeline_spare *spare)
{
	struct copy_pipeline *p = spare_swap(spare, NULL);

	if (!p)
		p = copy_pipeline_make();
	if (!p)
		return NULL;
	pthread_mutex_lock(&p->lock);
	p->stop = stop;
	p->spare = spare;
	p->failed = 0;
	p->first = p->read = p->to_sum = p->to_write = 0;
	p->fill = p->news = 0;
	p->used = false;
	p->few = 0;
	pthread_mutex_unlock(&p->lock);
	return p;
}

static void close_all(struct copy_pipeline *p)
{
	struct file *f;

	while ((f = take_file(p)))
		file_free(f);
}

void copy_pipeline_free(struct copy_pipeline *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	fail(p, -ECANCELED);
	pthread_mutex_unlock(&p->lock);
	settle(p);
	close_all(p);
	/* The buffer's content is not needed any more: the kernel may take its pages. */
	if (p->buf && madvise(p->buf, COPY_PIPELINE_MEMORY, MADV_FREE) == 0)
		p = spare_swap(p->spare, p);
	copy_pipeline_destroy(p);
}

/* Whether the file has no holes (in memory, or on the disk), and no attribute that a write would clear. */
static bool suits(const struct stat *st, int from)
{
	return st->st_size > 0 && st->st_blocks >= st->st_size / 512 + !!(st->st_size % 512) && xattr_none(from);
}

/* Finds room for @len bytes, -1: none yet. Called with the lock held. */
static ssize_t find_room(struct copy_pipeline *p, size_t len)
{
	size_t from;

	while (p->first < p->read && nth(p, p->first)->summed && nth(p, p->first)->written)
		p->first++;
	if (p->first == p->read)
		return 0;
	if (p->read - p->first == PIECES)
		return -1;
	from = nth(p, p->first)->where;
	if (p->fill > from && COPY_PIPELINE_MEMORY - p->fill < len)
		return from >= len ? 0 : -1;
	return p->fill > from || from - p->fill >= len ? (ssize_t)p->fill : -1;
}

/* Waits for room for the next piece. */
static ssize_t wait_room(struct copy_pipeline *p, size_t len)
{
	ssize_t r;

	pthread_mutex_lock(&p->lock);
	while (!p->failed && (r = find_room(p, len)) < 0) {
		wake(p);
		if (!sum_some(p) && !help_write(p))
			pthread_cond_wait(&p->moved, &p->lock);
	}
	r = p->failed ? p->failed : r;
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int read_piece(struct copy_pipeline *p, int from, struct piece x)
{
	char *to = p->buf + x.where;
	size_t done = 0;

	while (done < x.len) {
		ssize_t n = pread(from, to + done, x.len - done, (off_t)(x.at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE; /* the file was shorter than its size said */
		done += (size_t)n;
	}
	pthread_mutex_lock(&p->lock);
	*nth(p, p->read++) = x;
	p->fill = x.where + (x.len + ALIGN - 1) / ALIGN * ALIGN;
	p->news += x.len;
	if (p->news >= NEWS)
		wake(p);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/*
 * Writes what follows the last whole block through the cache: a direct write takes only whole blocks, and cutting the
 * file later would wait for the disk to read the block back.
 */
static int put_tail(int from, int to, uint64_t size)
{
	size_t len = size % ALIGN;
	off_t at = (off_t)(size - len);
	char tail[ALIGN];
	ssize_t n = len ? pread(from, tail, len, at) : 0;

	if (n != (ssize_t)len)
		return n < 0 ? -errno : -ESTALE;
	n = len ? pwrite(to, tail, len, at) : 0;
	if (n != (ssize_t)len)
		return n < 0 ? -errno : -EIO;
	if (len)
		(void)!sync_file_range(to, at, (off_t)len, SYNC_FILE_RANGE_WRITE);
	return 0;
}

static struct file *file_new(int to, const struct stat *st, uint32_t uid, uint32_t gid)
{
	struct file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	*f = (struct file){ .fd = sys_fcntl(to, F_DUPFD_CLOEXEC, 3), .st = *st, .uid = uid, .gid = gid };
	if (f->fd >= 0)
		return f;
	free(f);
	return NULL;
}

/* When the pipeline is empty and idle, a small file is written at once, without the threads. */
static int put_small(struct copy_pipeline *p, const struct file *f, int from, uint8_t (*sum)[SHA256_SIZE])
{
	const size_t len = (size_t)f->st.st_size;
	ssize_t n = pread(from, p->buf, len, 0);

	if (n != (ssize_t)len)
		return n < 0 ? -errno : -ESTALE;
	digests_bytes(p->buf, len, sum);
	for (size_t done = 0; done < len; done += (size_t)n) {
		n = pwrite(f->fd, p->buf + done, len - done, (off_t)done);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
	}
	return dress(f);
}

static void file_add(struct copy_pipeline *p, struct file *f)
{
	if (!p->used)
		make_room(p);
	pthread_mutex_lock(&p->lock);
	p->used = true;
	*p->last = f;
	p->last = &f->next;
	pthread_mutex_unlock(&p->lock);
}

int copy_pipeline_file(struct copy_pipeline *p, struct digests *d, int from, int to, const struct stat *st,
		       uint32_t uid, uint32_t gid)
{
	uint64_t size = (uint64_t)st->st_size, at = 0;
	uint8_t(*sum)[SHA256_SIZE];
	struct file *f;
	struct stat is;
	int r = 0;

	if (!p || !suits(st, from) || fstat(to, &is) < 0 || !start(p))
		return 0;
	f = file_new(to, st, uid, gid);
	sum = f ? digests_add(d, is.st_ino, size) : NULL;
	if (!sum) {
		if (f)
			file_free(f);
		return 0;
	}
	if (size <= DIGESTS_PIECE && !p->used && p->few < COPY_PIPELINE_FEW) {
		p->few++;
		r = put_small(p, f, from, sum);
		file_free(f);
		return r < 0 ? r : 1;
	}
	file_add(p, f);
	f->direct = size >= COPY_PIPELINE_DIRECT;
	if (f->direct) {
		r = put_tail(from, f->fd, size);
		(void)sys_fcntl(f->fd, F_SETFL, O_RDWR | O_DIRECT); /* otherwise through the cache */
	}
	for (; r == 0 && at < size; at += COPY_PIPELINE_PIECE, sum += COPY_PIPELINE_SUMS) {
		struct piece x = { .file = f, .at = at, .sum = sum, .last = size - at <= COPY_PIPELINE_PIECE };
		ssize_t room;

		x.len = x.last ? (size_t)(size - at) : COPY_PIPELINE_PIECE;
		room = p->stop && __atomic_load_n(p->stop, __ATOMIC_RELAXED) ? -ECANCELED : wait_room(p, x.len);
		x.where = room < 0 ? 0 : (size_t)room;
		r = room < 0 ? (int)room : read_piece(p, from, x);
	}
	return r < 0 ? r : 1;
}

int copy_pipeline_end(struct copy_pipeline *p, void (*then)(void *arg), void *arg)
{
	int r = p ? p->failed : 0;

	if (!p || !p->used) {
		if (r == 0 && then)
			then(arg);
		return r;
	}
	p->then = then;
	p->then_arg = arg;
	settle(p);
	p->then = NULL;
	p->used = false;
	close_all(p);
	return p->failed;
}
