/* From a sandbox to an archive: one LIST with contents gives everything in order, so nothing is kept but links. */
#include "tar/tar.h"
#include "base/base.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

struct out {
	const struct tar_opts *o;
	struct host *h;
	struct tar_result *r;
	struct archive *a;
	struct archive_entry *entry;
	struct links *links;
	uint64_t left; /* bytes that may follow the entry sent last */
	bool drop; /* they are read and dropped */
};

static la_ssize_t give(struct archive *a, void *arg, const void *data, size_t len)
{
	int r = fd_write_all(TAR_STREAM, data, len);

	(void)arg;
	if (r < 0) {
		archive_set_error(a, -r, "cannot write the archive");
		return -1;
	}
	return (la_ssize_t)len;
}

static int archive_failed(struct out *x, struct err *e)
{
	const char *text = archive_error_string(x->a);

	return err_set(e, ERR_INTERNAL, -EIO, "%s", text ? text : "cannot write the archive");
}

static int open_archive(struct out *x, struct err *e)
{
	bool ok;

	x->a = archive_write_new();
	x->entry = archive_entry_new();
	x->links = links_new();
	if (!x->a || !x->entry || !x->links)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	ok = archive_write_set_format_pax(x->a) == ARCHIVE_OK &&
	     (!x->o->zstd || archive_write_add_filter_zstd(x->a) == ARCHIVE_OK) &&
	     archive_write_set_bytes_per_block(x->a, 65536) == ARCHIVE_OK &&
	     archive_write_set_bytes_in_last_block(x->a, 1) == ARCHIVE_OK &&
	     archive_write_open2(x->a, NULL, NULL, give, NULL, NULL) == ARCHIVE_OK;
	return ok ? 0 : archive_failed(x, e);
}

static const char *odd(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
		return NULL;
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	default:
		return "a device";
	}
}

/* Begins an entry. What cannot be in an archive is named, its bytes are dropped. */
static int begin(struct out *x, const struct file_entry *f, const char *name, struct err *e)
{
	const char *why = x->o->skip_dev && f->dev == x->o->skip_dev ? "a secret" : odd(f->mode), *first = NULL;
	struct archive_entry *n = x->entry;

	x->left = S_ISREG(f->mode) && !f->errnum ? f->size : 0;
	x->drop = true;
	if (why || f->errnum) {
		tar_skip(x->r, name, "%s", why ? why : strerror((int)f->errnum));
		if (why || S_ISREG(f->mode))
			return 0;
	}
	archive_entry_clear(n);
	archive_entry_copy_pathname(n, name);
	archive_entry_set_mode(n, (__LA_MODE_T)f->mode);
	archive_entry_set_uid(n, f->uid);
	archive_entry_set_gid(n, f->gid);
	archive_entry_set_mtime(n, (time_t)(f->mtime / 1000000000 - (f->mtime % 1000000000 < 0)),
				(long)((f->mtime % 1000000000 + 1000000000) % 1000000000));
	archive_entry_set_size(n, 0);
	if (S_ISLNK(f->mode))
		archive_entry_copy_symlink(n, f->target);
	if (S_ISREG(f->mode)) {
		first = f->nlink > 1 ? links_find(x->links, f->dev, f->ino, name) : NULL;
		if (first) {
			archive_entry_copy_hardlink(n, first);
		} else {
			if (x->o->max_bytes && f->size > x->o->max_bytes - x->r->bytes)
				return err_set(e, ERR_TOO_LARGE, -EFBIG, "more than %llu bytes",
					       (unsigned long long)x->o->max_bytes);
			archive_entry_set_size(n, (la_int64_t)f->size);
			x->r->bytes += f->size;
			x->drop = false;
		}
	}
	if (!S_ISDIR(f->mode))
		x->r->files++;
	return archive_write_header(x->a, n) < ARCHIVE_WARN ? archive_failed(x, e) : 0;
}

static int take(struct out *x, const struct file_frame *f, const char *base, bool *ret_first, struct err *e)
{
	struct file_entry entry;

	if (f->type == FILE_DATA) {
		if (f->len > x->left)
			return err_set(e, ERR_LOST, -EREMOTEIO,
				       "the sandbox's file worker sends more data than announced");
		x->left -= f->len;
		if (!x->drop && archive_write_data(x->a, f->payload, f->len) != (la_ssize_t)f->len)
			return archive_failed(x, e);
		return 0;
	}
	if (f->type != FILE_ENTRY || file_entry_decode(f, &entry) < 0)
		return err_set(e, ERR_LOST, -EREMOTEIO, "protocol error from the sandbox's file worker");
	if (*ret_first) {
		*ret_first = false;
		if (S_ISDIR(entry.mode))
			return 0; /* the folder itself: it exists where the archive is unpacked */
		return begin(x, &entry, base, e);
	}
	if (!tar_name_ok(entry.path))
		return err_set(e, ERR_LOST, -EREMOTEIO,
			       "the sandbox's file worker sends a name that points outside the folder");
	return begin(x, &entry, entry.path, e);
}

static int run(struct out *x, struct err *e)
{
	uint32_t max = x->o->max_entries && x->o->max_entries < UINT32_MAX ? (uint32_t)x->o->max_entries : 0;
	const struct file_request q = { .path = x->o->path, .depth = UINT32_MAX, .max = max };
	const char *base = strrchr(x->o->path, '/') ? strrchr(x->o->path, '/') + 1 : x->o->path;
	bool first = true;
	struct file_frame f;
	int r = host_ask(x->h, FILE_LIST, FILE_CONTENT, &q, e);

	while (r == 0) {
		r = host_next(x->h, &f, e);
		if (r < 0 || f.type == FILE_END)
			break;
		r = take(x, &f, *base ? base : "file", &first, e);
	}
	if (r < 0)
		return r;
	if (x->h->end.errnum)
		return err_sys(e, x->h->end.errnum == ENOENT ? ERR_NOT_FOUND : ERR_INVALID, -(int)x->h->end.errnum,
			       "cannot %s", file_step_text(x->h->end.step));
	if (x->h->end_flags & FILE_TRUNCATED) {
		if (max && x->h->end.count >= max)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u entries", max);
		tar_skip(x->r, "", "names that are too long");
	}
	return archive_write_close(x->a) == ARCHIVE_OK ? 0 : archive_failed(x, e);
}

int tar_out(const struct tar_opts *o, struct host *h, struct tar_result *r, struct err *e)
{
	struct out x = { .o = o, .h = h, .r = r };
	int n = open_archive(&x, e);

	/* Nothing is freed: the process ends, and closing an archive that failed would make it look whole. */
	return n < 0 ? n : run(&x, e);
}
