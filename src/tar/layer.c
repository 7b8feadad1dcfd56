/*
 * One layer of an image: the files of a sandbox, which has those of the layers below, become what the layer says. A layer is
 * an archive that strangers have made; layer_hash.c gives its bytes to this process, uncompressed, and knows their digests.
 *
 * What cannot be in a sandbox is left out and named: devices, and what is below /proc, /sys and /dev, which sandboxes have of
 * their own. Names that lead out, owners that a sandbox cannot have, and what breaks a bound are the end.
 */
#include "tar/tar.h"
#include "base/base.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>
#include <unistd.h>

#define RATIO 1000U /* files of more bytes than that for each of the archive are no disks with holes */
#define HOLES_FROM (4096 * MIB)

struct layer {
	const struct tar_opts *o;
	struct maker m;
	uint64_t bytes, entries; /* of the archive, so far */
	struct made *made; /* NULL: there is no layer below */
	struct archive *a;
	struct content content; /* of the file under way */
	uint8_t xattrs[CHANGE_XATTRS_MAX];
};

static la_ssize_t get(struct archive *a, void *arg, const void **ret)
{
	static uint8_t buf[256U * 1024U];
	struct layer *x = arg;
	ssize_t n;

	do
		n = read(TAR_STREAM, buf, sizeof(buf));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		archive_set_error(a, EIO, "its bytes cannot be read");
	else
		x->bytes += (uint64_t)n;
	*ret = buf;
	return n;
}

static int bad(struct layer *x, struct err *e)
{
	const char *text = archive_error_string(x->a);

	return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "a layer of the image is not a valid archive: %s",
		       text ? text : "no reason given");
}

static int refuse(const char *name, const char *what, struct err *e)
{
	return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "'%.100s' in a layer of the image: %s", name, what);
}

static ssize_t read_content(void *arg, uint8_t *buf, size_t room, struct err *e)
{
	struct layer *x = arg;
	ssize_t n = content_read(&x->content, x->a, buf, room);

	return n < 0 ? bad(x, e) : n;
}

/* As a path from the root: without "." and empty parts. "" is the root itself. */
static int clean(const char *name, char ret[FILE_PATH_MAX], struct err *e)
{
	size_t len = 0;
	unsigned depth = 0;

	for (const char *p = name; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2))
			return refuse(name, "a name that points outside", e);
		if (n && !(n == 1 && *p == '.')) {
			if (len + n + 2 > FILE_PATH_MAX || n > 255 || ++depth > LAYER_DEPTH)
				return refuse(name, "a name that is too long or too deep", e);
			if (len)
				ret[len++] = '/';
			memcpy(ret + len, p, n);
			len += n;
		}
		p += n + (p[n] == '/');
	}
	ret[len] = '\0';
	return 0;
}

static bool carried(const char *name)
{
	return !strncmp(name, "user.", 5) || !strcmp(name, "security.capability") ||
	       !strcmp(name, "system.posix_acl_access") || !strcmp(name, "system.posix_acl_default");
}

static int take_xattrs(struct layer *x, struct archive_entry *n, struct thing *t, struct err *e)
{
	struct change_xattr a;
	const void *value;
	size_t len;

	archive_entry_xattr_reset(n);
	t->xattrs = x->xattrs;
	while (archive_entry_xattr_next(n, &a.name, &value, &len) == ARCHIVE_OK) {
		long put;

		if (!a.name || !carried(a.name) || S_ISLNK(t->mode))
			continue;
		a.value = value;
		a.len = (uint32_t)len;
		put = len > CHANGE_XATTRS_MAX || strlen(a.name) > 255 ?
			      -EMSGSIZE :
			      change_xattr_encode(&a, x->xattrs + t->xattrs_len, sizeof(x->xattrs) - t->xattrs_len);
		if (put < 0)
			return refuse(t->path, "more extended attributes than fit", e);
		t->xattrs_len += (uint32_t)put;
	}
	return 0;
}

static int take_facts(struct archive_entry *n, struct thing *t, struct err *e)
{
	const int64_t sec = archive_entry_mtime(n);

	if (archive_entry_uid(n) < 0 || archive_entry_uid(n) > 65535 || archive_entry_gid(n) < 0 ||
	    archive_entry_gid(n) > 65535)
		return refuse(t->path, "its owner is not one of the 65536 that a sandbox has", e);
	t->mtime = sec > INT64_MAX / 1000000000 - 1 || sec < INT64_MIN / 1000000000 + 1 ?
			   0 :
			   sec * 1000000000 + archive_entry_mtime_nsec(n);
	t->uid = (uint32_t)archive_entry_uid(n);
	t->gid = (uint32_t)archive_entry_gid(n);
	return 0;
}

/* Whether files of @content bytes in all, holes included, are in proportion to what has come so far. */
static int allow(const struct layer *x, uint64_t content, struct err *e)
{
	if (x->o->max_bytes && content > x->o->max_bytes)
		return err_set(e, ERR_TOO_LARGE, -EFBIG, "the files of a layer have more than %llu bytes",
			       (unsigned long long)x->o->max_bytes);
	if (content > HOLES_FROM && content / RATIO > x->bytes)
		return err_set(e, WHY_IMAGE_INVALID, -EFBIG, "the files of a layer have more than %u times its size",
			       RATIO);
	return 0;
}

static int put(struct layer *x, struct archive_entry *n, struct err *e)
{
	const char *name = archive_entry_pathname(n), *to = archive_entry_hardlink(n), *last;
	char path[FILE_PATH_MAX], link[FILE_PATH_MAX];
	struct thing t = { .path = path, .target = archive_entry_symlink(n), .read = read_content, .arg = x };
	int r = name ? clean(name, path, e) : refuse("?", "a name that cannot be read", e);

	if (r == 0 && to)
		r = clean(to, link, e);
	if (r)
		return r;
	t.mode = to ? S_IFREG : (uint32_t)archive_entry_mode(n);
	if (tar_is_mounted(path) || (to && tar_is_mounted(link))) {
		if (!S_ISDIR(t.mode))
			tar_skip(x->m.r, path, "sandboxes have their own");
		return 0;
	}
	last = strrchr(path, '/');
	last = last ? last + 1 : path;
	if (!strncmp(last, ".wh.", 4))
		return x->made ? whiteout_apply(x->made, &x->m, path, e) : 0;
	if (S_ISCHR(t.mode) || S_ISBLK(t.mode) || S_ISSOCK(t.mode)) {
		tar_skip(x->m.r, path, S_ISSOCK(t.mode) ? "a socket" : "a device");
		return 0;
	}
	r = take_facts(n, &t, e);
	if (r == 0)
		r = take_xattrs(x, n, &t, e);
	if (r == 0 && x->made)
		r = made_add(x->made, path, e);
	if (r < 0)
		return r;
	if (to) {
		if (!*link)
			return refuse(name, "a link to the root", e);
		t.link = link;
	}
	x->content = content_of(n);
	if (allow(x, x->m.r->bytes + x->content.size, e) < 0)
		return -EFBIG;
	return *path || !S_ISDIR(t.mode) ? make_thing(&x->m, &t, e) : make_root(&x->m, &t, e);
}

static int open_layer(struct layer *x, struct err *e)
{
	x->made = x->o->lowest ? NULL : made_new();
	x->a = archive_read_new();
	if ((!x->made && !x->o->lowest) || !x->a)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	if (archive_read_support_format_tar(x->a) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -ENOSYS, "libarchive lacks tar");
	/* An archive with nothing in it is a layer, too. */
	if (archive_read_support_format_empty(x->a) != ARCHIVE_OK)
		return err_set(e, ERR_INTERNAL, -ENOSYS, "libarchive lacks tar");
	return archive_read_open(x->a, x, NULL, get, NULL) == ARCHIVE_OK ? 0 : bad(x, e);
}

int tar_layer(const struct tar_opts *o, struct host *h, struct tar_result *res, struct err *e)
{
	static struct layer x;
	struct archive_entry *n;
	const void *rest;
	int r, got = ARCHIVE_OK;

	x.o = o;
	x.m = (struct maker){
		.h = h, .r = res, .max_bytes = o->max_bytes, .max_entries = o->max_entries, .rooted = true
	};
	r = open_layer(&x, e);
	while (r == 0 && (got = archive_read_next_header(x.a, &n)) != ARCHIVE_EOF) {
		/* A warning is about a name in another character set, which is taken as it is. */
		if (got < ARCHIVE_WARN || got == ARCHIVE_RETRY)
			r = bad(&x, e);
		else if (o->max_entries && x.entries++ >= o->max_entries) /* also those that make nothing */
			r = err_set(e, ERR_TOO_LARGE, -E2BIG, "a layer of the image has more than %llu entries",
				    (unsigned long long)o->max_entries);
		else
			r = put(&x, n, e);
	}
	if (r == 0)
		r = make_finish(&x.m, e);
	/* Its digest is of all bytes, wherever the archive says that it ends. */
	while (r == 0 && get(x.a, &x, &rest) > 0)
		;
	return r;
}
