/* Uncompresses a layer, gzip or zstd, in a process of its own: see layer_hash.c. */
#include "tar/tar.h"
#include "base/base.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#define TAR_OUT TAR_FILES /* where the bytes go */

static la_ssize_t get(struct archive *a, void *arg, const void **ret)
{
	static uint8_t buf[256U * 1024U];
	ssize_t n;

	(void)arg;
	do
		n = read(TAR_STREAM, buf, sizeof(buf));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		archive_set_error(a, EIO, "cannot read the layer");
	*ret = buf;
	return n;
}

static int bad(struct archive *a, struct err *e)
{
	const char *text = archive_error_string(a);

	return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "a layer of the image cannot be read: %s",
		       text ? text : "no reason given");
}

static int begin(struct archive *a, struct err *e)
{
	struct archive_entry *n;

	/* Anything but ARCHIVE_OK would mean that another program is asked to unpack. */
	if (archive_read_support_filter_gzip(a) != ARCHIVE_OK || archive_read_support_filter_zstd(a) != ARCHIVE_OK ||
	    archive_read_support_format_raw(a) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -ENOSYS, "libarchive lacks gzip or zstd");
	if (archive_read_open(a, NULL, NULL, get, NULL) != ARCHIVE_OK || archive_read_next_header(a, &n) != ARCHIVE_OK)
		return bad(a, e);
	if (archive_filter_count(a) > 2)
		return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "a layer of the image is compressed more than once");
	return 0;
}

int tar_layer_unzip(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	struct archive *a = archive_read_new();
	const void *p;
	la_int64_t at;
	size_t n;
	int r = a ? begin(a, e) : err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory"), got = ARCHIVE_OK;

	(void)o;
	(void)h;
	while (r == 0 && (got = archive_read_data_block(a, &p, &n, &at)) == ARCHIVE_OK) {
		r = fd_write_all(TAR_OUT, p, n);
		if (r < 0)
			err_sys(e, ERR_LOST, r, "cannot pass on the layer");
		res->bytes += n;
	}
	if (r == 0 && got != ARCHIVE_EOF)
		r = bad(a, e);
	close(TAR_OUT);
	/* All of it is read, wherever the compressed data end: the digest is of all. */
	while (r == 0 && get(a, NULL, &p) > 0)
		;
	return r;
}
