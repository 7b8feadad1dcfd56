/* Entries of archives that are made as they are: with owner, all of the mode, time and extended attributes. */
#include "tar/tar.h"
#include "base/base.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

bool tar_is_mounted(const char *path)
{
	static const char *const places[] = { "proc", "sys", "dev" };

	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		size_t n = strlen(places[i]);

		if (!strncmp(path, places[i], n) && (!path[n] || path[n] == '/'))
			return true;
	}
	return false;
}

static int odd(const char *name, const char *what, struct err *e)
{
	return err_set(e, ERR_INVALID, -EBADMSG, "'%.100s': %s", name, what);
}

/* "./a//b/" as "a/b", behind the prefix. */
static int place(const char *prefix, const char *name, char ret[CHANGE_PATH_MAX], struct err *e)
{
	size_t at = strlen(prefix);
	const char *p = name;

	while (*p == '/')
		p++;
	if (*p && !tar_name_ok(p))
		return err_set(e, ERR_INVALID, -EXDEV, "the name '%.100s' points outside the folder", name);
	if (at >= CHANGE_PATH_MAX)
		return odd(name, "the name is too long", e);
	memcpy(ret, prefix, at);
	while (*p) {
		size_t n = strcspn(p, "/");

		if (n && !(n == 1 && *p == '.')) {
			if (at + n + 2 > CHANGE_PATH_MAX)
				return odd(name, "the name is too long", e);
			if (at)
				ret[at++] = '/';
			memcpy(ret + at, p, n);
			at += n;
		}
		p += n;
		while (*p == '/')
			p++;
	}
	ret[at] = '\0';
	return 0;
}

static int xattrs(struct archive_entry *n, struct thing_room *room, struct thing *t, struct err *e)
{
	struct change_xattr a;
	const void *value;
	size_t len;

	archive_entry_xattr_reset(n);
	t->xattrs = room->xattrs;
	while (archive_entry_xattr_next(n, &a.name, &value, &len) == ARCHIVE_OK) {
		long put;

		a.value = value;
		a.len = (uint32_t)len;
		put = len > CHANGE_XATTRS_MAX || !a.name || !*a.name || strlen(a.name) > 255 ?
			      -EMSGSIZE :
			      change_xattr_encode(&a, room->xattrs + t->xattrs_len,
						  sizeof(room->xattrs) - t->xattrs_len);
		if (put < 0)
			return odd(t->path, "more extended attributes than fit", e);
		t->xattrs_len += (uint32_t)put;
	}
	return 0;
}

static const char *refused(struct archive_entry *n)
{
	switch (archive_entry_filetype(n)) {
	case AE_IFREG:
	case AE_IFDIR:
	case AE_IFLNK:
	case AE_IFIFO:
		return NULL;
	case AE_IFSOCK:
		return "a socket";
	default:
		return "a device";
	}
}

int thing_of(struct archive_entry *n, const char *prefix, struct thing_room *room, struct tar_result *r,
	     struct thing *ret, struct err *e)
{
	const char *name = archive_entry_pathname(n), *to = archive_entry_hardlink(n), *why = to ? NULL : refused(n);
	struct thing t = { .path = room->path, .target = archive_entry_symlink(n) };
	int64_t sec = archive_entry_mtime(n), uid = archive_entry_uid(n), gid = archive_entry_gid(n);
	int k;

	if (!name)
		return err_set(e, ERR_INVALID, -EBADMSG, "an entry has a name that cannot be read");
	if (why) {
		tar_skip(r, name, "%s", why);
		return 0;
	}
	k = place(prefix, name, room->path, e);
	if (k < 0)
		return k;
	if (strlen(room->path) <= strlen(prefix))
		return 0; /* the folder itself */
	if (to) {
		k = place(prefix, to, room->link, e);
		if (k < 0)
			return k;
		t.link = room->link;
	}
	if (uid < 0 || uid > 65535 || gid < 0 || gid > 65535)
		return odd(name, "an owner that is not allowed in a sandbox", e);
	if (sec > INT64_MAX / 1000000000 - 1 || sec < INT64_MIN / 1000000000 + 1)
		return odd(name, "an invalid time", e);
	t.mtime = sec * 1000000000 + archive_entry_mtime_nsec(n);
	t.mode = to ? S_IFREG : (uint32_t)archive_entry_mode(n);
	t.uid = (uint32_t)uid;
	t.gid = (uint32_t)gid;
	k = to ? 0 : xattrs(n, room, &t, e);
	if (k < 0)
		return k;
	*ret = t;
	return 1;
}
