/*
 * The reverse of pack.c, and strict: what pack.c would not write is refused. The manifest goes to the parent process;
 * the sandbox that the rest is made in may come to be only then, so the file worker is first spoken to after that.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/sha256.h"

#include <archive.h>
#include <archive_entry.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 65536U

struct unpack {
	struct archive *a;
	struct maker m;
	struct sha256 sum;
	struct content content; /* of the file under way */
	bool ended, whole;
	size_t held; /* of ->buf, at its start: they may be the trailer */
	uint8_t buf[TRAILER + BLOCK];
	uint8_t out[BLOCK];
	uint8_t xattrs[CHANGE_XATTRS_MAX];
};

/* Bytes of the file, without the trailer, which is looked at when they end. */
static la_ssize_t get(struct archive *a, void *arg, const void **ret)
{
	struct unpack *x = arg;

	while (!x->ended) {
		ssize_t n = read(TAR_STREAM, x->buf + x->held, BLOCK);
		struct pollfd p = { .fd = TAR_STREAM, .events = POLLIN };
		size_t have;

		if (n < 0 && errno == EAGAIN) {
			poll(&p, 1, -1);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			archive_set_error(a, errno, "cannot read the archive");
			return -1;
		}
		if (n == 0) {
			uint8_t sum[SHA256_SIZE];

			sha256_end(&x->sum, sum);
			x->ended = true;
			x->whole = x->held == TRAILER && trailer_ok(x->buf, sum);
			break;
		}
		have = x->held + (size_t)n;
		if (have <= TRAILER) {
			x->held = have;
			continue;
		}
		memcpy(x->out, x->buf, have - TRAILER);
		memmove(x->buf, x->buf + have - TRAILER, TRAILER);
		x->held = TRAILER;
		sha256_add(&x->sum, x->out, have - TRAILER);
		*ret = x->out;
		return (la_ssize_t)(have - TRAILER);
	}
	return 0;
}

static int bad(struct unpack *x, struct err *e)
{
	const char *text = archive_error_string(x->a);

	return err_set(e, ERR_INVALID, -EBADMSG, "not a complete export of a checkpoint: %s",
		       text ? text : "no reason given");
}

static int odd(const char *name, const char *what, struct err *e)
{
	return err_set(e, ERR_INVALID, -EBADMSG, "'%.100s': %s", name, what);
}

static int open_archive(struct unpack *x, struct err *e)
{
	sha256_init(&x->sum);
	x->a = archive_read_new();
	if (!x->a)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	if (archive_read_support_filter_zstd(x->a) != ARCHIVE_OK || archive_read_support_format_tar(x->a) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -ENOSYS, "libarchive lacks tar or zstd");
	return archive_read_open(x->a, x, NULL, get, NULL) == ARCHIVE_OK ? 0 : bad(x, e);
}

/* 1, or 0 after the last. */
static int next(struct unpack *x, struct archive_entry **ret, struct err *e)
{
	int r = archive_read_next_header(x->a, ret);

	if (r == ARCHIVE_EOF)
		return 0;
	if (r != ARCHIVE_OK)
		return bad(x, e);
	if (archive_filter_count(x->a) != 2)
		return err_set(e, ERR_INVALID, -EBADMSG, "it must be compressed once, with zstd");
	return archive_entry_pathname(*ret) ? 1 : odd("?", "it contains a name that cannot be read", e);
}

static int give_manifest(struct unpack *x, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MANIFEST_MAX);
	struct archive_entry *n;
	la_ssize_t got = 0;
	int r = next(x, &n, e);

	if (r < 0)
		return r;
	if (r == 0 || strcmp(archive_entry_pathname(n), "manifest.json") || archive_entry_filetype(n) != AE_IFREG)
		return err_set(e, ERR_INVALID, -EBADMSG, "it does not start with a manifest");
	while (r >= 0 && (got = archive_read_data(x->a, x->m.h->in, BLOCK)) > 0)
		r = buf_add(&b, x->m.h->in, (size_t)got);
	if (r < 0)
		return err_set(e, ERR_INVALID, -E2BIG, "its manifest is too long");
	if (got < 0)
		return bad(x, e);
	r = fd_write_all(TAR_MANIFEST, b.data, b.len);
	close(TAR_MANIFEST);
	return r < 0 ? err_set(e, ERR_LOST, r, "no process reads the manifest") : 0;
}

static ssize_t read_content(void *arg, uint8_t *buf, size_t room, struct err *e)
{
	struct unpack *x = arg;
	ssize_t n = content_read(&x->content, x->a, buf, room);

	return n < 0 ? bad(x, e) : n;
}

static int take_xattrs(struct unpack *x, struct archive_entry *n, struct thing *t, struct err *e)
{
	struct change_xattr a;
	const void *value;
	size_t len;

	archive_entry_xattr_reset(n);
	t->xattrs = x->xattrs;
	while (archive_entry_xattr_next(n, &a.name, &value, &len) == ARCHIVE_OK) {
		long put;

		a.value = value;
		a.len = (uint32_t)len;
		put = len > CHANGE_XATTRS_MAX || !a.name || !*a.name || strlen(a.name) > 255 ?
			      -EMSGSIZE :
			      change_xattr_encode(&a, x->xattrs + t->xattrs_len, sizeof(x->xattrs) - t->xattrs_len);
		if (put < 0)
			return odd(t->path, "more extended attributes than fit", e);
		t->xattrs_len += (uint32_t)put;
	}
	return 0;
}

/* The name below fs/, or NULL. */
static const char *inside(const char *name)
{
	return name && !strncmp(name, "fs/", 3) && name[3] ? name + 3 : NULL;
}

static int put(struct unpack *x, struct archive_entry *n, struct err *e)
{
	const char *name = archive_entry_pathname(n), *to = archive_entry_hardlink(n);
	char path[CHANGE_PATH_MAX];
	struct thing t = {
		.path = path, .target = archive_entry_symlink(n), .link = inside(to), .read = read_content, .arg = x
	};
	int64_t sec = archive_entry_mtime(n);
	size_t len;

	if (!inside(name) || (to && !t.link))
		return odd(name, "invalid name of a checkpoint", e);
	len = strlen(inside(name));
	while (len && inside(name)[len - 1] == '/')
		len--; /* folders may be written so */
	if (!len || len >= sizeof(path))
		return odd(name, "invalid name of a checkpoint", e);
	memcpy(path, inside(name), len);
	path[len] = '\0';
	if (archive_entry_filetype(n) == AE_IFCHR && !archive_entry_rdev(n) && !to)
		return make_thing(&x->m, &t, e);
	if (archive_entry_uid(n) < 0 || archive_entry_uid(n) > 65535 || archive_entry_gid(n) < 0 ||
	    archive_entry_gid(n) > 65535)
		return odd(name, "an owner that is not allowed in a sandbox", e);
	if (sec > INT64_MAX / 1000000000 - 1 || sec < INT64_MIN / 1000000000 + 1)
		return odd(name, "an invalid time", e);
	t.mtime = sec * 1000000000 + archive_entry_mtime_nsec(n);
	t.mode = to ? S_IFREG : (uint32_t)archive_entry_mode(n);
	t.uid = (uint32_t)archive_entry_uid(n);
	t.gid = (uint32_t)archive_entry_gid(n);
	x->content = content_of(n);
	if (take_xattrs(x, n, &t, e) < 0)
		return -EBADMSG;
	return make_thing(&x->m, &t, e);
}

int tar_unpack(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	static struct unpack x;
	struct archive_entry *n;
	const void *rest;
	int r, got = 0;

	x.m = (struct maker){ .h = h, .r = res, .max_bytes = o->max_bytes, .max_entries = o->max_entries };
	r = open_archive(&x, e);
	if (r == 0)
		r = give_manifest(&x, e);
	while (r == 0 && (got = next(&x, &n, e)) == 1)
		r = put(&x, n, e);
	if (r == 0)
		r = got;
	if (r == 0)
		r = make_finish(&x.m, e);
	while (r == 0 && get(x.a, &x, &rest) > 0)
		;
	if (r == 0 && !x.whole)
		r = err_set(e, ERR_INVALID, -EBADMSG, "its checksum is wrong: the file is incomplete, or was changed");
	return r;
}
