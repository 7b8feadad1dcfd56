/* Parses the files of control groups. */
#include "linux/cgroup_parse.h"
#include "base/base.h"
#include "linux/cgroup.h"

#include <limits.h>

static const struct {
	const char *name;
	enum cgroup_controller id;
} v1_controllers[] = {
	{ "memory", CGROUP_MEMORY },   { "pids", CGROUP_PIDS },	      { "cpu", CGROUP_CPU },
	{ "cpuacct", CGROUP_CPUACCT }, { "freezer", CGROUP_FREEZER }, { "blkio", CGROUP_IO },
};

struct span {
	const char *p;
	size_t len;
};

static bool span_is(struct span s, const char *word)
{
	return s.len == strlen(word) && !memcmp(s.p, word, s.len);
}

/* Takes what comes before the next @sep off @rest. False when nothing is left. */
static bool span_next(struct span *rest, char sep, struct span *ret)
{
	const char *end;

	if (!rest->p)
		return false;
	end = rest->len ? memchr(rest->p, sep, rest->len) : NULL;
	*ret = (struct span){ rest->p, end ? (size_t)(end - rest->p) : rest->len };
	*rest = end ? (struct span){ end + 1, rest->len - ret->len - 1 } : (struct span){ NULL, 0 };
	return true;
}

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static int unescape(struct span s, char *ret, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (c == '\\' && s.len - i > 3 && is_octal(s.p[i + 1]) && is_octal(s.p[i + 2]) &&
		    is_octal(s.p[i + 3])) {
			c = (char)((s.p[i + 1] - '0') * 64 + (s.p[i + 2] - '0') * 8 + (s.p[i + 3] - '0'));
			i += 3;
		}
		if (!c)
			return -EINVAL;
		if (n + 1 >= size)
			return -ENAMETOOLONG;
		ret[n++] = c;
	}
	ret[n] = '\0';
	return ret[0] == '/' ? 0 : -EINVAL;
}

static unsigned controllers_of(struct span options)
{
	unsigned mask = 0;
	struct span word;

	while (span_next(&options, ',', &word))
		for (size_t i = 0; i < ARRAY_LEN(v1_controllers); i++)
			if (span_is(word, v1_controllers[i].name))
				mask |= CGROUP_BIT(v1_controllers[i].id);
	return mask;
}

int cgroup_parse_mount(const char *line, size_t len, struct cgroup_mount *ret)
{
	struct span rest = { line, len }, field, root = { NULL, 0 }, point = { NULL, 0 };
	bool dash = false;
	int r;

	/* id parent major:minor root point options [optional…] - type source superoptions */
	for (unsigned i = 0; !dash && span_next(&rest, ' ', &field); i++) {
		if (i == 3)
			root = field;
		else if (i == 4)
			point = field;
		else if (i >= 6)
			dash = span_is(field, "-");
	}
	if (!dash || !span_next(&rest, ' ', &field))
		return -EINVAL;
	if (span_is(field, "cgroup"))
		ret->version = 1;
	else if (span_is(field, "cgroup2"))
		ret->version = 2;
	else
		return 0;
	if (!span_next(&rest, ' ', &field)) /* the source */
		return -EINVAL;
	if (!span_next(&rest, ' ', &field))
		return -EINVAL;
	ret->controllers = ret->version == 1 ? controllers_of(field) : 0;
	r = unescape(root, ret->root, sizeof(ret->root));
	if (!r)
		r = unescape(point, ret->point, sizeof(ret->point));
	return r < 0 ? r : 1;
}

static bool list_has(struct span list, const char *word)
{
	struct span s;

	while (span_next(&list, ',', &s))
		if (span_is(s, word))
			return true;
	return false;
}

int cgroup_parse_own(const char *text, const char *controller, char *ret, size_t size)
{
	struct span rest = { text, strlen(text) }, line;

	while (span_next(&rest, '\n', &line)) {
		struct span id, list;

		/* number:controllers:path, and the path may have colons of its own */
		if (!span_next(&line, ':', &id) || !span_next(&line, ':', &list) || !line.p)
			continue;
		if (*controller ? !list_has(list, controller) : list.len || !span_is(id, "0"))
			continue;
		if (!line.len || line.p[0] != '/')
			return -EINVAL;
		if (line.len >= size)
			return -ENAMETOOLONG;
		memcpy(ret, line.p, line.len);
		ret[line.len] = '\0';
		return 0;
	}
	return -ENOENT;
}

const char *cgroup_parse_below(const char *root, const char *own)
{
	size_t n = strlen(root);

	for (const char *p = strstr(own, "/.."); p; p = strstr(p + 1, "/.."))
		if (p[3] == '/' || p[3] == '\0')
			return NULL;
	if (n == 1) /* "/" */
		n = 0;
	if (strncmp(own, root, n) || (own[n] && own[n] != '/'))
		return NULL;
	own += n;
	return !strcmp(own, "/") ? "" : own;
}

static int number(struct span s, uint64_t *ret)
{
	uint64_t v = 0;

	if (!s.len)
		return -EINVAL;
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
			return -ERANGE;
	}
	*ret = v;
	return 0;
}

int cgroup_parse_kv(const char *text, const char *key, uint64_t *ret)
{
	struct span rest = { text, strlen(text) }, line, word;

	while (span_next(&rest, '\n', &line))
		if (span_next(&line, ' ', &word) && span_is(word, key) && line.p)
			return number(line, ret);
	return -ENOENT;
}

uint64_t cgroup_parse_io_stat(const char *text)
{
	struct span rest = { text, strlen(text) }, line, word;
	uint64_t sum = 0, v;

	while (span_next(&rest, '\n', &line))
		while (span_next(&line, ' ', &word)) {
			if (word.len < 7 || (memcmp(word.p, "rbytes=", 7) && memcmp(word.p, "wbytes=", 7)))
				continue;
			if (!number((struct span){ word.p + 7, word.len - 7 }, &v) &&
			    __builtin_add_overflow(sum, v, &sum))
				sum = UINT64_MAX;
		}
	return sum;
}

bool cgroup_parse_has(const char *text, const char *word)
{
	struct span rest = { text, strlen(text) }, line, s;

	while (span_next(&rest, '\n', &line))
		while (span_next(&line, ' ', &s))
			if (s.len && span_is(s, word))
				return true;
	return false;
}

bool cgroup_parse_swaps(const char *text)
{
	const char *first = strchr(text, '\n'); /* the heading */

	return first && first[1] && first[1] != '\n';
}

size_t cgroup_parse_pids(const char *text, size_t len, pid_t *ret, size_t max)
{
	struct span rest = { text, len }, line;
	size_t n = 0;
	uint64_t v;

	while (n < max && span_next(&rest, '\n', &line) && rest.p)
		ret[n++] = !number(line, &v) && v <= INT_MAX ? (pid_t)v : 0;
	return n;
}
