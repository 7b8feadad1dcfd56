#include "warden/pump.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/slice.h"
#include "warden/digests.h"
#include "warden/xattr.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define ALIGN 4096U /* what disks want of a write that goes there at once */
#define BATCH 4U /* pieces in one write: some are left to be read into meanwhile */

struct piece {
	int fd; /* its file's in ->file */
	uint64_t at;
	size_t len;
	uint8_t (*sum)[SHA256_SIZE];
	bool summed, written;
};

struct late {
	int fd;
	struct stat st;
	uint32_t uid, gid;
};

struct pump_spare {
	pthread_mutex_t lock;
	struct pump *pump; /* NULL: none, or in use */
};

struct pump {
	/*
	 * They wait for the next one who needs them: a thread that wakes up goes to a processor that is idle, but a new one
	 * often stands behind who made it, and that one reads until all is read.
	 */
	pthread_t summer, writer;
	pthread_mutex_t lock;
	pthread_cond_t to_do[2]; /* of summer and writer */
	pthread_cond_t moved; /* of who reads */
	const int *stop;
	struct pump_spare *spare;
	char *buf; /* PUMP_PIECES of them */
	/* Counted over all files; the n-th is in piece[n % PUMP_PIECES] until it is both summed up and written. */
	struct piece piece[PUMP_PIECES];
	uint64_t read, to_sum, to_write;
	struct late file[PUMP_FILES];
	unsigned files;
	bool started; /* the threads */
	unsigned busy; /* who is at something, without the lock */
	bool end; /* no more files */
	bool told; /* of that all are written and as they will be, or will not be */
	bool quit;
	int failed;
	void (*then)(void *arg); /* when all is written */
	void *then_arg;
};

#define BUF_SIZE ((size_t)PUMP_PIECES * PUMP_PIECE)

static char *bytes(const struct pump *p, uint64_t n)
{
	return p->buf + n % PUMP_PIECES * (size_t)PUMP_PIECE;
}

static void fail(struct pump *p, int r)
{
	p->failed = p->failed ? p->failed : r;
	pthread_cond_broadcast(&p->moved);
}

/* With the lock held, which is let go until leave(). */
static void begin(struct pump *p)
{
	p->busy++;
	pthread_mutex_unlock(&p->lock);
}

static void leave(struct pump *p)
{
	pthread_mutex_lock(&p->lock);
	p->busy--;
	pthread_cond_broadcast(&p->moved);
}

/* With the lock held, which is let go meanwhile. False: there is none to sum up. */
static bool sum_some(struct pump *p)
{
	uint64_t n = p->to_sum;
	struct piece *x = &p->piece[n % PUMP_PIECES];

	if (p->failed || n == p->read)
		return false;
	p->to_sum++;
	begin(p);
	digests_bytes(bytes(p, n), x->len, x->sum);
	leave(p);
	x->summed = true;
	return true;
}

/* @n pieces, one behind the other in one file, from the @first on: at most two stretches of memory. */
static int put(struct pump *p, uint64_t first, uint64_t n_pieces)
{
	const struct piece *x = &p->piece[first % PUMP_PIECES], *last = &p->piece[(first + n_pieces - 1) % PUMP_PIECES];
	/* What is left of a file's end is there already. */
	size_t len = (size_t)(last->at - x->at + last->len) / ALIGN * ALIGN, done = 0;
	size_t straight = (size_t)(PUMP_PIECES - first % PUMP_PIECES) * PUMP_PIECE;

	while (done < len) {
		struct iovec v[2] = { { p->buf, 0 }, { p->buf, 0 } };
		size_t one = done < straight ? (len < straight ? len : straight) - done : 0;
		ssize_t n;

		v[0].iov_base = one ? bytes(p, first) + done : p->buf + (done - straight);
		v[0].iov_len = one ? one : len - done;
		v[1].iov_len = one ? len - done - one : 0;
		n = pwritev(x->fd, v, v[1].iov_len ? 2 : 1, (off_t)(x->at + done));

		if (n < 0 && errno == EINTR)
			continue;
		/* Not as the disk wants it, after all: through the cache. */
		if (n < 0 && errno == EINVAL && sys_fcntl(x->fd, F_GETFL, 0) & O_DIRECT) {
			int r = sys_fcntl(x->fd, F_SETFL, O_RDWR);

			if (r < 0)
				return r;
			continue;
		}
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	/* Only ever a head start: what goes wrong is told by fsync. */
	if (len)
		(void)!sync_file_range(x->fd, (off_t)x->at, (off_t)len, SYNC_FILE_RANGE_WRITE);
	return 0;
}

/* What is there of a file: each write is a wait for the disk, and then for a processor. */
static bool write_some(struct pump *p)
{
	uint64_t first = p->to_write, n = 1;
	int r;

	if (p->failed || first == p->read)
		return false;
	while (n < BATCH && first + n < p->read && p->piece[(first + n) % PUMP_PIECES].fd == p->piece[first % PUMP_PIECES].fd)
		n++;
	p->to_write += n;
	begin(p);
	r = put(p, first, n);
	leave(p);
	for (uint64_t i = first; i < first + n; i++)
		p->piece[i % PUMP_PIECES].written = true;
	if (r < 0)
		fail(p, r);
	return true;
}

static void work(struct pump *p, bool (*one)(struct pump *p), pthread_cond_t *to_do)
{
	pthread_mutex_lock(&p->lock);
	while (one(p) || (!p->quit && pthread_cond_wait(to_do, &p->lock) == 0))
		;
	pthread_mutex_unlock(&p->lock);
}

static void *sum_main(void *arg)
{
	struct pump *p = arg;

	(void)slice_long(); /* whoever reads or writes goes first */
	work(p, sum_some, &p->to_do[0]);
	return NULL;
}

/* Owner first: changing it takes set-id bits away. Times last. */
static int dress(const struct late *f)
{
	const struct timespec times[2] = { f->st.st_atim, f->st.st_mtim };
	int r = sys_fchownat(f->fd, "", f->uid, f->gid, AT_EMPTY_PATH);

	if (r == 0)
		r = sys_fchmod(f->fd, f->st.st_mode & 07777);
	if (r == 0 && futimens(f->fd, times) < 0)
		r = -errno;
	return r;
}

/* Of all of them the last byte is written. */
static int dress_all(struct pump *p)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < p->files; i++)
		r = dress(&p->file[i]);
	if (r == 0 && p->then)
		p->then(p->then_arg);
	return r;
}

/* What is there, and then the rest of it. */
static bool write_more(struct pump *p)
{
	int r;

	if (write_some(p))
		return true;
	if (!p->end || p->told || p->failed)
		return false;
	p->told = true;
	begin(p);
	r = dress_all(p);
	leave(p);
	if (r < 0)
		fail(p, r);
	return true;
}

static void *write_main(void *arg)
{
	struct pump *p = arg;

	(void)slice_short(); /* the disk is idle until it is back */
	work(p, write_more, &p->to_do[1]);
	return NULL;
}

static void wake(struct pump *p)
{
	pthread_cond_signal(&p->to_do[1]);
	pthread_cond_signal(&p->to_do[0]);
}

/* Until all is done, or given up by everybody. */
static void settle(struct pump *p)
{
	pthread_mutex_lock(&p->lock);
	p->end = true;
	wake(p);
	while (sum_some(p))
		;
	while (p->busy || !(p->failed || p->told))
		pthread_cond_wait(&p->moved, &p->lock);
	p->end = p->told = false;
	pthread_mutex_unlock(&p->lock);
}

static void stop_threads(struct pump *p)
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

static void pump_destroy(struct pump *p)
{
	if (!p)
		return;
	if (p->started)
		stop_threads(p);
	if (p->buf)
		munmap(p->buf, BUF_SIZE);
	pthread_cond_destroy(&p->moved);
	pthread_cond_destroy(&p->to_do[0]);
	pthread_cond_destroy(&p->to_do[1]);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct pump_spare *pump_spare_new(void)
{
	struct pump_spare *s = calloc(1, sizeof(*s));

	if (s)
		pthread_mutex_init(&s->lock, NULL);
	return s;
}

void pump_spare_free(struct pump_spare *s)
{
	if (!s)
		return;
	pump_destroy(s->pump);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct pump *spare_swap(struct pump_spare *s, struct pump *p)
{
	struct pump *was;

	if (!s)
		return p;
	pthread_mutex_lock(&s->lock);
	was = s->pump;
	s->pump = p;
	pthread_mutex_unlock(&s->lock);
	return was;
}

static char *buf_new(void)
{
	char *buf = mmap(NULL, BUF_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buf == MAP_FAILED)
		return NULL;
	(void)!madvise(buf, BUF_SIZE, MADV_HUGEPAGE); /* else page by page */
	return buf;
}

/*
 * Not where we are, while there are other processors: the kernel likes to put who is woken up beside who does that, also
 * when another one is idle (in a virtual machine it may not believe that), and we go on reading. Nothing fails without.
 */
static void make_room(const struct pump *p)
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

static bool start(struct pump *p)
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

static struct pump *pump_make(void)
{
	struct pump *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->moved, NULL);
	pthread_cond_init(&p->to_do[0], NULL);
	pthread_cond_init(&p->to_do[1], NULL);
	return p;
}

struct pump *pump_new(const int *stop, struct pump_spare *spare)
{
	struct pump *p = spare_swap(spare, NULL);

	if (!p)
		p = pump_make();
	if (!p)
		return NULL;
	pthread_mutex_lock(&p->lock);
	p->stop = stop;
	p->spare = spare;
	p->failed = 0;
	p->read = p->to_sum = p->to_write = 0;
	for (unsigned i = 0; i < PUMP_PIECES; i++)
		p->piece[i].summed = p->piece[i].written = true;
	pthread_mutex_unlock(&p->lock);
	return p;
}

static void close_all(struct pump *p)
{
	for (; p->files; p->files--)
		fd_close(TAKE_FD(p->file[p->files - 1].fd));
}

void pump_free(struct pump *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	fail(p, -ECANCELED);
	pthread_mutex_unlock(&p->lock);
	settle(p);
	close_all(p);
	/* What is in it means nothing any more: whoever needs the pages may have them. */
	if (p->buf && madvise(p->buf, BUF_SIZE, MADV_FREE) == 0)
		p = spare_swap(p->spare, p);
	pump_destroy(p);
}

/* As much in memory, or on the disk, as it is long; and nothing to be carried over that a write would take away. */
static bool suits(const struct stat *st, int from)
{
	return (uint64_t)st->st_size >= PUMP_LEAST && st->st_blocks >= st->st_size / 512 + !!(st->st_size % 512) &&
	       xattr_none(from);
}

/* A place for the next piece, when there is one. */
static int wait_room(struct pump *p)
{
	const struct piece *x = &p->piece[p->read % PUMP_PIECES];
	int r;

	pthread_mutex_lock(&p->lock);
	while (!p->failed && !(x->summed && x->written))
		if (!sum_some(p))
			pthread_cond_wait(&p->moved, &p->lock);
	r = p->failed;
	pthread_mutex_unlock(&p->lock);
	return r;
}

static int read_piece(struct pump *p, int from, struct piece x)
{
	char *to = bytes(p, p->read);
	size_t done = 0;

	while (done < x.len) {
		ssize_t n = pread(from, to + done, x.len - done, (off_t)(x.at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE; /* shorter than it was */
		done += (size_t)n;
	}
	pthread_mutex_lock(&p->lock);
	p->piece[p->read++ % PUMP_PIECES] = x;
	wake(p);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/*
 * What is behind the last whole block, by the cache: past it only whole blocks can be written, and cutting one off
 * later would be a wait for the disk to read it back.
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

int pump_file(struct pump *p, struct digests *d, int from, int to, const struct stat *st, uint32_t uid, uint32_t gid)
{
	struct late f = { .fd = -1, .st = *st, .uid = uid, .gid = gid };
	uint64_t size = (uint64_t)st->st_size, at = 0;
	uint8_t (*sum)[SHA256_SIZE];
	struct stat is;
	int r = 0;

	if (!p || p->files == PUMP_FILES || !suits(st, from) || fstat(to, &is) < 0 || !start(p))
		return 0;
	f.fd = sys_fcntl(to, F_DUPFD_CLOEXEC, 3);
	sum = f.fd < 0 ? NULL : digests_add(d, is.st_ino, size);
	if (!sum) {
		fd_close(f.fd);
		return 0;
	}
	if (!p->files)
		make_room(p);
	p->file[p->files++] = f;
	r = put_tail(from, f.fd, size);
	(void)sys_fcntl(f.fd, F_SETFL, O_RDWR | O_DIRECT); /* or through the cache */
	for (; r == 0 && at < size; at += PUMP_PIECE, sum += PUMP_SUMS) {
		size_t len = size - at < PUMP_PIECE ? (size_t)(size - at) : PUMP_PIECE;

		r = p->stop && __atomic_load_n(p->stop, __ATOMIC_RELAXED) ? -ECANCELED : wait_room(p);
		if (r == 0)
			r = read_piece(p, from, (struct piece){ .fd = f.fd, .at = at, .len = len, .sum = sum });
	}
	return r < 0 ? r : 1;
}

int pump_end(struct pump *p, void (*then)(void *arg), void *arg)
{
	int r = p ? p->failed : 0;

	if (!p || !p->files) {
		if (r == 0 && then)
			then(arg);
		return r;
	}
	p->then = then;
	p->then_arg = arg;
	settle(p);
	p->then = NULL;
	close_all(p);
	return p->failed;
}
