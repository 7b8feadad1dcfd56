/* Keeps output in memory and files, up to a limit. */
#include "service/exec/spool.h"
#include "base/base.h"
#include "base/log.h"
#include "base/room.h"
#include "base/step.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEM_MAX (64U * 1024U)
#define HOLE_STEP (1024U * 1024U)

void spool_init(struct spool *s, uv_loop_t *loop, const char *path, uint64_t max, struct spool_room *all,
		struct spool_room *share)
{
	*s = (struct spool){ .loop = loop, .fd = -1, .half = max / 2, .all = all, .share = share };
	s->holed = s->half;
	s->mem = (struct buf)BUF_INIT(MEM_MAX);
	snprintf(s->path, sizeof(s->path), "%s", path);
}

/* Where a byte of the stream is in the file. */
static uint64_t place(const struct spool *s, uint64_t offset)
{
	return offset - s->base;
}

/* Of a file of so many bytes: what is no hole. */
static uint64_t bulk(const struct spool *s, uint64_t end)
{
	return end < 2 * s->half ? end : 2 * s->half;
}

static void set_len(struct spool *s, uint64_t len)
{
	s->all->used += len - s->file_len;
	s->share->used += len - s->file_len;
	s->file_len = len;
}

/* Room is taken before anything is written: many may write at once. */
static bool take_room(struct spool *s, uint64_t end)
{
	uint64_t more = bulk(s, end) > s->file_len ? bulk(s, end) - s->file_len : 0;

	if (more && (s->all->used + more > s->all->max || s->share->used + more > s->share->max))
		return false;
	set_len(s, s->file_len + more);
	return true;
}

/*
 * In a worker: frees the middle of a file that had @end bytes before what the worker adds, from time to time. Not more:
 * its end may be read at the same time.
 */
static int punch(struct spool *s, uint64_t end)
{
	uint64_t step = s->half < HOLE_STEP ? s->half : HOLE_STEP, to = end > s->half ? end - s->half : 0;
	int r;

	if (to < s->holed + step)
		return 0;
	do {
		r = fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->holed,
			      (off_t)(to - s->holed)) < 0 ?
			    -errno :
			    0;
	} while (r == -EINTR);
	if (r == 0)
		s->holed = to;
	return r;
}

static void open_file(struct spool *s)
{
	s->fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->fd < 0) {
		log_warn("spool %s: %s; output beyond %u bytes is lost", s->path, strerror(errno), MEM_MAX);
		s->failed = true;
	}
}

/* From @at on nothing is kept any more; what is in the file stays. */
static void give_up(struct spool *s, uint64_t at, const char *why)
{
	if (s->failed)
		return;
	log_warn("spool %s: %s; some output is lost", s->path, why);
	s->failed = true;
	s->lost_at = at;
}

/* The end of what is kept. */
static uint64_t kept_end(const struct spool *s)
{
	return s->failed ? s->lost_at : s->total;
}

/* Whether the file is there for more. */
static bool file_ready(struct spool *s)
{
	if (s->failed || !s->half)
		return false;
	if (s->fd < 0 && !take_room(s, 1)) {
		give_up(s, s->total, "the spools are full");
		return false;
	}
	if (s->fd < 0)
		open_file(s);
	return s->fd >= 0;
}

/* In a worker. What others need to work, and what is noted, counts for more. */
static int disk_left(const struct spool *s)
{
	struct room disk;

	return room_of_fd(s->fd, &disk) == 0 && disk.left < room_low(&disk, ROOM_OUTPUT) ? -ENOSPC : 0;
}

/* The first @len bytes of ->piece. */
static int write_at(const struct spool *s, size_t len, uint64_t at)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = pwrite(s->fd, s->piece + done, len - done, (off_t)(at + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

static void write_work(uv_work_t *w)
{
	struct spool *s = w->data;
	uint64_t at = place(s, s->piece_at);

	s->write_r = disk_left(s);
	if (s->write_r == 0)
		s->write_r = write_at(s, s->piece_len, at);
	if (s->write_r == 0)
		s->write_r = punch(s, at);
}

static void piece_done(struct spool *s)
{
	free(s->piece);
	s->piece = NULL;
	s->piece_len = 0;
	s->writing = false;
	s->done(s->arg);
}

static void write_done(uv_work_t *w, int status)
{
	struct spool *s = w->data;
	int r = status < 0 ? status : s->write_r;

	if (r < 0)
		give_up(s, s->piece_at, uv_strerror(r)); /* what could not be written is gone */
	piece_done(s);
}

static void write_piece(struct spool *s)
{
	s->work.data = s;
	if (!take_room(s, place(s, s->piece_at) + s->piece_len))
		give_up(s, s->piece_at, "the spools are full");
	else if (uv_queue_work(s->loop, &s->work, write_work, write_done) == 0)
		return;
	else
		give_up(s, s->piece_at, "no worker");
	piece_done(s);
}

/* What is in memory goes first. */
static int to_file(struct spool *s, const char *data, size_t len, void (*done)(void *arg), void *arg)
{
	size_t all = s->mem.len + len;

	s->piece = malloc(all ? all : 1);
	if (!s->piece) {
		give_up(s, s->total - s->mem.len, "no memory");
		s->total += len;
		return 0;
	}
	if (s->mem.len)
		memcpy(s->piece, s->mem.data, s->mem.len);
	memcpy(s->piece + s->mem.len, data, len);
	s->piece_at = s->total - s->mem.len;
	s->piece_len = all;
	s->total += len;
	buf_done(&s->mem);
	s->writing = true;
	s->done = done;
	s->arg = arg;
	write_piece(s);
	return s->writing ? 1 : 0;
}

int spool_add(struct spool *s, const char *data, size_t len, bool early, void (*done)(void *arg), void *arg)
{
	assert(!s->writing);
	if (!len)
		return 0;
	if (s->fd < 0 && !early && s->mem.len + len <= MEM_MAX && buf_add(&s->mem, data, len) == 0) {
		s->total += len;
		return 0;
	}
	if (!file_ready(s)) {
		/* Only the beginning is left to keep. */
		size_t room = MEM_MAX - s->mem.len;

		if (s->fd < 0 && s->total - s->base == s->mem.len)
			buf_add(&s->mem, data, len < room ? len : room);
		s->total += len;
		return 0;
	}
	return to_file(s, data, len, done, arg);
}

/* The next best, for what is no pipe: as short a stay as can be. */
static void copy_work(struct spool *s)
{
	ssize_t n;

	s->piece = malloc(s->pull_max);
	if (!s->piece) {
		s->pulled = -ENOMEM;
		return;
	}
	do {
		n = read(s->pipe, s->piece, s->pull_max);
	} while (n < 0 && errno == EINTR);
	s->pulled = n < 0 && errno == EIO ? 0 : n < 0 ? -errno : n; /* a terminal whose last process is gone */
	if (n > 0 && write_at(s, (size_t)n, s->piece_at) < 0)
		s->short_of = true;
}

static void pull_work(uv_work_t *w)
{
	struct spool *s = w->data;
	loff_t at = (loff_t)s->piece_at;

	STEP("spool.pull");
	s->pulled = disk_left(s);
	s->write_r = 0;
	if (s->pulled < 0)
		return; /* what the pipe has stays there */
	if (s->copy) {
		copy_work(s);
		if (!s->show) {
			free(s->piece);
			s->piece = NULL;
		}
		s->write_r = punch(s, s->piece_at);
		return;
	}
	do {
		s->pulled = splice(s->pipe, NULL, s->fd, &at, s->pull_max, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
	} while (s->pulled < 0 && errno == EINTR);
	if (s->pulled < 0)
		s->pulled = -errno;
	s->piece = s->pulled > 0 && s->show ? malloc((size_t)s->pulled) : NULL;
	if (s->piece && pread(s->fd, s->piece, (size_t)s->pulled, (off_t)s->piece_at) != s->pulled) {
		free(s->piece);
		s->piece = NULL;
	}
	s->write_r = punch(s, s->piece_at);
}

static void pull_done(uv_work_t *w, int status)
{
	struct spool *s = w->data;
	uint64_t end = s->piece_at;
	char *seen;

	if (status < 0)
		s->pulled = status;
	fd_close(s->pipe);
	s->writing = s->pulling = false;
	if (s->pulled > 0) {
		end += (uint64_t)s->pulled;
		s->total += (uint64_t)s->pulled;
	}
	set_len(s, bulk(s, end) > s->was_len ? bulk(s, end) : s->was_len);
	if (s->short_of || (s->pulled < 0 && s->pulled != -EAGAIN))
		give_up(s, s->total - (s->pulled > 0 ? (uint64_t)s->pulled : 0),
			s->short_of ? "no room" : uv_strerror((int)s->pulled));
	else if (s->write_r < 0)
		give_up(s, s->total, uv_strerror(s->write_r));
	s->seen = seen = TAKE_PTR(s->piece);
	s->done(s->arg); /* which may let go of us */
	free(seen);
}

int spool_pull(struct spool *s, int pipe, enum spool_from from, size_t max, void (*done)(void *arg), void *arg)
{
	assert(!s->writing);
	if (s->mem.len || !file_ready(s))
		return 0;
	s->pull_max = max;
	s->was_len = s->file_len;
	if (!take_room(s, place(s, s->total) + s->pull_max)) {
		give_up(s, s->total, "the spools are full");
		return 0;
	}
	/* A copy, so that a close meanwhile does not leave the worker a reused number. */
	s->pipe = fcntl(pipe, F_DUPFD_CLOEXEC, 3);
	if (s->pipe < 0) {
		set_len(s, s->was_len);
		return 0;
	}
	s->piece_at = place(s, s->total);
	s->copy = from == SPOOL_TTY;
	s->work.data = s;
	s->done = done;
	s->arg = arg;
	if (uv_queue_work(s->loop, &s->work, pull_work, pull_done) < 0) {
		fd_close(s->pipe);
		set_len(s, s->was_len);
		return 0;
	}
	s->writing = s->pulling = true;
	return 1;
}

void spool_skip(struct spool *s, size_t len)
{
	s->total += len;
	s->base = s->total;
}

uint64_t spool_first(const struct spool *s, uint64_t offset)
{
	uint64_t tail, end = kept_end(s);

	if (offset < s->base)
		offset = s->base;
	if (s->fd < 0)
		return offset - s->base < s->mem.len ? offset : s->total;
	if (offset >= end)
		return s->total;
	tail = end - s->base > 2 * s->half ? end - s->half : s->base;
	return offset - s->base < s->half || offset >= tail ? offset : tail;
}

ssize_t spool_read(const struct spool *s, uint64_t offset, char *to, size_t len)
{
	uint64_t at = offset - s->base, stored = s->writing && !s->pulling ? s->piece_at : kept_end(s), room;
	ssize_t n;

	if (offset < s->base || offset >= s->total)
		return 0;
	if (s->fd < 0) {
		if (at >= s->mem.len)
			return 0;
		n = (ssize_t)(s->mem.len - at < len ? s->mem.len - at : len);
		memcpy(to, s->mem.data + at, (size_t)n);
		return n;
	}
	if (offset >= stored)
		return 0;
	room = stored - offset;
	/* Not into the hole. */
	if (at < s->half && stored - s->base > 2 * s->half && room > s->half - at)
		room = s->half - at;
	n = pread(s->fd, to, room < len ? room : len, (off_t)place(s, offset));
	return n < 0 ? -errno : n;
}

void spool_reopen(struct spool *s)
{
	struct stat st;

	s->fd = open(s->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (s->fd < 0 || fstat(s->fd, &st) < 0)
		return;
	set_len(s, bulk(s, (uint64_t)st.st_size));
	s->total = (uint64_t)st.st_size;
}

bool spool_busy(const struct spool *s)
{
	return s->writing;
}

void spool_drop(struct spool *s)
{
	assert(!s->writing);
	buf_done(&s->mem);
	if (s->fd >= 0) {
		fd_close(s->fd);
		unlink(s->path);
	}
	s->fd = -1;
	s->holed = s->half;
	set_len(s, 0);
}
