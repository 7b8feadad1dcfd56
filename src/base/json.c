/* Writes JSON: commas, nesting and escapes. */
#include "base/json.h"
#include "base/base.h"

#include <inttypes.h>

static void put(struct json *j, const void *data, size_t len)
{
	if (j->r == 0)
		j->r = buf_add(j->buf, data, len);
}

static void puts_(struct json *j, const char *text)
{
	put(j, text, strlen(text));
}

/* Length of the UTF-8 sequence at @p, or 0 and the number of bytes to give up on (the longest start of a sequence that
 * could have been valid, so that one torn character becomes one U+FFFD). */
static size_t utf8_len(const unsigned char *p, size_t n, size_t *ret_bad)
{
	unsigned char lo = 0x80, hi = 0xbf;
	size_t want;

	*ret_bad = 1;
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf) {
		want = 2;
	} else if (p[0] >= 0xe0 && p[0] <= 0xef) {
		want = 3;
		if (p[0] == 0xe0)
			lo = 0xa0; /* shorter forms exist */
		else if (p[0] == 0xed)
			hi = 0x9f; /* surrogates */
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		want = 4;
		if (p[0] == 0xf0)
			lo = 0x90;
		else if (p[0] == 0xf4)
			hi = 0x8f; /* past U+10FFFF */
	} else {
		return 0;
	}
	for (size_t i = 1; i < want; i++) {
		if (i == n || p[i] < lo || p[i] > hi) {
			*ret_bad = i;
			return 0;
		}
		lo = 0x80;
		hi = 0xbf;
	}
	return want;
}

/* The escape for a character, or NULL when it needs none. */
/* U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069: line ends, and what turns the direction of the text behind it. */
static bool turns_text(unsigned char b, unsigned char c)
{
	return (b == 0x80 && (c == 0x8e || c == 0x8f || (c >= 0xa8 && c <= 0xae))) ||
	       (b == 0x81 && c >= 0xa6 && c <= 0xa9);
}

static const char *escape(const unsigned char *p, size_t len, char *tmp, size_t size)
{
	unsigned code = p[0];

	switch (code) {
	case '"':
		return "\\\"";
	case '\\':
		return "\\\\";
	case '\b':
		return "\\b";
	case '\f':
		return "\\f";
	case '\n':
		return "\\n";
	case '\r':
		return "\\r";
	case '\t':
		return "\\t";
	default:
		break;
	}
	if (len == 2 && code == 0xc2 && p[1] < 0xa0)
		code = p[1]; /* C1: U+0080 to U+009F */
	else if (len == 3 && code == 0xe2 && turns_text(p[1], p[2]))
		code = 0x2000U | (p[1] & 0x3fU) << 6 | (p[2] & 0x3fU);
	else if (len != 1 || (code >= 0x20 && code != 0x7f))
		return NULL;
	snprintf(tmp, size, "\\u%04x", code);
	return tmp;
}

/* Whether none of eight bytes needs an escape: none below space, above ~, and no quote or backslash. */
static bool plain8(const unsigned char *p)
{
	const uint64_t ones = 0x0101010101010101ULL, tops = 0x8080808080808080ULL;
	uint64_t x, quote, back, del;

	memcpy(&x, p, sizeof(x));
	quote = x ^ ones * '"';
	back = x ^ ones * '\\';
	del = x ^ ones * 0x7f;
	return !((x | (x - ones * 0x20) | (quote - ones) | (back - ones) | (del - ones)) & tops);
}

/* What a byte below 0x80 becomes behind a backslash, 0 = itself, 1 = \u00XX. */
static const char short_forms[128] = {
	1, 1, 1, 1, 1, 1, 1, 1, 'b', 't', 'n', 1, 'f',	       'r',	      1,	  1, 1, 1, 1, 1,
	1, 1, 1, 1, 1, 1, 1, 1, 1,   1,	  1,   1, ['"'] = '"', ['\\'] = '\\', [0x7f] = 1,
};

/*
 * Output of programs is mostly ASCII, and there may be a lot of it: as much as is, straight into the buffer. Returns
 * how many of the @n bytes were taken; 0 when something else comes first, or the room is too tight to be sure.
 */
static size_t put_ascii(struct json *j, const unsigned char *p, size_t n)
{
	size_t done = 0;
	char *to, *at;

	if (n > 4096)
		n = 4096;
	at = to = j->r == 0 ? buf_room(j->buf, n * 6 + 8) : NULL;
	while (to && done < n) {
		unsigned char c = p[done];

		if (n - done >= 8 && plain8(p + done)) {
			memcpy(at, p + done, 8);
			at += 8;
			done += 8;
			continue;
		}
		if (c >= 0x80)
			break;
		if (!short_forms[c]) {
			*at++ = (char)c;
		} else if (short_forms[c] == 1) {
			memcpy(at, "\\u00", 4);
			at[4] = "0123456789abcdef"[c >> 4];
			at[5] = "0123456789abcdef"[c & 15];
			at += 6;
		} else {
			*at++ = '\\';
			*at++ = short_forms[c];
		}
		done++;
	}
	if (to)
		buf_added(j->buf, (size_t)(at - to));
	return done;
}

static void put_string(struct json *j, const unsigned char *p, size_t n)
{
	puts_(j, "\"");
	while (n && j->r == 0) {
		size_t bad, len, took = put_ascii(j, p, n);
		const char *esc;
		char tmp[8];

		if (took) {
			p += took;
			n -= took;
			continue;
		}
		len = utf8_len(p, n, &bad);
		esc = len ? escape(p, len, tmp, sizeof(tmp)) : "\xef\xbf\xbd";
		if (esc)
			puts_(j, esc);
		else
			put(j, p, len);
		p += len ? len : bad;
		n -= len ? len : bad;
	}
	puts_(j, "\"");
}

/* What comes before a value: the comma and the key. False once there was an error. */
static bool begin(struct json *j, const char *key)
{
	bool in_object = j->depth && j->close[j->depth - 1] == '}';

	/* A key exactly where one belongs, and only one value at the top. */
	if (j->r == 0 && (in_object != (key != NULL) || (!j->depth && j->comma)))
		j->r = -EINVAL;
	if (j->comma)
		puts_(j, ",");
	if (key) {
		put_string(j, (const unsigned char *)key, strlen(key));
		puts_(j, ":");
	}
	j->comma = true;
	return j->r == 0;
}

static void open_level(struct json *j, const char *key, const char *open, char close)
{
	if (!begin(j, key))
		return;
	if (j->depth == JSON_DEPTH_MAX) {
		j->r = -E2BIG;
		return;
	}
	puts_(j, open);
	j->close[j->depth++] = close;
	j->comma = false;
}

void jout_object(struct json *j, const char *key)
{
	open_level(j, key, "{", '}');
}

void jout_array(struct json *j, const char *key)
{
	open_level(j, key, "[", ']');
}

void jout_end(struct json *j)
{
	if (j->r == 0 && !j->depth)
		j->r = -EINVAL;
	if (j->r < 0)
		return;
	put(j, &j->close[--j->depth], 1);
	j->comma = true;
}

void jout_str(struct json *j, const char *key, const char *text)
{
	if (text)
		jout_strn(j, key, text, strlen(text));
	else
		jout_null(j, key);
}

void jout_strn(struct json *j, const char *key, const void *data, size_t len)
{
	if (begin(j, key))
		put_string(j, data, len);
}

void jout_raw(struct json *j, const char *key, const char *text, size_t len)
{
	if (begin(j, key))
		put(j, text, len);
}

void jout_u64(struct json *j, const char *key, uint64_t v)
{
	char tmp[24], *at = tmp + sizeof(tmp);

	do {
		*--at = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	if (begin(j, key))
		put(j, at, (size_t)(tmp + sizeof(tmp) - at));
}

void jout_i64(struct json *j, const char *key, int64_t v)
{
	char tmp[24];

	snprintf(tmp, sizeof(tmp), "%" PRId64, v);
	if (begin(j, key))
		puts_(j, tmp);
}

void jout_bool(struct json *j, const char *key, bool v)
{
	if (begin(j, key))
		puts_(j, v ? "true" : "false");
}

void jout_null(struct json *j, const char *key)
{
	if (begin(j, key))
		puts_(j, "null");
}

int jout_done(const struct json *j)
{
	if (j->r < 0)
		return j->r;
	return j->depth || !j->comma ? -EINVAL : 0;
}
