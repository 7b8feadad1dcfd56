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

/* The escape for a character, or NULL when it stands for itself. */
/* U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069: line ends, and what turns the direction of the text behind it. */
static bool turns_text(unsigned char b, unsigned char c)
{
	return (b == 0x80 && (c == 0x8e || c == 0x8f || (c >= 0xa8 && c <= 0xae))) || (b == 0x81 && c >= 0xa6 && c <= 0xa9);
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

static void put_string(struct json *j, const unsigned char *p, size_t n)
{
	size_t plain = 0; /* bytes at @p that stand for themselves, not yet written */

	puts_(j, "\"");
	while (plain < n) {
		size_t bad, len;
		const char *esc;
		char tmp[8];

		/* Output of programs is mostly this, and there may be a lot of it. */
		while (plain < n && p[plain] >= 0x20 && p[plain] < 0x7f && p[plain] != '"' && p[plain] != '\\')
			plain++;
		if (plain == n)
			break;
		len = utf8_len(p + plain, n - plain, &bad);
		esc = len ? escape(p + plain, len, tmp, sizeof(tmp)) : "\xef\xbf\xbd";
		if (!esc) {
			plain += len;
			continue;
		}
		put(j, p, plain);
		puts_(j, esc);
		p += plain + (len ? len : bad);
		n -= plain + (len ? len : bad);
		plain = 0;
	}
	put(j, p, plain);
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
	char tmp[24];

	snprintf(tmp, sizeof(tmp), "%" PRIu64, v);
	if (begin(j, key))
		puts_(j, tmp);
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
