/* Parses one line of the audit log. */
#include "audit/line.h"
#include "base/base.h"

/* The end of every record: ,"prev":"…","hash":"…"} */
#define PREV ",\"prev\":\""
#define HASH "\",\"hash\":\""
#define END "\"}"
#define LEN(s) (sizeof(s) - 1)
#define TAIL (LEN(PREV) + AUDIT_HEX + LEN(HASH) + AUDIT_HEX + LEN(END))

struct cursor {
	const char *p, *end;
};

static bool skip(struct cursor *c, const char *text)
{
	size_t n = strlen(text);

	if ((size_t)(c->end - c->p) < n || memcmp(c->p, text, n))
		return false;
	c->p += n;
	return true;
}

/* As we write them: no sign, no leading zero. */
static bool number(struct cursor *c, uint64_t *ret)
{
	const char *start = c->p;
	uint64_t v = 0;

	for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
		if (__builtin_mul_overflow(v, 10U, &v) || __builtin_add_overflow(v, (uint64_t)(*c->p - '0'), &v))
			return false;
	}
	if (c->p == start || (*start == '0' && c->p - start > 1))
		return false;
	*ret = v;
	return true;
}

/* The text between quotes, up to the first quote that is not escaped. */
static bool string(struct cursor *c, struct audit_text *ret)
{
	const char *start;

	if (!skip(c, "\""))
		return false;
	for (start = c->p; c->p < c->end && *c->p != '"'; c->p++) {
		if (*c->p == '\\' && ++c->p == c->end)
			return false;
	}
	if (c->p == c->end)
		return false;
	*ret = (struct audit_text){ .p = start, .n = (size_t)(c->p++ - start) };
	return true;
}

static bool hex(const char *p)
{
	for (unsigned i = 0; i < AUDIT_HEX; i++) {
		if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
			return false;
	}
	return true;
}

static bool tail(const char *line, size_t len, struct audit_line *l)
{
	const char *p;

	if (len <= TAIL || len >= AUDIT_LINE_MAX)
		return false;
	p = line + len - TAIL;
	l->prev = p + LEN(PREV);
	l->hash = l->prev + AUDIT_HEX + LEN(HASH);
	l->body = (size_t)(l->prev + AUDIT_HEX + 1 - line); /* with prev's closing quote */
	return !memcmp(p, PREV, LEN(PREV)) && !memcmp(l->prev + AUDIT_HEX, HASH, LEN(HASH)) &&
	       !memcmp(l->hash + AUDIT_HEX, END, LEN(END)) && hex(l->prev) && hex(l->hash);
}

/* Whether any byte is below a space. Eight at a time: a byte that borrows has its top bit set, and had not before. */
static bool has_control(const char *p, size_t n)
{
	const uint64_t ones = UINT64_MAX / 255;
	uint64_t v, found = 0;

	for (; n >= sizeof(v); p += sizeof(v), n -= sizeof(v)) {
		memcpy(&v, p, sizeof(v));
		found |= (v - ones * 0x20) & ~v & ones * 0x80;
	}
	for (; n; p++, n--)
		found |= (unsigned char)*p < 0x20;
	return found;
}

int audit_line_parse(const char *line, size_t len, struct audit_line *ret)
{
	struct audit_line l = { 0 };
	struct cursor c = { line, line };
	/* In the order in which they are written; each may be missing. */
	const struct {
		const char *name;
		struct audit_text *to;
	} common[] = {
		{ ",\"tenant\":", &l.tenant },	 { ",\"token\":", &l.token }, { ",\"request_id\":", &l.request_id },
		{ ",\"sandbox\":", &l.sandbox }, { ",\"exec\":", &l.exec },
	};

	if (!tail(line, len, &l))
		return -EBADMSG;
	if (has_control(line, len))
		return -EBADMSG;
	c.end = line + len - TAIL;
	if (!skip(&c, "{\"seq\":") || !number(&c, &l.seq) || !skip(&c, ",\"time\":") || !string(&c, &l.time) ||
	    !skip(&c, ",\"mono_ns\":") || !number(&c, &l.mono_ns) || !skip(&c, ",\"kind\":") || !string(&c, &l.kind))
		return -EBADMSG;
	for (size_t i = 0; i < ARRAY_LEN(common); i++) {
		if (skip(&c, common[i].name) && !string(&c, common[i].to))
			return -EBADMSG;
	}
	if (c.p < c.end && *c.p != ',')
		return -EBADMSG;
	*ret = l;
	return 0;
}
