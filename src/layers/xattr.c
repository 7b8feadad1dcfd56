/* Copies, sums up and packs extended attributes, with ids shifted where they contain some. */
#include "layers/xattr.h"
#include "base/base.h"
#include "layers/tree.h"
#include "proto/change.h"

#include <linux/capability.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define LIST_MAX 65536
#define VALUE_MAX 65536
static_assert(LIST_MAX + VALUE_MAX <= XATTR_BUF && XATTR_BUF <= TREE_BUF, "one buffer does for all");

/*
 * Of overlay's own attributes, only those that hide lower files: the others (origin of a copy-up, link counts) refer to
 * the mount they were made in.
 */
static bool wanted(const char *name)
{
	static const char *const known[] = { "security.capability",	 "system.posix_acl_access",
					     "system.posix_acl_default", "trusted.overlay.opaque",
					     "trusted.overlay.whiteout", "trusted.overlay.redirect" };

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (!strcmp(name, known[i]))
			return true;
	return !strncmp(name, "user.", 5);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put32(uint8_t *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

/*
 * Version 3 names the id that is root in the user namespace where they are valid. Version 2 is valid for root of every
 * sandbox.
 */
static size_t shift_caps(uint8_t *v, size_t n, uint32_t base)
{
	uint32_t magic;

	if (n != XATTR_CAPS_SZ_3)
		return n;
	magic = get32(v);
	if ((magic & VFS_CAP_REVISION_MASK) != VFS_CAP_REVISION_3 || get32(v + 20) != base)
		return n;
	put32(v, VFS_CAP_REVISION_2 | (magic & ~VFS_CAP_REVISION_MASK));
	return XATTR_CAPS_SZ_2;
}

/* An access list is a version, then entries of tag, rights and id: tags 2 and 8 name a user and a group. */
static void shift_acl(uint8_t *v, size_t n, uint32_t base)
{
	for (size_t at = 4; at + 8 <= n; at += 8) {
		uint32_t id = get32(v + at + 4);

		if ((v[at] == 2 || v[at] == 8) && id >= base && id - base < TREE_IDS)
			put32(v + at + 4, id - base);
	}
}

/*
 * ext4 and others keep all attributes of a file in one block, and return ENOSPC when that is full: the disk itself may
 * have room.
 */
static bool has_room(int fd)
{
	const int was = errno;
	struct statvfs v;
	const bool room = fstatvfs(fd, &v) == 0 && v.f_bavail > 0;

	errno = was;
	return room;
}

static int copy_one(int from, int to, const char *name, uint32_t base, uint8_t *value)
{
	ssize_t n = fgetxattr(from, name, value, VALUE_MAX);

	if (n < 0)
		return -errno;
	if (!strcmp(name, "security.capability"))
		n = (ssize_t)shift_caps(value, (size_t)n, base);
	else if (!strncmp(name, "system.posix_acl_", 17))
		shift_acl(value, (size_t)n, base);
	if (fsetxattr(to, name, value, (size_t)n, 0) == 0)
		return 0;
	return errno == ENOSPC && has_room(to) ? -ERANGE : -errno;
}

/* Reads the names into @ret of LIST_MAX bytes. A filesystem without attributes has none. */
static ssize_t list(int fd, char *ret)
{
	ssize_t n = flistxattr(fd, ret, LIST_MAX);

	return n >= 0 ? n : errno == EOPNOTSUPP ? 0 : -errno;
}

int xattr_copy(int from, int to, uint32_t uid_base, char *buf)
{
	char *names = buf;
	ssize_t n = list(from, names);
	int r = 0;

	for (const char *p = names; n > 0 && r == 0 && p < names + n; p += strlen(p) + 1)
		if (wanted(p))
			r = copy_one(from, to, p, uid_base, (uint8_t *)buf + LIST_MAX);
	return n < 0 ? (int)n : r;
}

bool xattr_none(int fd)
{
	char names[512];
	ssize_t n = flistxattr(fd, names, sizeof(names));

	if (n < 0)
		return errno == EOPNOTSUPP;
	for (const char *p = names; p < names + n; p += strlen(p) + 1)
		if (wanted(p))
			return false;
	return true;
}

int xattr_disinherit(int fd)
{
	static const char *const lists[] = { "system.posix_acl_access", "system.posix_acl_default" };

	for (size_t i = 0; i < ARRAY_LEN(lists) && !xattr_none(fd); i++)
		if (fremovexattr(fd, lists[i]) < 0 && errno != ENODATA && errno != EOPNOTSUPP)
			return -errno;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int xattr_sum(int fd, char *buf, struct sha256 *s)
{
	char *names = buf, *value = buf + LIST_MAX;
	AUTO_FREE const char **sorted = NULL;
	ssize_t n = list(fd, names);
	size_t count = 0;

	if (n <= 0)
		return (int)n;
	for (const char *p = names; p < names + n; p += strlen(p) + 1)
		count += wanted(p);
	if (!count)
		return 0;
	sorted = malloc(count * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	count = 0;
	for (const char *p = names; p < names + n; p += strlen(p) + 1)
		if (wanted(p))
			sorted[count++] = p;
	qsort(sorted, count, sizeof(*sorted), by_name);
	for (size_t i = 0; i < count; i++) {
		ssize_t len = fgetxattr(fd, sorted[i], value, VALUE_MAX);
		uint64_t size = (uint64_t)len;

		if (len < 0)
			return -errno;
		sha256_add(s, sorted[i], strlen(sorted[i]) + 1);
		sha256_add(s, &size, sizeof(size));
		sha256_add(s, value, (size_t)len);
	}
	return 0;
}

long xattr_pack(int fd, uint32_t uid_base, char *buf, uint8_t *ret, size_t room)
{
	char *names = buf, *value = buf + LIST_MAX;
	AUTO_FREE const char **sorted = NULL;
	ssize_t n = list(fd, names);
	size_t count = 0, at = 0;

	if (n <= 0)
		return (long)n;
	sorted = malloc((size_t)n * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	for (const char *p = names; p < names + n; p += strlen(p) + 1)
		if (wanted(p) && strncmp(p, "trusted.", 8))
			sorted[count++] = p;
	qsort(sorted, count, sizeof(*sorted), by_name);
	for (size_t i = 0; i < count; i++) {
		ssize_t len = fgetxattr(fd, sorted[i], value, VALUE_MAX);
		struct change_xattr x = { sorted[i], (const uint8_t *)value, 0 };
		long put;

		if (len < 0)
			return -errno;
		if (uid_base && !strcmp(x.name, "security.capability"))
			len = (ssize_t)shift_caps((uint8_t *)value, (size_t)len, uid_base);
		else if (uid_base && !strncmp(x.name, "system.posix_acl_", 17))
			shift_acl((uint8_t *)value, (size_t)len, uid_base);
		x.len = (uint32_t)len;
		put = change_xattr_encode(&x, ret + at, room - at);
		if (put < 0)
			return put;
		at += (size_t)put;
	}
	return (long)at;
}
