/* Writes the audit log: lines are collected, appended and synced, and files are rotated. */
#include "audit/audit.h"
#include "base/base.h"
#include "audit/impl.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/room.h"
#include "base/sys.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PENDING_MAX (MIB) /* beyond it, records are written before audit_flush() is called */
#define TAIL_MAX 256 /* prev, hash, "cut" and the newline */
#define AHEAD (MIB) /* room for some thousand records on a disk that is full */
#define FIELD_MAX 256 /* bytes of a common field; ours are far shorter */

/* Before it is needed: what is noted when something ends or is deleted goes into the room that is taken here. */
static void keep_ahead(struct audit *a)
{
	if (a->size + AHEAD / 2 < a->ahead || room_ahead(a->fd, a->size, AHEAD) < 0)
		return;
	a->ahead = a->size + AHEAD;
}

/*
 * The lock keeps a second writer out, whose records would fork the chain. A child that was just forked may hold a copy
 * of a dead daemon's for a moment.
 */
static int lock(int fd, const char *path, struct err *e)
{
	for (unsigned i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "lock the audit log '%s'", path);
		if (i == 50) {
			err_set(e, ERR_CONFLICT, -EBUSY, "audit log '%s': another process is writing it", path);
			err_remedy(e, "a data folder can be used by one daemon only: stop the other one");
			return -EBUSY;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000 * 1000 }, NULL);
	}
	return 0;
}

static int open_file(const char *path, uint64_t *ret_size, struct err *e)
{
	AUTO_CLOSE int fd =
		sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	struct stat st;
	int r;

	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "open the audit log '%s'", path);
	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "audit log '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, -EINVAL, "audit log '%s': not a regular file", path);
	r = lock(fd, path, e);
	if (r < 0)
		return r;
	/* The previous owner of the lock may have written until it released the lock. */
	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "audit log '%s'", path);
	*ret_size = (uint64_t)st.st_size;
	return TAKE_FD(fd);
}

static int index_cb(void *arg, uint64_t seq, uint64_t offset)
{
	return audit_index_add(arg, seq, offset);
}

/*
 * Replaces a torn end by a record that says so. The record is written over it before the rest is cut off: whenever this
 * is interrupted, what is left is again a torn end, or one that is noted.
 */
static int cut(struct audit *a, uint64_t bytes, struct err *e)
{
	struct json *j = audit_begin(a, &(struct audit_rec){ .kind = "audit.cut" });
	ssize_t n;
	int r;

	jout_u64(j, "bytes", bytes);
	audit_end(a, NULL);
	if (a->r < 0)
		return err_sys(e, ERR_INTERNAL, a->r, "record an incomplete end");
	n = pwrite(a->fd, a->pending.data, a->pending.len, (off_t)a->size);
	r = n < 0 ? -errno : (size_t)n != a->pending.len ? -ENOSPC : 0;
	/* also after a failure: closing the log would write what is pending again, at the wrong place */
	buf_clear(&a->pending);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "overwrite an incomplete end");
	a->size += (uint64_t)n;
	r = sys_ftruncate(a->fd, (off_t)a->size);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "cut off an incomplete end");
	return fdatasync(a->fd) < 0 ? err_sys(e, ERR_INTERNAL, -errno, "sync") : 0;
}

int audit_open(const char *path, struct audit **ret, struct err *e)
{
	AUTO(audit_close) struct audit *a = calloc(1, sizeof(*a));
	uint64_t size = 0, torn;
	int r;

	if (!a)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "audit log");
	a->fd = -1;
	a->second = UINT64_MAX;
	a->pending.max = PENDING_MAX + AUDIT_LINE_MAX;
	a->fd = open_file(path, &size, e);
	if (a->fd < 0)
		return a->fd;
	r = chain_init(&a->chain, e);
	if (r < 0)
		return r;
	r = chain_scan(&a->chain, a->fd, size, index_cb, a, &a->size, e);
	if (r == -EBADMSG) {
		err_wrap(e, r, "audit log '%s'", path);
		err_remedy(e, "the file was changed, or the disk is damaged: keep it as evidence under another name "
			      "and start with a new one");
		return r;
	}
	if (r < 0)
		return r;
	torn = size - a->size;
	if (torn) {
		log_warn("audit log: the last %" PRIu64 " bytes are not a complete record and are cut off", torn);
		r = cut(a, torn, e);
		if (r < 0)
			return err_wrap(e, r, "audit log '%s'", path);
	}
	r = sys_fcntl(a->fd, F_SETFL, O_APPEND);
	if (r < 0 || lseek(a->fd, 0, SEEK_END) < 0)
		return err_sys(e, ERR_INTERNAL, r < 0 ? r : -errno, "audit log '%s'", path);
	a->written = a->chain.head.seq;
	keep_ahead(a);
	*ret = TAKE_PTR(a);
	return 0;
}

void audit_close(struct audit *a)
{
	struct err e;

	if (!a)
		return;
	if (a->fd >= 0 && a->pending.len && audit_flush(a, &e) < 0)
		log_error("%s", e.msg);
	if (a->fd >= 0)
		fdatasync(a->fd);
	fd_close(a->fd);
	chain_done(&a->chain);
	buf_done(&a->pending);
	free(a->index);
	free(a);
}

/* As clock_iso, but the calendar is asked once a second. */
static const char *now_iso(struct audit *a)
{
	uint64_t ns = clock_real_ns();
	unsigned ms = (unsigned)(ns / 1000000 % 1000);

	if (ns / 1000000000 != a->second) {
		clock_iso(ns, a->iso);
		a->second = ns / 1000000000;
	} else {
		a->iso[20] = (char)('0' + ms / 100);
		a->iso[21] = (char)('0' + ms / 10 % 10);
		a->iso[22] = (char)('0' + ms % 10);
	}
	return a->iso;
}

static void common(struct json *j, const char *key, const char *text)
{
	if (text)
		jout_strn(j, key, text, strnlen(text, FIELD_MAX));
}

struct json *audit_begin(struct audit *a, const struct audit_rec *r)
{
	struct json *j = &a->json;
	size_t max = a->pending.max;

	assert(!a->open && r->kind);
	a->open = true;
	a->start = a->pending.len;
	*j = (struct json)JSON_INIT(&a->pending);
	jout_object(j, NULL);
	jout_u64(j, "seq", a->chain.head.seq + 1);
	jout_str(j, "time", now_iso(a));
	jout_u64(j, "mono_ns", clock_mono_ns());
	common(j, "kind", r->kind);
	common(j, "tenant", r->tenant);
	common(j, "token", r->token);
	common(j, "request_id", r->request_id);
	common(j, "sandbox", r->sandbox);
	common(j, "exec", r->exec);
	a->common = a->pending.len;
	if (j->r < 0 && a->r == 0)
		a->r = j->r; /* out of memory: the next flush returns it */
	/* What the caller adds leaves room for the end. */
	a->pending.max = a->start + AUDIT_LINE_MAX - TAIL_MAX;
	assert(a->pending.max <= max);
	return j;
}

static int finish(struct audit *a)
{
	uint64_t seq = a->chain.head.seq + 1;
	struct buf *b = &a->pending;
	char hash[65];
	int r;

	if (a->json.r == -ENOMEM)
		return -ENOMEM;
	if (a->json.r < 0) {
		buf_cut(b, a->common);
		r = buf_adds(b, ",\"cut\":true");
		if (r < 0)
			return r;
	}
	r = buf_addf(b, ",\"prev\":\"%s\"", a->chain.head.hash);
	if (r < 0)
		return r;
	r = chain_hash(&a->chain, b->data + a->start, b->len - a->start, hash);
	if (r < 0)
		return r;
	r = buf_addf(b, ",\"hash\":\"%s\"}\n", hash);
	if (r < 0)
		return r;
	r = audit_index_add(a, seq, a->size + a->start);
	if (r < 0)
		return r;
	a->chain.head.seq = seq;
	memcpy(a->chain.head.hash, hash, sizeof(hash));
	return 0;
}

void audit_end(struct audit *a, struct audit_head *ret)
{
	int r;

	assert(a->open && (a->json.r < 0 || a->json.depth == 1));
	a->open = false;
	a->pending.max = PENDING_MAX + AUDIT_LINE_MAX;
	r = a->r < 0 ? a->r : finish(a);
	if (r < 0) {
		buf_cut(&a->pending, a->start);
		a->r = r;
	}
	if (ret)
		*ret = a->chain.head;
	if (a->pending.len > PENDING_MAX)
		audit_flush(a, NULL); /* a failure stays in ->r */
}

static int write_pending(struct audit *a)
{
	size_t done = 0;

	while (done < a->pending.len) {
		ssize_t n = sys_write(a->fd, a->pending.data + done, a->pending.len - done);

		if (n == -EINTR)
			continue;
		if (n <= 0) {
			int r = n ? (int)n : -ENOSPC;

			/* The file never has a part of a turn, so that it can be read, and written to again, at any time. */
			if (done && sys_ftruncate(a->fd, (off_t)a->size) < 0)
				a->r = r;
			return r;
		}
		done += (size_t)n;
	}
	return 0;
}

int audit_flush(struct audit *a, struct err *e)
{
	int r = a->r;

	assert(!a->open);
	if (r == 0 && a->pending.len)
		r = write_pending(a);
	if (r < 0) {
		err_sys(e, room_lacks(r) ? ERR_EXHAUSTED : ERR_INTERNAL, r, "write the audit log");
		if (room_lacks(r))
			err_remedy(e, "free some space on the disk of the data folder");
		else
			a->r = r;
		return r;
	}
	a->size += a->pending.len;
	a->written = a->chain.head.seq;
	buf_clear(&a->pending);
	keep_ahead(a);
	return 0;
}

uint64_t audit_room(const struct audit *a)
{
	const uint64_t end = a->size + a->pending.len;

	return a->ahead > end ? a->ahead - end : 0;
}

uint64_t audit_written(const struct audit *a)
{
	return a->written;
}

int audit_fd(const struct audit *a)
{
	return a->fd;
}

const struct audit_head *audit_head(const struct audit *a)
{
	return &a->chain.head;
}
