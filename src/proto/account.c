/* Finds users and groups in /etc/passwd and /etc/group of a sandbox. */
#include "proto/account.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/frame.h"

#include <sys/mman.h>
#include <sys/stat.h>

struct span {
	const char *at;
	size_t len;
};

bool account_id_ok(uint64_t id)
{
	return id <= ACCOUNT_ID_MAX && id != AGENT_UID;
}

/* Digits only. A number that is too long is larger than any id. */
static bool number(struct span s, uint64_t *ret)
{
	uint64_t v = 0;

	if (!s.len)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.at[i] < '0' || s.at[i] > '9')
			return false;
		v = v > UINT32_MAX ? v : v * 10 + (uint64_t)(s.at[i] - '0');
	}
	*ret = v;
	return true;
}

/* A name in these files: nothing that ends a field, a line or a word. */
static bool is_name(struct span s)
{
	if (!s.len || s.len >= ACCOUNT_NAME || *s.at == '-' || *s.at == '+')
		return false;
	for (size_t i = 0; i < s.len; i++)
		if ((unsigned char)s.at[i] <= ' ' || s.at[i] == 0x7f || strchr(":,/", s.at[i]))
			return false;
	return true;
}

static void split(const char *text, struct span *user, struct span *group)
{
	*user = (struct span){ text, strcspn(text, ":") };
	*group = (struct span){ NULL, 0 };
	if (text[user->len])
		*group = (struct span){ text + user->len + 1, strlen(text + user->len + 1) };
}

int account_check(const char *text)
{
	struct span user, group;
	uint64_t uid = 0, gid = 0;
	bool ids, gids;

	split(text, &user, &group);
	ids = number(user, &uid);
	gids = group.at && number(group, &gid);
	if ((ids && !account_id_ok(uid)) || (gids && !account_id_ok(gid)))
		return -ERANGE;
	if ((!ids && !is_name(user)) || (group.at && !gids && !is_name(group)))
		return -EINVAL;
	return ids && (!group.at || gids) ? -EINVAL : 0;
}

/* The next of what @end ends, out of @from; false: there is none left. */
static bool next(struct span *from, char end, struct span *ret)
{
	const char *p;

	if (!from->at)
		return false;
	p = memchr(from->at, end, from->len);
	*ret = (struct span){ from->at, p ? (size_t)(p - from->at) : from->len };
	if (p)
		*from = (struct span){ p + 1, from->len - ret->len - 1 };
	else
		*from = (struct span){ NULL, 0 };
	return true;
}

static bool same(struct span a, struct span b)
{
	return a.len == b.len && !memcmp(a.at, b.at, a.len);
}

/* The fields of a line, of which there have to be @n. */
static bool fields(struct span line, struct span *ret, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!next(&line, ':', &ret[i]))
			return false;
	return true;
}

/*
 * Finds a user by name, or by number when ->name is empty. The first line counts, as in other readers of these
 * files.
 */
static int find_user(struct span text, struct span name, struct account *ret)
{
	struct span line, f[6];
	uint64_t uid, gid;

	while (next(&text, '\n', &line)) {
		if (!fields(line, f, ARRAY_LEN(f)) || !same(f[0], name) || !number(f[2], &uid) || !number(f[3], &gid))
			continue;
		if (!account_id_ok(uid) || !account_id_ok(gid))
			return -ERANGE;
		if (f[5].len >= sizeof(ret->home) || memchr(f[5].at, 0, f[5].len))
			return -ENAMETOOLONG;
		ret->uid = (uint32_t)uid;
		ret->gid = (uint32_t)gid;
		memcpy(ret->name, name.at, name.len);
		ret->name[name.len] = '\0';
		memcpy(ret->home, f[5].at, f[5].len);
		ret->home[f[5].len] = '\0';
		if (!f[5].len)
			memcpy(ret->home, "/", 2);
		return 0;
	}
	return -ENOENT;
}

static int find_group(struct span text, struct span name, uint32_t *ret)
{
	struct span line, f[3];
	uint64_t gid;

	while (next(&text, '\n', &line)) {
		if (!fields(line, f, ARRAY_LEN(f)) || !same(f[0], name) || !number(f[2], &gid))
			continue;
		*ret = (uint32_t)gid;
		return account_id_ok(gid) ? 0 : -ERANGE;
	}
	return -ENOENT;
}

static int add_group(struct account *a, uint64_t gid)
{
	if (!account_id_ok(gid))
		return -ERANGE;
	for (uint32_t i = 0; i < a->ngroups; i++)
		if (a->groups[i] == gid)
			return 0;
	if (gid == a->gid)
		return 0;
	if (a->ngroups == ACCOUNT_GROUPS)
		return -E2BIG;
	a->groups[a->ngroups++] = (uint32_t)gid;
	return 0;
}

static int find_groups(struct span text, struct span name, struct account *ret)
{
	struct span line, f[4], one;
	uint64_t gid;
	int r = 0;

	while (r == 0 && next(&text, '\n', &line)) {
		if (!fields(line, f, ARRAY_LEN(f)) || !number(f[2], &gid))
			continue;
		while (r == 0 && next(&f[3], ',', &one))
			if (same(one, name))
				r = add_group(ret, gid);
	}
	return r;
}

bool account_lists(const char *text, size_t len, const char *name)
{
	struct span all = { text, len }, line, f[3];

	while (next(&all, '\n', &line))
		if (fields(line, f, ARRAY_LEN(f)) && same(f[0], (struct span){ name, strlen(name) }))
			return true;
	return false;
}

bool account_lists_id(const char *text, size_t len, uint32_t id)
{
	struct span all = { text, len }, line, f[3];
	uint64_t is;

	while (next(&all, '\n', &line))
		if (fields(line, f, ARRAY_LEN(f)) && number(f[2], &is) && is == id)
			return true;
	return false;
}

int account_find(const struct account_files *in, const char *text, struct account *ret, bool *ret_group)
{
	const struct span passwd = { in->passwd, in->passwd_len }, groups = { in->group, in->group_len };
	struct account a = { 0 };
	struct span user, group;
	uint64_t uid, gid;
	int r = account_check(text);

	*ret_group = false;
	if (r < 0)
		return r;
	split(text, &user, &group);
	if (number(user, &uid))
		a.uid = a.gid = (uint32_t)uid;
	else
		r = find_user(passwd, user, &a);
	if (r < 0)
		return r;
	*ret_group = true;
	if (!group.at)
		r = find_groups(groups, user, &a);
	else if (number(group, &gid))
		a.gid = (uint32_t)gid;
	else
		r = find_group(groups, group, &a.gid);
	if (r == 0)
		*ret = a;
	return r;
}

/* What it is, is known before it is opened: a FIFO or a device would do something by being opened. */
static int open_file(int root, const char *path, size_t *ret_size)
{
	const struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	AUTO_CLOSE int at = sys_openat2(root, path, &how);
	char name[40];
	struct stat st;

	if (at < 0)
		return at;
	if (fstat(at, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > (off_t)ACCOUNT_FILE_MAX)
		return -EFBIG;
	*ret_size = (size_t)st.st_size;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", at);
	return sys_openat(AT_FDCWD, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
}

int account_read(int root, const char *path, char **ret, size_t *ret_len, size_t *ret_room)
{
	size_t size = 0, n = 0;
	AUTO_CLOSE int fd = open_file(root, path, &size);
	ssize_t got = 1;
	char *text;

	*ret_len = *ret_room = 0;
	if (fd < 0 || !size)
		return fd == -ENOENT || fd >= 0 ? 0 : fd;
	text = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (text == MAP_FAILED)
		return -errno;
	while (got > 0 && n < size) {
		got = sys_read(fd, text + n, size - n);
		n += got > 0 ? (size_t)got : 0;
	}
	if (got < 0) {
		munmap(text, size);
		return (int)got;
	}
	*ret = text;
	*ret_len = n;
	*ret_room = size;
	return 0;
}

int account_look_up(int root, const char *text, struct account *ret, bool *ret_group)
{
	size_t room[2] = { 0, 0 };
	char *data[2] = { "", "" };
	struct account_files in = { 0 };
	int r;

	*ret_group = false;
	r = account_read(root, "/etc/passwd", &data[0], &in.passwd_len, &room[0]);
	if (r == 0) {
		*ret_group = true;
		r = account_read(root, "/etc/group", &data[1], &in.group_len, &room[1]);
	}
	in.passwd = data[0];
	in.group = data[1];
	if (r == 0)
		r = account_find(&in, text, ret, ret_group);
	for (unsigned i = 0; i < 2; i++)
		if (room[i])
			munmap(data[i], room[i]);
	return r;
}
