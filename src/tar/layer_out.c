/*
 * Changes as one layer of an image: the reverse of layer.c. What is gone is an empty file ".wh.NAME"; what has become of
 * another type needs none, since whoever unpacks it replaces what is in the way. The layer is not compressed, so it has one digest.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/sha256.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

struct layer_out {
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
	struct layer_out *x = arg;
	int r = fd_write_all(TAR_STREAM, data, len);

	sha256_add(&x->sum, data, len);
	x->r->in += len;
	if (r < 0) {
		archive_set_error(a, -r, "cannot write the layer");
		return -1;
	}
	return (la_ssize_t)len;
}

static int failed(struct layer_out *x, struct err *e)
{
	const char *text = archive_error_string(x->a);

	return err_set(e, ERR_INTERNAL, -EIO, "%s", text ? text : "cannot write the layer");
}

static int put_head(struct layer_out *x, struct err *e)
{
	return archive_write_header(x->a, x->entry) < ARCHIVE_WARN ? failed(x, e) : 0;
}

/* Made by the agent for each sandbox, and no part of what its user has changed. */
static bool is_ours(const char *path)
{
	static const char place[] = "/run/cloche";
	const size_t n = sizeof(place) - 1;

	return !strncmp(path, place, n) && (!path[n] || path[n] == '/');
}

static int put_gone(struct layer_out *x, const struct change_entry *c, struct err *e)
{
	const char *name = strrchr(c->path, '/') + 1;
	char path[CHANGE_PATH_MAX + 8];

	snprintf(path, sizeof(path), "%.*s.wh.%s", (int)(name - c->path - 1), c->path + 1, name);
	archive_entry_clear(x->entry);
	archive_entry_copy_pathname(x->entry, path);
	archive_entry_set_mode(x->entry, S_IFREG | 0600);
	archive_entry_set_mtime(x->entry, 0, 0);
	archive_entry_set_size(x->entry, 0);
	return put_head(x, e);
}

static void put_facts(struct archive_entry *n, const struct change_entry *c)
{
	struct change_xattr a;
	uint32_t at = 0;

	archive_entry_clear(n);
	archive_entry_copy_pathname(n, c->path + 1);
	archive_entry_set_mode(n, (__LA_MODE_T)c->mode);
	archive_entry_set_uid(n, c->uid);
	archive_entry_set_gid(n, c->gid);
	archive_entry_set_mtime(n, (time_t)(c->mtime / 1000000000 - (c->mtime % 1000000000 < 0)),
				(long)((c->mtime % 1000000000 + 1000000000) % 1000000000));
	archive_entry_set_size(n, 0);
	while (change_xattr_next(c, &at, &a))
		archive_entry_xattr_add_entry(n, a.name, a.value, a.len);
}

/* Holes become zeros: not every program that reads images knows sparse files. */
static int put_file(struct layer_out *x, const struct change_entry *c, struct err *e)
{
	const char *first =
		c->nlink > 1 ? links_find(x->links, c->dev, c->ino, archive_entry_pathname(x->entry)) : NULL;
	const uint64_t size = c->size;
	uint64_t at = 0;
	ssize_t n;
	int r;

	if (first) {
		archive_entry_copy_hardlink(x->entry, first);
		return put_head(x, e);
	}
	if (x->o->max_bytes && size > x->o->max_bytes - x->r->bytes)
		return err_set(e, ERR_TOO_LARGE, -EFBIG, "more than %llu bytes", (unsigned long long)x->o->max_bytes);
	x->r->bytes += size;
	archive_entry_set_size(x->entry, (la_int64_t)size);
	r = put_head(x, e);
	if (r < 0)
		return r;
	while ((n = changes_data(&x->c, size, &at, x->piece, sizeof(x->piece), e)) > 0)
		if (archive_write_data(x->a, x->piece, (size_t)n) != (la_ssize_t)n)
			return failed(x, e);
	return (int)n;
}

static int put(struct layer_out *x, const struct change_entry *c, struct err *e)
{
	const bool left_out = S_ISSOCK(c->mode) || S_ISCHR(c->mode) || S_ISBLK(c->mode);

	if (is_ours(c->path))
		return 0;
	if (left_out)
		tar_skip(x->r, c->path, S_ISSOCK(c->mode) ? "a socket" : "a device");
	if (c->what == CHANGE_REMOVED || (left_out && c->flags & CHANGE_REPLACED))
		return put_gone(x, c, e);
	if (left_out)
		return 0;
	put_facts(x->entry, c);
	if (!S_ISDIR(c->mode))
		x->r->files++;
	if (S_ISREG(c->mode))
		return put_file(x, c, e);
	if (S_ISLNK(c->mode))
		archive_entry_copy_symlink(x->entry, c->target);
	return put_head(x, e);
}

static int open_archive(struct layer_out *x, struct err *e)
{
	bool ok;

	x->a = archive_write_new();
	x->entry = archive_entry_new();
	x->links = links_new();
	sha256_init(&x->sum);
	x->c.fd = TAR_FILES;
	if (!x->a || !x->entry || !x->links)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	ok = archive_write_set_format_pax_restricted(x->a) == ARCHIVE_OK &&
	     archive_write_set_bytes_per_block(x->a, 65536) == ARCHIVE_OK &&
	     archive_write_set_bytes_in_last_block(x->a, 1) == ARCHIVE_OK &&
	     archive_write_open2(x->a, x, NULL, give, NULL, NULL) == ARCHIVE_OK;
	return ok ? 0 : failed(x, e);
}

int tar_layer_out(const struct tar_opts *o, struct tar_result *res, struct err *e)
{
	static struct layer_out x;
	uint8_t sum[SHA256_SIZE];
	struct change_entry c;
	uint64_t n = 0;
	int r;

	x.o = o;
	x.r = res;
	r = open_archive(&x, e);
	while (r == 0 && (r = changes_entry(&x.c, &c, e)) == 1) {
		if (o->max_entries && n++ >= o->max_entries)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %llu entries",
				       (unsigned long long)o->max_entries);
		r = put(&x, &c, e);
	}
	if (r < 0)
		return r;
	if (archive_write_close(x.a) != ARCHIVE_OK)
		return failed(&x, e);
	sha256_end(&x.sum, sum);
	memcpy(res->digest, "sha256:", 7);
	for (size_t i = 0; i < sizeof(sum); i++)
		snprintf(res->digest + 7 + 2 * i, 3, "%02x", sum[i]);
	memcpy(res->diff, res->digest, sizeof(res->diff));
	res->out = res->in;
	return 0;
}
