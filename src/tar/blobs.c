/*
 * An archive of images, of `docker save` or an OCI layout, or of one root filesystem, comes as a stream, and its parts in any
 * order. So it is kept as it comes (--raw), for the case that it is itself a layer, and what may be a part of an image is
 * copied out of it (--blobs), one part behind the other. The result says which, and where:
 *
 *	"found": [{"name": "blobs/sha256/…", "at": 0, "size": 1234}, …]
 *
 * Nothing is believed of it: whoever reads a part knows its digest, or takes it from one whose digest it knows.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/json.h"

#include <archive.h>
#include <archive_entry.h>
#include <poll.h>
#include <unistd.h>

#define PARTS_MAX 4096U
#define TEXT_MAX (1U << 20)
#define TAR_RAW TAR_FILES
#define TAR_BLOBS TAR_MANIFEST

struct blobs {
	struct archive *a;
	uint64_t raw, max, at;
	unsigned parts;
	int r; /* of reading or writing */
	struct json j;
	uint8_t buf[256 * 1024], piece[65536];
};

static int full(struct err *e, int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -EFBIG ?
		       err_set(e, ERR_TOO_LARGE, r, "the archive does not fit on the disk of the data folder") :
		       err_sys(e, ERR_LOST, r, "cannot copy the archive");
}

static ssize_t read_raw(struct blobs *x)
{
	for (;;) {
		struct pollfd p = { .fd = TAR_STREAM, .events = POLLIN };
		ssize_t n = read(TAR_STREAM, x->buf, sizeof(x->buf));

		if (n > 0 && x->max && (uint64_t)n > x->max - x->raw)
			return x->r = -EFBIG;
		if (n > 0) {
			x->raw += (uint64_t)n;
			x->r = fd_write_all(TAR_RAW, x->buf, (size_t)n);
			return x->r < 0 ? x->r : n;
		}
		if (n == 0)
			return 0;
		if (errno == EAGAIN)
			poll(&p, 1, -1);
		else if (errno != EINTR)
			return x->r = -errno;
	}
}

static la_ssize_t get(struct archive *a, void *arg, const void **ret)
{
	struct blobs *x = arg;
	ssize_t n = read_raw(x);

	if (n < 0)
		archive_set_error(a, EIO, "cannot read the archive");
	*ret = x->buf;
	return n;
}

static bool ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* By its name alone: files of a root filesystem are copied in vain if they are called so. */
static bool is_part(const char *name)
{
	return !strncmp(name, "blobs/sha256/", 13) || !strcmp(name, "oci-layout") ||
	       (!strchr(name, '/') && (ends_in(name, ".json") || ends_in(name, ".tar"))) || ends_in(name, "/layer.tar");
}

static int copy(struct blobs *x, struct archive_entry *n, const char *name, struct err *e)
{
	struct content c = content_of(n);
	uint64_t size = 0;
	ssize_t got;

	if (x->parts++ == PARTS_MAX)
		return err_set(e, WHY_ARCHIVE_INVALID, -E2BIG, "the archive has more than %u parts", PARTS_MAX);
	while ((got = content_read(&c, x->a, x->piece, sizeof(x->piece))) > 0) {
		int r;

		size += (uint64_t)got;
		if (x->max && x->at + size > x->max)
			return full(e, -EFBIG);
		r = fd_write_all(TAR_BLOBS, x->piece, (size_t)got);
		if (r < 0)
			return full(e, r);
	}
	if (got < 0)
		return x->r < 0 ? full(e, x->r) :
				  err_set(e, WHY_ARCHIVE_INVALID, -EBADMSG, "'%.100s' of the archive cannot be read",
					  name);
	jout_object(&x->j, NULL);
	jout_str(&x->j, "name", name);
	jout_u64(&x->j, "at", x->at);
	jout_u64(&x->j, "size", size);
	jout_end(&x->j);
	x->at += size;
	return 0;
}

static int look(struct blobs *x, struct archive_entry *n, struct err *e)
{
	const char *name = archive_entry_pathname(n);

	while (name && name[0] == '.' && name[1] == '/')
		name += 2;
	if (!name || archive_entry_filetype(n) != AE_IFREG || archive_entry_hardlink(n) || strlen(name) > 200 ||
	    !is_part(name))
		return 0;
	return copy(x, n, name, e);
}

/* How it is compressed is the library's to find out; xz and bzip2 only if it has them itself. */
static int open_archive(struct blobs *x, struct err *e)
{
	x->a = archive_read_new();
	if (!x->a)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	if (archive_read_support_filter_gzip(x->a) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(x->a) != ARCHIVE_OK || archive_read_support_format_tar(x->a) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -ENOSYS, "libarchive lacks tar, gzip or zstd");
	return archive_read_open(x->a, x, NULL, get, NULL) == ARCHIVE_OK ? 0 : -EBADMSG;
}

int tar_blobs(const struct tar_opts *o, struct tar_result *res, struct err *e)
{
	static struct blobs x;
	struct archive_entry *n;
	int r, got;

	res->found = (struct buf)BUF_INIT(TEXT_MAX);
	res->has_found = true;
	x.max = o->max_bytes;
	x.j = (struct json)JSON_INIT(&res->found);
	jout_array(&x.j, NULL);
	r = open_archive(&x, e);
	while (r == 0 && (got = archive_read_next_header(x.a, &n)) != ARCHIVE_EOF) {
		if (got < ARCHIVE_WARN || got == ARCHIVE_RETRY) {
			r = -EBADMSG;
			break;
		}
		r = look(&x, n, e);
	}
	if (r == -EBADMSG && x.r == 0 && !e->msg[0])
		r = err_set(e, WHY_ARCHIVE_INVALID, r, "not an archive of an image or of a root filesystem: %s",
			    archive_error_string(x.a) ? archive_error_string(x.a) : "no reason given");
	else if (r < 0 && x.r < 0)
		r = full(e, x.r);
	while (r == 0 && (got = (int)read_raw(&x)) != 0)
		if (got < 0)
			r = full(e, got);
	jout_end(&x.j);
	if (r == 0 && jout_done(&x.j) < 0)
		r = err_set(e, WHY_ARCHIVE_INVALID, -E2BIG, "the archive has too many parts");
	res->bytes = x.raw;
	return r;
}
