/* Finds what is to be copied, and reads it: one LIST for each match, with the content of the files. */
#include "tar/source.h"
#include "base/base.h"
#include "dockerfile/pattern.h"

#include <sys/stat.h>

#define MATCHES_MAX 65536U

static int out_of_memory(struct err *e)
{
	return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
}

static int odd_worker(struct err *e)
{
	return err_set(e, ERR_LOST, -EREMOTEIO, "protocol error from the sandbox's file worker");
}

/* What is mounted there in every sandbox is no part of an image; the folders themselves are. */
static bool is_of_sandbox(const struct source *s, const char *path)
{
	return !strcmp(s->spec->under, "/") && strchr(path, '/') && tar_is_mounted(path);
}

static bool left_out(const struct source *s, const char *path)
{
	return *path && (ignore_has(&s->file, path) || ignore_has(&s->spec->exclude, path) || is_of_sandbox(s, path));
}

/* --- content --- */

ssize_t source_read(struct source *s, const void **ret, size_t room, struct err *e)
{
	size_t n;

	if (!s->have && s->left) {
		struct file_frame f;
		int r = host_next(s->h, &f, e);

		if (r < 0)
			return r;
		if (f.type == FILE_END && s->h->end.errnum)
			return err_sys(e, ERR_LOST, -(int)s->h->end.errnum, "read a file that is copied");
		if (f.type != FILE_DATA || f.len > s->left)
			return err_set(e, ERR_LOST, -EREMOTEIO, "a file changed while it was copied");
		s->data = f.payload;
		s->have = f.len;
		s->left -= f.len;
	}
	n = s->have < room ? s->have : room;
	*ret = s->data;
	s->data += n;
	s->have -= n;
	return (ssize_t)n;
}

static int drain(struct source *s, struct err *e)
{
	const void *p;
	ssize_t n;

	while ((n = source_read(s, &p, FILE_DATA_MAX, e)) > 0)
		;
	return (int)n;
}

/* The next ENTRY: 1, 0 at the end. */
static int next_entry(struct source *s, struct file_entry *ret, struct err *e)
{
	struct file_frame f;
	int r = drain(s, e);

	s->xattrs_len = 0;
	if (r == 0)
		r = host_next(s->h, &f, e);
	if (r == 0 && f.type == FILE_XATTR_LIST) {
		memcpy(s->xattrs, f.payload, f.len);
		s->xattrs_len = f.len;
		r = host_next(s->h, &f, e);
	}
	if (r)
		return r;
	if (f.type == FILE_END && s->h->end.errnum)
		return err_sys(e, s->h->end.errnum == ENOENT ? ERR_NOT_FOUND : ERR_INVALID, -(int)s->h->end.errnum,
			       "cannot %s", file_step_text(s->h->end.step));
	if (f.type == FILE_END && s->h->end_flags & FILE_TRUNCATED)
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "a name is too long to be copied");
	if (f.type == FILE_END)
		return 0;
	if (f.type != FILE_ENTRY || file_entry_decode(&f, ret) < 0 || (*ret->path && !tar_name_ok(ret->path)))
		return odd_worker(e);
	return 1;
}

int source_visit(struct source *s, const struct match *m, visit_fn *fn, void *arg, struct err *e)
{
	const struct file_request q = { .path = m->real, .under = s->spec->under, .depth = UINT32_MAX };
	struct file_entry x;
	char path[2 * FILE_PATH_MAX];
	int r = host_ask(s->h, FILE_LIST, FILE_BENEATH | FILE_CONTENT | FILE_XATTRS, &q, e);

	while (r == 0 && (r = next_entry(s, &x, e)) == 1) {
		struct visit v = { .match = m, .entry = &x, .rel = x.path };

		if (x.errnum)
			return err_sys(e, ERR_INVALID, -(int)x.errnum, "'%.100s': read", x.path);
		s->left = S_ISREG(x.mode) ? x.size : 0;
		snprintf(path, sizeof(path), "%s%s%s", m->path, *m->path && *x.path ? "/" : "", x.path);
		r = left_out(s, path) ? 0 : fn(arg, &v, e);
	}
	return r;
}

int source_file(struct source *s, const struct match *m, struct file_entry *ret, struct err *e)
{
	const struct file_request q = { .path = m->real, .under = s->spec->under, .depth = UINT32_MAX };
	int r = host_ask(s->h, FILE_LIST, FILE_BENEATH | FILE_CONTENT | FILE_XATTRS, &q, e);

	if (r == 0)
		r = next_entry(s, ret, e);
	if (r < 0)
		return r;
	if (r != 1 || !S_ISREG(ret->mode) || ret->errnum)
		return odd_worker(e);
	s->left = ret->size;
	return 0;
}

int source_close(struct source *s, struct err *e)
{
	struct file_entry x;
	int r = next_entry(s, &x, e);

	return r < 0 ? r : r == 0 ? 0 : odd_worker(e);
}

/* --- matches --- */

/* Parts without ".", ".." and empty ones, as others have it: nothing is above the context. */
static int clean(const char *text, char ret[FILE_PATH_MAX], size_t *ret_pivot, struct err *e)
{
	size_t at = 0;

	*ret_pivot = 0;
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 1 && *p == '.' && p[1] == '/' && at)
			*ret_pivot = at;
		if (n == 2 && p[0] == '.' && p[1] == '.') {
			while (at && ret[--at] != '/')
				;
		} else if (n && !(n == 1 && *p == '.')) {
			if (at + n + 2 > FILE_PATH_MAX)
				return err_set(e, ERR_INVALID, -ENAMETOOLONG, "'%.100s' is too long", text);
			if (at)
				ret[at++] = '/';
			memcpy(ret + at, p, n);
			at += n;
		}
		p += n;
		p += strspn(p, "/");
	}
	ret[at] = '\0';
	return 0;
}

static int add(struct source *s, const char *path, const struct found *f, size_t pivot, struct err *e)
{
	struct match *more;

	if (s->matches == MATCHES_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "a pattern matches more than %u files", MATCHES_MAX);
	if ((s->matches & (s->matches - 1)) == 0) {
		more = realloc(s->match, (s->matches ? 2 * s->matches : 1) * sizeof(*more));
		if (!more)
			return out_of_memory(e);
		s->match = more;
	}
	s->match[s->matches] = (struct match){ strdup(path), strdup(f->path), pivot, f->mode };
	if (!s->match[s->matches].path || !s->match[s->matches].real)
		return out_of_memory(e);
	s->matches++;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct match *)a)->path, ((const struct match *)b)->path);
}

static const char *what_matches(const char *pattern, size_t fixed)
{
	return pattern + fixed + (fixed && pattern[fixed] == '/');
}

/* All names below the parts of a pattern that have no wildcard, as deep as it goes. */
static int match_pattern(struct source *s, const char *pattern, size_t pivot, struct err *e)
{
	size_t fixed = strcspn(pattern, "*?[\\"), first = s->matches;
	const char *rest;
	char prefix[FILE_PATH_MAX];
	struct file_request q = { .under = s->spec->under, .depth = 1 };
	struct found base;
	struct file_entry x;
	int r;

	while (fixed && pattern[fixed] != '/')
		fixed--;
	snprintf(prefix, sizeof(prefix), "%.*s", (int)fixed, pattern);
	rest = what_matches(pattern, fixed);
	r = host_find(s->h, s->spec->under, prefix, &base, e);
	if (r < 0 || !S_ISDIR(base.mode))
		return r;
	for (const char *p = rest; (p = strchr(p, '/')); p++)
		q.depth++;
	if (strstr(rest, "**"))
		q.depth = UINT32_MAX;
	q.path = base.path;
	r = host_ask(s->h, FILE_LIST, FILE_BENEATH, &q, e);
	while (r == 0 && (r = next_entry(s, &x, e)) == 1) {
		const struct found unknown = { 0 };
		char path[2 * FILE_PATH_MAX];

		r = 0;
		if (!*x.path || !path_match(rest, x.path))
			continue;
		snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "", x.path);
		if (strlen(path) < FILE_PATH_MAX && !left_out(s, path))
			r = add(s, path, &unknown, pivot, e);
	}
	/* The listing is over, so that others can be asked for. */
	for (size_t i = first; r == 0 && i < s->matches; i++) {
		struct found f;

		r = host_find(s->h, s->spec->under, s->match[i].path, &f, e);
		if (r < 0)
			break;
		free(s->match[i].real);
		s->match[i].real = strdup(f.path);
		s->match[i].mode = f.mode;
		if (!s->match[i].real)
			r = out_of_memory(e);
		if (r == 0 && !f.mode)
			r = err_set(e, ERR_NOT_FOUND, -ENOENT, "'%.100s' is a link to what is not there",
				    s->match[i].path);
	}
	if (r == 0 && s->matches > first)
		sort(s->match + first, s->matches - first, sizeof(*s->match), by_path);
	return r;
}

static int match_path(struct source *s, const char *path, size_t pivot, struct err *e)
{
	struct found f;
	int r = host_find(s->h, s->spec->under, path, &f, e);

	if (r < 0)
		return r;
	if (!f.mode)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "'%.150s' is not there", path);
	/* A folder that is left out may contain something that is taken back. */
	if (!S_ISDIR(f.mode) && left_out(s, path))
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "'%.150s' is left out by .dockerignore or --exclude", path);
	return add(s, path, &f, pivot, e);
}

static int read_ignore(struct source *s, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1 * MIB);
	struct match m = { .real = (char[]){ ".dockerignore" } };
	struct found f;
	struct file_entry x;
	const void *p;
	ssize_t n;
	int r = host_find(s->h, s->spec->under, m.real, &f, e);

	if (r < 0 || !S_ISREG(f.mode))
		return r;
	m.real = f.path;
	r = source_file(s, &m, &x, e);
	while (r == 0 && (n = source_read(s, &p, FILE_DATA_MAX, e)) != 0)
		r = n < 0 ? (int)n :
		    buf_add(&b, p, (size_t)n) < 0 ?
			    err_set(e, ERR_TOO_LARGE, -E2BIG, ".dockerignore is larger than 1 MiB") :
			    0;
	if (r == 0)
		r = source_close(s, e);
	return r < 0 ? r : ignore_parse(buf_str(&b), b.len, &s->file, e);
}

int source_open(struct source *s, struct host *h, const struct copy_spec *spec, struct err *e)
{
	int r = 0;

	*s = (struct source){ .h = h, .spec = spec };
	if (spec->ignore)
		r = read_ignore(s, e);
	for (size_t i = 0; r == 0 && i < spec->sources.n; i++) {
		char path[FILE_PATH_MAX];
		size_t pivot;

		r = clean(spec->sources.at[i], path, &pivot, e);
		if (r == 0 && path_pattern_is(path) && !path_pattern_ok(path))
			r = err_set(e, ERR_INVALID, -EINVAL, "invalid pattern '%.100s'", path);
		if (r == 0)
			r = path_pattern_is(path) ? match_pattern(s, path, pivot, e) : match_path(s, path, pivot, e);
	}
	/* One pattern may match nothing, when there are others: that is how optional files are copied. */
	if (r == 0 && !s->matches && !spec->here.n)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "no file matches '%.100s'", spec->sources.at[0]);
	return r;
}
