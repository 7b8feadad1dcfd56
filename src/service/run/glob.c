/* Matches patterns of artifacts in bounded time, which fnmatch() does not promise. */
#include "service/run/glob.h"
#include "base/base.h"

static bool count(uint64_t *left)
{
	if (!*left)
		return false;
	--*left;
	return true;
}

/* Whether @c is in the set that begins at @p. Returns the pattern behind the set; NULL: the set has no end. */
static const char *set_end(const char *p, char c, bool *ret_has, uint64_t *left)
{
	const bool negated = p[1] == '!' || p[1] == '^';
	bool has = false;

	p += negated ? 2 : 1;
	for (bool first = true; first || *p != ']'; first = false) {
		unsigned char from, to;

		p += *p == '\\' && p[1];
		if (!*p || !count(left))
			return NULL;
		from = to = (unsigned char)*p++;
		if (*p == '-' && p[1] && p[1] != ']') {
			p++;
			p += *p == '\\' && p[1];
			to = (unsigned char)*p++;
		}
		has = has || ((unsigned char)c >= from && (unsigned char)c <= to);
	}
	*ret_has = has != negated;
	return p + 1;
}

/* If the first element of pattern @p matches @c, the rest of the pattern, otherwise NULL. */
static const char *one(const char *p, char c, uint64_t *left)
{
	const char *end;
	bool has = false;

	if (!count(left) || !*p)
		return NULL;
	if (*p == '?')
		return p + 1;
	end = *p == '[' ? set_end(p, c, &has, left) : NULL;
	if (end)
		return has ? end : NULL;
	p += *p == '\\' && p[1];
	return *p == c ? p + 1 : NULL;
}

bool glob_match(const char *p, const char *text, uint64_t *left)
{
	const char *star = NULL, *back = NULL, *next;

	/* Only the last `*` is ever tried again: with what the earlier ones took, a match is found if there is one. */
	while (*text && *left) {
		if (*p == '*') {
			star = ++p;
			back = text;
		} else if ((next = one(p, *text, left))) {
			p = next;
			text++;
		} else if (star) {
			p = star;
			text = ++back;
		} else {
			return false;
		}
	}
	while (*p == '*')
		p++;
	return !*p && !*text && *left;
}
