/* Takes frames of a kernel apart, and checks them. The grammar is RFC 8259's. */
#include "service/context/kernel_frame.h"
#include "base/base.h"
#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

struct scan {
	char *p, *end;
	int r;
};

static void skip_space(struct scan *s)
{
	for (; s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'); s->p++)
		*s->p = ' ';
}

static int hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		const char c = p[i];
		const int d = c >= '0' && c <= '9' ? c - '0' :
			      c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			      c >= 'A' && c <= 'F' ? c - 'A' + 10 :
						     -1;

		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

static bool is_low(const struct scan *s, const char *p)
{
	int v = s->end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2) : -1;

	return v >= 0xDC00 && v <= 0xDFFF;
}

/* Behind a backslash. */
static bool scan_escape(struct scan *s)
{
	int v;

	if (s->p == s->end)
		return false;
	if (*s->p != 'u')
		return memchr("\"\\/bfnrt", *s->p++, 8) != NULL;
	v = s->end - s->p >= 5 ? hex4(s->p + 1) : -1;
	if (v < 0)
		return false;
	if (v >= 0xD800 && v <= 0xDBFF && is_low(s, s->p + 5)) {
		s->p += 11;
		return true;
	}
	if (v >= 0xD800 && v <= 0xDFFF)
		memcpy(s->p + 1, "FFFD", 4);
	s->p += 5;
	return true;
}

static bool scan_text(struct scan *s)
{
	if (s->p == s->end || *s->p != '"')
		return false;
	s->p++;
	while (s->p < s->end) {
		const unsigned char c = (unsigned char)*s->p++;

		if (c == '"')
			return true;
		if (c < 0x20 || (c == '\\' && !scan_escape(s)))
			return false;
	}
	return false;
}

static bool scan_digits(struct scan *s)
{
	const char *from = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p > from;
}

static bool scan_number(struct scan *s)
{
	if (s->p < s->end && *s->p == '-')
		s->p++;
	if (s->p < s->end && *s->p == '0')
		s->p++;
	else if (!scan_digits(s))
		return false;
	if (s->p < s->end && *s->p == '.') {
		s->p++;
		if (!scan_digits(s))
			return false;
	}
	if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
		s->p++;
		if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
			s->p++;
		if (!scan_digits(s))
			return false;
	}
	return true;
}

static bool scan_word(struct scan *s, const char *word)
{
	const size_t n = strlen(word);

	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return false;
	s->p += n;
	return true;
}

static bool scan_plain(struct scan *s)
{
	switch (*s->p) {
	case '"':
		return scan_text(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		return scan_number(s);
	}
}

/* A key and its colon. */
static bool scan_key(struct scan *s, struct json_span *ret)
{
	char *from;

	skip_space(s);
	from = s->p;
	if (!scan_text(s))
		return false;
	if (ret)
		*ret = (struct json_span){ from + 1, (size_t)(s->p - from) - 2 };
	skip_space(s);
	return s->p < s->end && *s->p++ == ':';
}

/* One value of any kind, without recursion: which brackets are open is a bit each, 1 for an object. */
static bool scan_value(struct scan *s)
{
	uint8_t open[(KERNEL_FRAME_DEPTH + 7) / 8] = { 0 };
	unsigned depth = 0;

	for (;;) {
		skip_space(s);
		if (s->p == s->end)
			return false;
		if (*s->p == '{' || *s->p == '[') {
			const bool object = *s->p++ == '{';

			if (depth == KERNEL_FRAME_DEPTH) {
				s->r = -ELOOP; /* what follows is not looked at */
				return false;
			}
			open[depth / 8] = (uint8_t)(object ? open[depth / 8] | 1U << depth % 8 :
							     open[depth / 8] & ~(1U << depth % 8));
			depth++;
			skip_space(s);
			if (s->p < s->end && *s->p == (object ? '}' : ']')) {
				s->p++;
				depth--;
			} else {
				if (object && !scan_key(s, NULL))
					return false;
				continue;
			}
		} else if (!scan_plain(s)) {
			return false;
		}
		/* Behind a value: what is open is closed, or has a further one. */
		while (depth) {
			const bool object = open[(depth - 1) / 8] & 1U << (depth - 1) % 8;

			skip_space(s);
			if (s->p == s->end)
				return false;
			if (*s->p == (object ? '}' : ']')) {
				s->p++;
				depth--;
				continue;
			}
			if (*s->p++ != ',' || (object && !scan_key(s, NULL)))
				return false;
			break;
		}
		if (!depth)
			break;
	}
	return true;
}

int kernel_frame_read(char *data, size_t len, struct kernel_frame *ret)
{
	struct scan s = { data, data + len, -EBADMSG };

	ret->n = 0;
	if (!utf8_valid(data, len))
		return -EBADMSG;
	skip_space(&s);
	if (s.p == s.end || *s.p++ != '{')
		return -EBADMSG;
	skip_space(&s);
	if (s.p < s.end && *s.p == '}') {
		s.p++;
		skip_space(&s);
		return s.p == s.end ? 0 : -EBADMSG;
	}
	for (;;) {
		struct json_span key, value;

		if (!scan_key(&s, &key))
			return s.r;
		skip_space(&s);
		value.p = s.p;
		if (!scan_value(&s))
			return s.r;
		value.len = (size_t)(s.p - value.p);
		if (ret->n < KERNEL_FRAME_MEMBERS) {
			ret->member[ret->n].key = key;
			ret->member[ret->n++].value = value;
		}
		skip_space(&s);
		if (s.p == s.end)
			return -EBADMSG;
		if (*s.p == ',') {
			s.p++;
			continue;
		}
		if (*s.p++ != '}')
			return -EBADMSG;
		skip_space(&s);
		return s.p == s.end ? 0 : -EBADMSG;
	}
}

struct json_span kernel_frame_get(const struct kernel_frame *f, const char *key)
{
	const size_t n = strlen(key);

	for (unsigned i = 0; i < f->n; i++)
		if (f->member[i].key.len == n && !memcmp(f->member[i].key.p, key, n))
			return f->member[i].value;
	return (struct json_span){ 0 };
}

bool kernel_frame_is(const struct kernel_frame *f, const char *key, const char *text)
{
	const struct json_span s = kernel_frame_get(f, key);
	const size_t n = strlen(text);

	return json_span_is_text(s) && s.len == n + 2 && !memcmp(s.p + 1, text, n);
}

bool kernel_frame_true(const struct kernel_frame *f, const char *key)
{
	const struct json_span s = kernel_frame_get(f, key);

	return s.len == 4 && !memcmp(s.p, "true", 4);
}

bool kernel_frame_u64(const struct kernel_frame *f, const char *key, uint64_t *ret)
{
	const struct json_span s = kernel_frame_get(f, key);
	uint64_t v = 0;

	if (!s.len || s.len > 18)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(s.p[i] - '0');
	}
	*ret = v;
	return true;
}

bool json_span_is_text(struct json_span s)
{
	return s.len >= 2 && s.p[0] == '"';
}

bool json_span_is_object(struct json_span s)
{
	return s.len >= 2 && s.p[0] == '{';
}

static size_t utf8_put(unsigned c, char to[4])
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xC0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3F));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xE0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3F));
		to[2] = (char)(0x80 | (c & 0x3F));
		return 3;
	}
	to[0] = (char)(0xF0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3F));
	to[2] = (char)(0x80 | (c >> 6 & 0x3F));
	to[3] = (char)(0x80 | (c & 0x3F));
	return 4;
}

/* The character of the escape at @p, which was checked. Returns what is behind it. */
static const char *unescape(const char *p, char to[4], size_t *ret_n)
{
	static const char from[] = "bfnrt", plain[] = "\b\f\n\r\t";
	const char *at;
	unsigned c;

	if (p[1] != 'u') {
		at = strchr(from, p[1]);
		to[0] = at ? plain[at - from] : p[1];
		*ret_n = 1;
		return p + 2;
	}
	c = (unsigned)hex4(p + 2);
	p += 6;
	if (c >= 0xD800 && c <= 0xDBFF) { /* the other half follows, scan_escape() has seen to that */
		c = 0x10000 + ((c - 0xD800) << 10) + ((unsigned)hex4(p + 2) - 0xDC00);
		p += 6;
	}
	*ret_n = utf8_put(c, to);
	return p;
}

size_t json_span_text_len(struct json_span s)
{
	const char *p = s.p + 1, *end = s.p + s.len - 1;
	size_t len = 0;

	while (p < end) {
		const char *stop = memchr(p, '\\', (size_t)(end - p));
		char c[4];
		size_t n;

		len += (size_t)((stop ? stop : end) - p);
		if (!stop)
			break;
		p = unescape(stop, c, &n);
		len += n;
	}
	return len;
}

int json_span_text(struct json_span s, size_t most, struct buf *out)
{
	const char *p = s.p + 1, *end = s.p + s.len - 1;
	const size_t from = out->len;
	int r = 0;

	while (p < end && r == 0 && out->len - from < most) {
		const char *stop = memchr(p, '\\', (size_t)(end - p));
		size_t n = (size_t)((stop ? stop : end) - p), room = most - (out->len - from);
		char c[4];

		if (n > room)
			return buf_add(out, p, utf8_whole(p, room));
		r = n ? buf_add(out, p, n) : 0;
		p += n;
		if (r < 0 || p == end)
			break;
		p = unescape(p, c, &n);
		if (n > most - (out->len - from))
			break;
		r = buf_add(out, c, n);
	}
	return r;
}

int json_span_masked(struct json_span s, struct mask *m, struct buf *out)
{
	const char *p = s.p, *end = s.p + s.len;
	int r = 0;

	if (!m)
		return buf_add(out, s.p, s.len);
	while (p < end && r == 0) {
		AUTO(buf_done) struct buf text = BUF_INIT(KERNEL_FRAME_MAX), shown = BUF_INIT(2ULL * KERNEL_FRAME_MAX);
		struct json j = JSON_INIT(out);
		const char *from = memchr(p, '"', (size_t)(end - p));

		if (!from)
			return buf_add(out, p, (size_t)(end - p));
		r = buf_add(out, p, (size_t)(from - p));
		for (p = from + 1; *p != '"'; p++)
			p += *p == '\\';
		p++;
		if (r == 0)
			r = json_span_text((struct json_span){ from, (size_t)(p - from) }, SIZE_MAX, &text);
		if (r == 0)
			r = mask_text(m, buf_str(&text), text.len, &shown);
		jout_strn(&j, NULL, buf_str(&shown), shown.len);
		if (r == 0)
			r = j.r;
	}
	return r;
}
