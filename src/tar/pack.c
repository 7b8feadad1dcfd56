/*
 * A checkpoint as one file: a tar, packed by zstd, then the trailer (tar.h). manifest.json is the first entry; below
 * fs/ is what differs from the image. What is gone is a character device 0:0 of that name, as overlay has it; what has
 * become of another type is gone first. Sockets are left out.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/sha256.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>
#include <unistd.h>

struct pack {
	const struct tar_opts *o;
	struct tar_result *r;
	struct archive *a;
	struct archive_entry *entry;
	struct links *links;
	struct sha256 sum;
	struct changes c;
	uint8_t piece[CHANGE_DATA_MAX];
};

static la_ssize_t give(struct archive *a, void *arg, const void *data, size_t len)
{
	struct pack *x = arg;
	int r = fd_write_all(TAR_STREAM, data, len);

	sha256_add(&x->sum, data, len);
	if (r < 0) {
		archive_set_error(a, -r, "cannot write the archive");
		return -1;
	}
	return (la_ssize_t)len;
}

static int failed(struct pack *x, struct err *e)
{
	const char *text = archive_error_string(x->a);

	return err_set(e, ERR_INTERNAL, -EIO, "%s", text ? text : "cannot write the archive");
}

static int open_archive(struct pack *x, struct err *e)
{
	bool ok;

	x->a = archive_write_new();
	x->entry = archive_entry_new();
	x->links = links_new();
	sha256_init(&x->sum);
	x->c.fd = TAR_FILES;
	if (!x->a || !x->entry || !x->links)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	ok = archive_write_set_format_pax(x->a) == ARCHIVE_OK && archive_write_add_filter_zstd(x->a) == ARCHIVE_OK &&
	     archive_write_set_bytes_per_block(x->a, 65536) == ARCHIVE_OK &&
	     archive_write_set_bytes_in_last_block(x->a, 1) == ARCHIVE_OK &&
	     archive_write_open2(x->a, x, NULL, give, NULL, NULL) == ARCHIVE_OK;
	return ok ? 0 : failed(x, e);
}

static int put_head(struct pack *x, struct err *e)
{
	return archive_write_header(x->a, x->entry) < ARCHIVE_WARN ? failed(x, e) : 0;
}

static int put_manifest(struct pack *x, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MANIFEST_MAX);
	ssize_t n;
	int r;

	for (;;) {
		n = read(TAR_MANIFEST, x->piece, sizeof(x->piece));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (buf_add(&b, x->piece, (size_t)n) < 0)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "the manifest is too long");
	}
	if (n < 0 || !b.len)
		return err_set(e, ERR_INTERNAL, -EIO, "the manifest cannot be read");
	archive_entry_clear(x->entry);
	archive_entry_set_pathname(x->entry, "manifest.json");
	archive_entry_set_mode(x->entry, S_IFREG | 0644);
	archive_entry_set_size(x->entry, (la_int64_t)b.len);
	r = put_head(x, e);
	if (r == 0 && archive_write_data(x->a, b.data, b.len) != (la_ssize_t)b.len)
		r = failed(x, e);
	return r;
}

static void name_entry(struct pack *x, const struct change_entry *c)
{
	char name[CHANGE_PATH_MAX + 4];

	snprintf(name, sizeof(name), "fs%s", c->path);
	archive_entry_clear(x->entry);
	archive_entry_copy_pathname(x->entry, name);
}

static int put_gone(struct pack *x, const struct change_entry *c, struct err *e)
{
	name_entry(x, c);
	archive_entry_set_mode(x->entry, S_IFCHR);
	archive_entry_set_rdevmajor(x->entry, 0);
	archive_entry_set_rdevminor(x->entry, 0);
	archive_entry_set_size(x->entry, 0);
	return put_head(x, e);
}

static void put_attrs(struct archive_entry *n, const struct change_entry *c)
{
	struct change_xattr a;
	uint32_t at = 0;

	archive_entry_set_mode(n, (__LA_MODE_T)c->mode);
	archive_entry_set_uid(n, c->uid);
	archive_entry_set_gid(n, c->gid);
	archive_entry_set_mtime(n, (time_t)(c->mtime / 1000000000 - (c->mtime % 1000000000 < 0)),
				(long)((c->mtime % 1000000000 + 1000000000) % 1000000000));
	archive_entry_set_size(n, 0);
	while (change_xattr_next(c, &at, &a))
		archive_entry_xattr_add_entry(n, a.name, a.value, a.len);
}

/* Holes are described by the ranges of data; the library still needs all bytes, and writes only the data. */
static int put_content(struct pack *x, uint64_t size, struct err *e)
{
	uint64_t at = 0;
	ssize_t n;

	while ((n = changes_data(&x->c, size, &at, x->piece, sizeof(x->piece), e)) > 0)
		if (archive_write_data(x->a, x->piece, (size_t)n) != (la_ssize_t)n)
			return failed(x, e);
	return (int)n;
}

static int put_file(struct pack *x, const struct change_entry *c, struct err *e)
{
	const char *first =
		c->nlink > 1 ? links_find(x->links, c->dev, c->ino, archive_entry_pathname(x->entry)) : NULL;
	const uint64_t size = c->size;
	int r;

	if (first) {
		archive_entry_copy_hardlink(x->entry, first);
		return put_head(x, e);
	}
	if (x->o->max_bytes && size > x->o->max_bytes - x->r->bytes)
		return err_set(e, ERR_TOO_LARGE, -EFBIG, "more than %llu bytes", (unsigned long long)x->o->max_bytes);
	x->r->bytes += size;
	archive_entry_set_size(x->entry, (la_int64_t)size);
	for (uint32_t i = 0; i < c->nextents; i++) {
		uint64_t offset, len;

		change_extent(c, i, &offset, &len);
		archive_entry_sparse_add_entry(x->entry, (la_int64_t)offset, (la_int64_t)len);
	}
	r = put_head(x, e);
	return r < 0 ? r : put_content(x, size, e);
}

static int put(struct pack *x, const struct change_entry *c, struct err *e)
{
	int r = 0;

	if (S_ISSOCK(c->mode) || S_ISCHR(c->mode) || S_ISBLK(c->mode)) {
		tar_skip(x->r, c->path, S_ISSOCK(c->mode) ? "a socket" : "a device");
		return c->flags & CHANGE_REPLACED ? put_gone(x, c, e) : 0; /* what it took the place of is gone */
	}
	if (c->what == CHANGE_REMOVED)
		return put_gone(x, c, e);
	if (c->flags & CHANGE_REPLACED)
		r = put_gone(x, c, e);
	if (r < 0)
		return r;
	name_entry(x, c);
	put_attrs(x->entry, c);
	if (!S_ISDIR(c->mode))
		x->r->files++;
	if (S_ISREG(c->mode))
		return put_file(x, c, e);
	if (S_ISLNK(c->mode))
		archive_entry_copy_symlink(x->entry, c->target);
	return put_head(x, e);
}

int tar_pack(const struct tar_opts *o, struct tar_result *res, struct err *e)
{
	static struct pack x;
	uint8_t sum[SHA256_SIZE], end[TRAILER];
	struct change_entry c;
	uint64_t n = 0;
	int r;

	x.o = o;
	x.r = res;
	r = open_archive(&x, e);
	if (r == 0)
		r = put_manifest(&x, e);
	while (r == 0 && (r = changes_entry(&x.c, &c, e)) == 1) {
		if (o->max_entries && n++ >= o->max_entries)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %llu entries",
				       (unsigned long long)o->max_entries);
		r = put(&x, &c, e);
	}
	if (r < 0)
		return r; /* nothing is closed: that would make it look whole */
	if (archive_write_close(x.a) != ARCHIVE_OK)
		return failed(&x, e);
	sha256_end(&x.sum, sum);
	trailer_put(end, sum);
	return fd_write_all(TAR_STREAM, end, sizeof(end)) < 0 ?
		       err_set(e, ERR_INTERNAL, -EIO, "cannot write the archive") :
		       0;
}
