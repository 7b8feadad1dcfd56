/*
 * From an archive into a sandbox. Names that lead elsewhere (absolute, "..", through a link out of the folder) end it
 * with an error; what cannot be made (devices, things in the way) is left out and named. Folders get their modes and
 * times last, since what is made in them would change both.
 */
#include "tar/tar.h"
#include "base/base.h"

#include <archive.h>
#include <archive_entry.h>
#include <poll.h>
#include <unistd.h>

#define CHUNK FILE_DATA_MAX

struct folder {
	struct folder *next;
	int64_t mtime;
	uint32_t mode;
	unsigned flags;
	char name[];
};

struct in {
	const struct tar_opts *o;
	struct host *h;
	struct tar_result *r;
	struct archive *a;
	struct folder *folders; /* the last first: children before parents */
	uint64_t entries;
	uint8_t chunk[CHUNK];
};

static la_ssize_t get(struct archive *a, void *arg, const void **ret)
{
	static uint8_t buf[65536];

	(void)arg;
	for (;;) {
		ssize_t n = read(TAR_STREAM, buf, sizeof(buf));
		struct pollfd p = { .fd = TAR_STREAM, .events = POLLIN };

		if (n >= 0) {
			*ret = buf;
			return n;
		}
		if (errno == EAGAIN) {
			poll(&p, 1, -1);
		} else if (errno != EINTR) {
			archive_set_error(a, errno, "cannot read the archive");
			return -1;
		}
	}
}

static int bad_archive(struct in *x, struct err *e)
{
	const char *text = archive_error_string(x->a);

	return err_set(e, ERR_INVALID, -EBADMSG, "the archive cannot be read: %s", text ? text : "no reason given");
}

static int open_archive(struct in *x, struct err *e)
{
	x->a = archive_read_new();
	if (!x->a)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	/* Anything but ARCHIVE_OK would mean that another program is asked to unpack. */
	if (archive_read_support_filter_zstd(x->a) != ARCHIVE_OK || archive_read_support_format_tar(x->a) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -ENOSYS, "libarchive lacks tar or zstd");
	return archive_read_open(x->a, x, NULL, get, NULL) == ARCHIVE_OK ? 0 : bad_archive(x, e);
}

/* What a worker's answer means for the whole: 0 to continue (the failure is recorded), or -errno to stop. */
static int judge(struct in *x, int r, const char *name, struct err *e)
{
	switch (-r) {
	case 0:
		return 0;
	case EREMOTEIO:
		return r; /* e is set */
	case EXDEV:
		return err_set(e, ERR_INVALID, r, "'%.100s' points outside the folder", name);
	case ENOSPC:
	case EDQUOT:
	case EROFS:
	case EIO:
	case ENOMEM:
		return err_sys(e, r == -EROFS ? ERR_INVALID : ERR_TOO_LARGE, r, "'%.100s': cannot %s", name,
			       file_step_text(x->h->end.step));
	default:
		tar_skip(x->r, name, "cannot %s: %s", file_step_text(x->h->end.step), strerror(-r));
		return 0;
	}
}

static int make(struct in *x, enum file_type type, unsigned flags, struct file_request *q, struct err *e)
{
	int r;

	q->under = x->o->path;
	r = host_ask(x->h, type, flags | FILE_BENEATH, q, e);
	return r < 0 ? r : host_wait(x->h, e);
}

/* The bytes of a file, as they come. Returns 0, or -errno that stops everything; *ret says how the worker took it. */
static int send_bytes(struct in *x, struct content *c, int *ret, struct err *e)
{
	uint64_t bytes = 0;

	while (!host_answered(x->h)) {
		ssize_t n = content_read(c, x->a, x->chunk, CHUNK);
		int r = 0;

		if (n == 0) {
			r = host_send(x->h, FILE_END, NULL, 0, e);
			if (r < 0)
				return r;
			*ret = host_wait(x->h, e);
			x->r->bytes += *ret == 0 ? bytes : 0;
			return 0;
		}
		if (n < 0)
			r = bad_archive(x, e);
		else if (x->o->max_bytes && (uint64_t)n > x->o->max_bytes - x->r->bytes - bytes)
			r = err_set(e, ERR_TOO_LARGE, -EFBIG, "more than %llu bytes",
				    (unsigned long long)x->o->max_bytes);
		if (r < 0) {
			host_send(x->h, FILE_ABORT, NULL, 0, NULL);
			host_wait(x->h, NULL);
			return r;
		}
		r = host_send(x->h, FILE_DATA, x->chunk, (size_t)n, e);
		if (r < 0)
			return r;
		bytes += (uint64_t)n;
	}
	/* It failed early. */
	*ret = host_wait(x->h, e);
	return *ret == -EREMOTEIO ? *ret : host_send(x->h, FILE_ABORT, NULL, 0, e);
}

static int put_file(struct in *x, struct content c, struct file_request *q, unsigned flags, struct err *e)
{
	int r, told = 0;

	q->under = x->o->path;
	r = host_ask(x->h, FILE_WRITE, flags | FILE_BENEATH | FILE_PARENTS, q, e);
	if (r == 0)
		r = send_bytes(x, &c, &told, e);
	if (r == 0)
		r = judge(x, told, q->path, e);
	if (r == 0 && told == 0)
		x->r->files++;
	return r;
}

static int put_folder(struct in *x, struct file_request *q, unsigned flags, struct err *e)
{
	struct folder *d;
	/* For now we must be able to write into it. */
	struct file_request now = { .path = q->path, .mode = 0700 };
	int told = make(x, FILE_MKDIR, FILE_PARENTS | FILE_MODE, &now, e), r = judge(x, told, q->path, e);

	if (r < 0 || told < 0)
		return r;
	d = malloc(sizeof(*d) + strlen(q->path) + 1);
	if (!d)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	*d = (struct folder){ x->folders, q->mtime, q->mode, flags };
	memcpy(d->name, q->path, strlen(q->path) + 1);
	x->folders = d;
	return 0;
}

static int put_link(struct in *x, enum file_type type, struct file_request *q, unsigned flags, struct err *e)
{
	int told, r;

	if (strlen(q->to) >= FILE_PATH_MAX || !*q->to) {
		tar_skip(x->r, q->path, "a link without a target");
		return 0;
	}
	if (type == FILE_LINK && !tar_name_ok(q->to))
		return err_set(e, ERR_INVALID, -EXDEV, "the link '%.100s' points outside the folder", q->path);
	told = make(x, type, FILE_PARENTS | (type == FILE_LINK ? 0 : flags & FILE_MTIME), q, e);
	r = judge(x, told, q->path, e);
	x->r->files += told == 0;
	return r;
}

static const char *plain(const char *name)
{
	while (name && name[0] == '.' && name[1] == '/')
		for (name += 2; *name == '/'; name++)
			;
	return name;
}

static int put(struct in *x, struct archive_entry *n, struct err *e)
{
	const char *name = plain(archive_entry_pathname(n)), *to = plain(archive_entry_hardlink(n));
	unsigned flags = FILE_MODE | (archive_entry_mtime_is_set(n) ? (unsigned)FILE_MTIME : 0U);
	struct file_request q = { .path = name, .mode = (uint32_t)archive_entry_perm(n) & 0777 };
	int64_t sec = archive_entry_mtime(n);

	if (!name)
		return err_set(e, ERR_INVALID, -EBADMSG, "an entry has a name that cannot be read");
	if (!*name || !strcmp(name, "."))
		return 0; /* the folder itself */
	if (!tar_name_ok(name))
		return err_set(e, ERR_INVALID, -EXDEV, "the name '%.100s' points outside the folder", name);
	if (strlen(name) >= FILE_PATH_MAX) {
		tar_skip(x->r, name, "the name is too long");
		return 0;
	}
	if (sec > INT64_MAX / 1000000000 - 1 || sec < INT64_MIN / 1000000000 + 1)
		flags &= ~(unsigned)FILE_MTIME;
	else
		q.mtime = sec * 1000000000 + archive_entry_mtime_nsec(n);
	if (to) {
		q.to = to;
		return put_link(x, FILE_LINK, &q, flags, e);
	}
	switch (archive_entry_filetype(n)) {
	case AE_IFREG:
		return put_file(x, content_of(n), &q, flags, e);
	case AE_IFDIR:
		return put_folder(x, &q, flags, e);
	case AE_IFLNK:
		q.to = archive_entry_symlink(n);
		if (!q.to)
			q.to = "";
		return put_link(x, FILE_SYMLINK, &q, flags, e);
	case AE_IFIFO:
		tar_skip(x->r, name, "a FIFO");
		return 0;
	case AE_IFSOCK:
		tar_skip(x->r, name, "a socket");
		return 0;
	default:
		tar_skip(x->r, name, "a device");
		return 0;
	}
}

/* Modes and times of folders; one that something else has replaced meanwhile is left alone. */
static int finish(struct in *x, struct err *e)
{
	for (struct folder *d = x->folders; d; d = d->next) {
		struct file_request q = { .path = d->name, .mode = d->mode, .mtime = d->mtime };
		int r = make(x, FILE_ATTR, d->flags, &q, e);

		if (r == -EREMOTEIO)
			return r;
	}
	return 0;
}

int tar_in(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	static struct in x;
	struct archive_entry *n;
	const void *rest;
	int r;

	x = (struct in){ .o = o, .h = h, .r = res };
	r = open_archive(&x, e);
	if (r == 0) {
		r = host_ask(h, FILE_MKDIR, FILE_PARENTS, &(struct file_request){ .path = o->path }, e);
		if (r == 0)
			r = host_wait(h, e);
		if (r < 0 && r != -EREMOTEIO)
			err_sys(e, ERR_INVALID, r, "cannot %s", file_step_text(h->end.step));
	}
	while (r == 0) {
		int got = archive_read_next_header(x.a, &n);

		if (got == ARCHIVE_EOF)
			break;
		if (got < ARCHIVE_WARN || got == ARCHIVE_RETRY)
			return bad_archive(&x, e);
		if (archive_filter_count(x.a) > 2)
			return err_set(e, ERR_INVALID, -EBADMSG, "the archive is compressed more than once");
		if (o->max_entries && x.entries++ >= o->max_entries)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %llu entries",
				       (unsigned long long)o->max_entries);
		r = put(&x, n, e);
	}
	if (r == 0)
		r = finish(&x, e);
	/* The sender must be able to send all of it. */
	while (r == 0 && get(x.a, &x, &rest) > 0)
		;
	return r;
}
