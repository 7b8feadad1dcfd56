/*
 * An archive whose files are made with everything that it says of them: the context of a build, and local archives that
 * ADD unpacks. Nothing is left out but devices and sockets.
 */
#include "tar/tar.h"
#include "base/base.h"

#include <archive.h>
#include <archive_entry.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

struct reading {
	const struct tree_in *t;
	struct archive *a;
	struct content content;
	struct err why; /* of the source */
};

static la_ssize_t get(struct archive *a, void *arg, const void **ret)
{
	struct reading *x = arg;
	ssize_t n = x->t->read(x->t->arg, ret, &x->why);

	if (n < 0)
		archive_set_error(a, EIO, "%s", x->why.msg);
	return n;
}

static int bad(struct reading *x, struct err *e)
{
	const char *text = archive_error_string(x->a);

	return err_set(e, ERR_INVALID, -EBADMSG, "the archive cannot be read: %s", text ? text : "no reason given");
}

static int open_archive(struct reading *x, struct err *e)
{
	x->a = archive_read_new();
	if (!x->a)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	/* Anything but ARCHIVE_OK would mean that another program is asked to unpack. */
	if (archive_read_support_filter_zstd(x->a) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(x->a) != ARCHIVE_OK ||
	    archive_read_support_filter_bzip2(x->a) != ARCHIVE_OK ||
	    archive_read_support_filter_xz(x->a) != ARCHIVE_OK || archive_read_support_format_tar(x->a) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -ENOSYS, "libarchive lacks tar or a compression");
	return archive_read_open(x->a, x, NULL, get, NULL) == ARCHIVE_OK ? 0 : bad(x, e);
}

static ssize_t read_content(void *arg, uint8_t *buf, size_t room, struct err *e)
{
	struct reading *x = arg;
	ssize_t n = content_read(&x->content, x->a, buf, room);

	return n < 0 ? bad(x, e) : n;
}

static int put(struct reading *x, struct archive_entry *n, struct maker *m, struct err *e)
{
	static struct thing_room room;
	struct thing t;
	int r = thing_of(n, x->t->prefix, &room, m->r, &t, e);

	if (r <= 0)
		return r;
	if (x->t->uid)
		t.uid = *x->t->uid;
	if (x->t->gid)
		t.gid = *x->t->gid;
	t.under = x->t->under;
	x->content = content_of(n);
	t.read = read_content;
	t.arg = x;
	return make_thing(m, &t, e);
}

int tree_in(const struct tree_in *t, struct maker *m, struct err *e)
{
	struct reading x = { .t = t };
	struct archive_entry *n;
	bool any = false;
	int r = open_archive(&x, e);

	/* Bytes that have no form at all are refused at once. */
	if (r == -EBADMSG && t->ret_is && !x.why.msg[0]) {
		*t->ret_is = false;
		archive_read_free(x.a);
		return 0;
	}
	while (r == 0) {
		int got = archive_read_next_header(x.a, &n);

		/* The first entry decides: what is no archive has none. */
		if (t->ret_is && !any && (got == ARCHIVE_EOF || got < ARCHIVE_WARN) && !x.why.msg[0]) {
			*t->ret_is = false;
			break;
		}
		if (got == ARCHIVE_EOF)
			break;
		if (got < ARCHIVE_WARN || got == ARCHIVE_RETRY) {
			r = bad(&x, e);
			break;
		}
		if (!any && t->begin)
			r = t->begin(t->arg, e);
		any = true;
		if (r < 0)
			break;
		if (archive_filter_count(x.a) > 2)
			r = err_set(e, ERR_INVALID, -EBADMSG, "the archive is compressed more than once");
		else
			r = put(&x, n, m, e);
	}
	archive_read_free(x.a);
	return r;
}

static ssize_t read_stream(void *arg, const void **ret, struct err *e)
{
	static uint8_t buf[65536];

	(void)arg;
	for (;;) {
		ssize_t n = read(TAR_STREAM, buf, sizeof(buf));
		struct pollfd p = { .fd = TAR_STREAM, .events = POLLIN };

		*ret = buf;
		if (n >= 0)
			return n;
		if (errno == EAGAIN)
			poll(&p, 1, -1);
		else if (errno != EINTR)
			return err_sys(e, ERR_LOST, -errno, "read the archive");
	}
}

int tar_context(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	static const uint32_t root = 0;
	struct maker m = { .h = h, .r = res, .max_bytes = o->max_bytes, .max_entries = o->max_entries, .rooted = true };
	/* Whoever packed it: in an image, files of the context are root's. */
	const struct tree_in t = { .read = read_stream, .prefix = TAR_CONTEXT + 1, .uid = &root, .gid = &root };
	const struct thing top = { .path = TAR_CONTEXT + 1, .mode = S_IFDIR | 0755 };
	const void *rest;
	int r = make_thing(&m, &top, e);

	if (r == 0)
		r = tree_in(&t, &m, e);
	if (r == 0)
		r = make_finish(&m, e);
	/* The sender must be able to send all of it. */
	while (r == 0 && read_stream(NULL, &rest, e) > 0)
		;
	return r;
}
