/* The patterns of .dockerignore and of COPY --exclude. */
#include "dockerfile/ignore.h"
#include "base/base.h"
#include "dockerfile/pattern.h"
#include "dockerfile/words.h"

void ignore_done(struct ignore *ig)
{
	for (size_t i = 0; i < ig->n; i++)
		free(ig->at[i].text);
	free(ig->at);
	*ig = (struct ignore){ 0 };
}

/* Normalizes a path: removes empty parts, ".", "..", and slashes at both ends. Writes into @text, which shrinks. */
static void clean(char *text)
{
	char *to = text;

	for (const char *p = text; *p;) {
		size_t n = strcspn(p, "/");

		if (n == 2 && p[0] == '.' && p[1] == '.') {
			while (to > text && *--to != '/')
				;
		} else if (n && !(n == 1 && *p == '.')) {
			if (to > text)
				*to++ = '/';
			memmove(to, p, n);
			to += n;
		}
		p += n;
		while (*p == '/')
			p++;
	}
	*to = '\0';
}

/* @pattern has @len bytes, without spaces around it. */
static int add(struct ignore *ig, const char *pattern, size_t len, struct err *e)
{
	bool back = len && *pattern == '!';
	struct ignore_pattern *more;
	char *text;

	if (ig->n == IGNORE_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %d patterns", IGNORE_MAX);
	if (back)
		pattern++, len--;
	while (len && words_space(*pattern))
		pattern++, len--;
	if (back && !len)
		return err_set(e, ERR_INVALID, -EINVAL, "'!' needs a pattern");
	more = realloc(ig->at, (ig->n + 1) * sizeof(*more));
	if (more)
		ig->at = more;
	text = more ? strndup(pattern, len) : NULL;
	if (!text)
		return err_set(e, ERR_INTERNAL, -ENOMEM, "not enough memory");
	clean(text);
	if (!path_pattern_ok(text)) {
		err_set(e, ERR_INVALID, -EINVAL, "invalid pattern '%.100s'", text);
		free(text);
		return -EINVAL;
	}
	ig->at[ig->n++] = (struct ignore_pattern){ .text = text, .back = back };
	ig->backs |= back;
	return 0;
}

int ignore_add(struct ignore *ig, const char *pattern, struct err *e)
{
	return add(ig, pattern, strlen(pattern), e);
}

int ignore_parse(const char *text, size_t len, struct ignore *ret, struct err *e)
{
	AUTO(ignore_done) struct ignore ig = { 0 };
	const char *end = text + len;
	unsigned line = 0;

	if (memchr(text, '\0', len))
		return err_set(e, ERR_INVALID, -EINVAL, "a NUL byte in .dockerignore");
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		text += 3;
	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text)), *stop = nl ? nl : end, *p = text;
		int r = 0;

		line++;
		text = nl ? nl + 1 : end;
		if (*p == '#')
			continue;
		while (p < stop && words_space(*p))
			p++;
		while (stop > p && words_space(stop[-1]))
			stop--;
		if (stop > p)
			r = add(&ig, p, (size_t)(stop - p), e);
		if (r < 0)
			return err_wrap(e, r, ".dockerignore, line %u", line);
	}
	*ret = ig;
	ig = (struct ignore){ 0 };
	return 0;
}

/* Does the pattern match the path, or one of the folders that contain it? */
static bool covers(const char *pattern, const char *path)
{
	char part[4097];
	size_t n = strlen(path);

	if (path_match(pattern, path))
		return true;
	if (n >= sizeof(part))
		return false;
	memcpy(part, path, n + 1);
	for (char *slash = part + n; slash-- > part;)
		if (*slash == '/') {
			*slash = '\0';
			if (path_match(pattern, part))
				return true;
		}
	return false;
}

bool ignore_has(const struct ignore *ig, const char *path)
{
	bool out = false;

	for (size_t i = 0; i < ig->n; i++)
		if (ig->at[i].back == out && covers(ig->at[i].text, path))
			out = !out;
	return out;
}

/* Can @pattern match something below @folder? Compared part by part, up to the first one that has a wildcard. */
static bool may_reach(const char *pattern, const char *folder)
{
	while (*pattern && *folder) {
		size_t a = strcspn(pattern, "/"), b = strcspn(folder, "/");

		for (size_t i = 0; i < a; i++)
			if (strchr("*?[\\", pattern[i]))
				return true;
		if (a != b || memcmp(pattern, folder, a) != 0)
			return false;
		pattern += a + (pattern[a] == '/');
		folder += b + (folder[b] == '/');
	}
	return true;
}

bool ignore_prunes(const struct ignore *ig, const char *folder)
{
	if (!ignore_has(ig, folder))
		return false;
	for (size_t i = 0; i < ig->n; i++)
		if (ig->at[i].back && may_reach(ig->at[i].text, folder))
			return false;
	return true;
}
