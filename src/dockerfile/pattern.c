/*
 * Patterns are matched by keeping the set of places in the text where the pattern read so far can end. So a match takes
 * at most (length of the pattern) x (length of the text) steps, however many stars it has.
 */
#include "dockerfile/pattern.h"
#include "base/base.h"

/* One unit of a pattern: a byte, `?`, `*`, `**`, `**` with its slash, or a set. */
enum unit { UNIT_END, UNIT_BYTE, UNIT_ANY, UNIT_STAR, UNIT_DEEP, UNIT_DEEP_SLASH, UNIT_SET, UNIT_BAD };

struct cursor {
	const char *p;
	char byte;
	const char *set; /* the text after '[' or '^' */
	bool negated;
	const char *start; /* start of the whole pattern */
	bool first; /* the unit that was read is the first one */
};

/* Reads one member of a set, quoted or not. NULL when there is none. */
static const char *set_byte(const char *p, char *ret)
{
	if (*p == '\\')
		p++;
	if (!*p)
		return NULL;
	*ret = *p;
	return p + 1;
}

static enum unit set_read(struct cursor *c)
{
	const char *p = c->p + 1;
	char a;

	c->negated = *p == '^';
	if (c->negated)
		p++;
	c->set = p;
	if (*p == ']' || *p == '-')
		return UNIT_BAD; /* an empty set, or a range without a start */
	while (*p && *p != ']') {
		p = set_byte(p, &a);
		if (!p)
			return UNIT_BAD;
		if (*p == '-') {
			if (p[1] == ']')
				return UNIT_BAD;
			p = set_byte(p + 1, &a);
			if (!p)
				return UNIT_BAD;
		}
	}
	if (!*p)
		return UNIT_BAD;
	c->p = p + 1;
	return UNIT_SET;
}

static bool set_has(const struct cursor *c, char x)
{
	const char *p = c->set;
	bool in = false;
	char lo, hi;

	while (*p != ']') {
		p = set_byte(p, &lo);
		hi = lo;
		if (*p == '-')
			p = set_byte(p + 1, &hi);
		in |= (unsigned char)lo <= (unsigned char)x && (unsigned char)x <= (unsigned char)hi;
	}
	return in != c->negated;
}

bool path_pattern_is(const char *pattern)
{
	return strpbrk(pattern, "*?[\\") != NULL;
}

static enum unit unit_read(struct cursor *c)
{
	c->first = c->p == c->start;
	switch (*c->p) {
	case '\0':
		return UNIT_END;
	case '*':
		c->p++;
		if (*c->p != '*')
			return UNIT_STAR;
		while (*c->p == '*')
			c->p++;
		if (*c->p == '/')
			c->p++;
		else if (c->first && !path_pattern_is(c->p))
			return UNIT_DEEP; /* `**.c` matches every name with that end, as in other implementations */
		return *c->p ? UNIT_DEEP_SLASH : UNIT_DEEP;
	case '?':
		c->p++;
		return UNIT_ANY;
	case '[':
		return set_read(c);
	case '\\':
		c->p++;
		if (!*c->p)
			return UNIT_BAD;
		break;
	default:
		break;
	}
	c->byte = *c->p++;
	return UNIT_BYTE;
}

bool path_pattern_ok(const char *pattern)
{
	struct cursor c = { .p = pattern, .start = pattern };
	enum unit u;

	do
		u = unit_read(&c);
	while (u != UNIT_END && u != UNIT_BAD);
	return u == UNIT_END;
}

/* A byte after the first of a UTF-8 character: `?` matches them together. */
static bool tail_byte(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* at[i] says whether the pattern so far can end before text[i]. Advances that by one unit. */
static void path_step(enum unit u, const struct cursor *c, const char *text, size_t len, uint8_t *at)
{
	bool from = false; /* an earlier place from which the unit still matches */
	bool carry;

	switch (u) {
	case UNIT_STAR:
		for (size_t i = 0; i <= len; i++) {
			from = (from && i > 0 && text[i - 1] != '/') || at[i];
			at[i] = from;
		}
		break;
	case UNIT_DEEP:
		for (size_t i = 0; i <= len; i++)
			at[i] = from = from || at[i];
		break;
	case UNIT_DEEP_SLASH: /* matches nothing, or anything up to and including a slash */
		for (size_t i = 0; i <= len; i++) {
			carry = from && i > 0 && text[i - 1] == '/';
			from = from || at[i];
			at[i] = at[i] || carry;
		}
		break;
	case UNIT_BYTE:
	case UNIT_ANY:
	case UNIT_SET:
		for (size_t i = len + 1; i-- > 0;) {
			char x = i ? text[i - 1] : '\0';

			at[i] = i && at[i - 1] &&
				(u == UNIT_BYTE ? x == c->byte : x != '/' && (u == UNIT_ANY || set_has(c, x)));
		}
		/* A character of several bytes counts as one. */
		for (size_t i = 1; u != UNIT_BYTE && i < len; i++)
			if (at[i] && tail_byte(text[i])) {
				at[i] = false;
				at[i + 1] = true;
			}
		break;
	case UNIT_END:
	case UNIT_BAD:
		break;
	}
}

bool path_match(const char *pattern, const char *path)
{
	struct cursor c = { .p = pattern, .start = pattern };
	size_t len = strlen(path);
	AUTO_FREE uint8_t *at = calloc(len + 1, 1);
	enum unit u;

	if (!at)
		return false;
	at[0] = true;
	while ((u = unit_read(&c)) != UNIT_END) {
		if (u == UNIT_BAD)
			return false;
		path_step(u, &c, path, len, at);
	}
	return at[len];
}

/* Reads one unit of a shell's pattern. UNIT_BAD: a backslash before a character that needs none. */
static enum unit shell_unit(struct cursor *c)
{
	char b = *c->p;

	if (!b)
		return UNIT_END;
	c->p++;
	if (b == '*')
		return UNIT_STAR;
	if (b == '?')
		return UNIT_ANY;
	if (b == '\\') {
		b = *c->p;
		if (!b || !strchr("*?\\}/", b))
			return UNIT_BAD;
		c->p++;
	}
	c->byte = b;
	return UNIT_BYTE;
}

/* @text may be reversed: a character of several bytes then ends with its first one. */
static void shell_step(enum unit u, char byte, const char *text, size_t len, bool turned, uint8_t *at)
{
	bool from = false;

	if (u == UNIT_STAR) {
		for (size_t i = 0; i <= len; i++)
			at[i] = from = from || at[i];
		return;
	}
	for (size_t i = len + 1; i-- > 0;)
		at[i] = i && at[i - 1] && (u == UNIT_ANY || text[i - 1] == byte);
	for (size_t i = 1; u == UNIT_ANY && i < len; i++)
		if (at[i] && tail_byte(text[turned ? i - 1 : i])) {
			at[i] = false;
			at[i + 1] = true;
		}
}

/* Finds where a match from the start of @text can end. @at has len + 1 places. */
static int shell_run(const char *pattern, const char *text, size_t len, bool turned, uint8_t *at)
{
	struct cursor c = { .p = pattern, .start = pattern };
	enum unit u;

	at[0] = true;
	while ((u = shell_unit(&c)) != UNIT_END) {
		if (u == UNIT_BAD)
			return -EINVAL;
		shell_step(u, c.byte, text, len, turned, at);
	}
	return 0;
}

int shell_prefix(const char *pattern, const char *text, size_t *ret_short, size_t *ret_long)
{
	size_t len = strlen(text), first = 0, last;
	AUTO_FREE uint8_t *at = calloc(len + 1, 1);
	int r;

	if (!at)
		return -ENOMEM;
	r = shell_run(pattern, text, len, false, at);
	if (r < 0)
		return r;
	while (first <= len && !at[first])
		first++;
	if (first > len)
		return 0;
	for (last = len; !at[last];)
		last--;
	*ret_short = first;
	*ret_long = last;
	return 1;
}

/* Reverses the units of @pattern, for @text whose characters are reversed, so that a suffix becomes a prefix. */
static int shell_turn(const char *pattern, char *turned)
{
	struct cursor c = { .p = pattern, .start = pattern };
	size_t at = strlen(pattern);
	enum unit u;

	turned[at] = '\0';
	while ((u = shell_unit(&c)) != UNIT_END) {
		if (u == UNIT_BAD)
			return -EINVAL;
		if (u == UNIT_BYTE && strchr("*?\\", c.byte)) {
			turned[--at] = c.byte;
			turned[--at] = '\\';
		} else {
			turned[--at] = u == UNIT_STAR ? '*' : u == UNIT_ANY ? '?' : c.byte;
		}
	}
	memmove(turned, turned + at, strlen(turned + at) + 1);
	return 0;
}

int shell_suffix(const char *pattern, const char *text, size_t *ret_short, size_t *ret_long)
{
	size_t len = strlen(text), a = 0, b = 0;
	AUTO_FREE char *turned = malloc(strlen(pattern) + 1), *back = malloc(len + 1);
	AUTO_FREE uint8_t *at = calloc(len + 1, 1);
	int r;

	if (!turned || !back || !at)
		return -ENOMEM;
	r = shell_turn(pattern, turned);
	if (r < 0)
		return r;
	for (size_t i = 0; i < len; i++)
		back[i] = text[len - 1 - i];
	back[len] = '\0';
	r = shell_run(turned, back, len, true, at);
	if (r < 0)
		return r;
	while (a <= len && !at[a])
		a++;
	if (a > len)
		return 0;
	for (b = len; !at[b];)
		b--;
	*ret_short = len - a;
	*ret_long = len - b;
	return 1;
}
