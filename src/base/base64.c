/* Encodes and decodes base64. */
#include "base/base64.h"
#include "base/base.h"

size_t base64_encode(const void *data, size_t len, char *ret)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = data;
	char *to = ret;

	for (; len >= 3; len -= 3, p += 3, to += 4) {
		to[0] = digits[p[0] >> 2];
		to[1] = digits[(p[0] & 3) << 4 | p[1] >> 4];
		to[2] = digits[(p[1] & 15) << 2 | p[2] >> 6];
		to[3] = digits[p[2] & 63];
	}
	if (len) {
		unsigned second = len > 1 ? p[1] : 0;

		to[0] = digits[p[0] >> 2];
		to[1] = digits[(p[0] & 3) << 4 | second >> 4];
		to[2] = len > 1 ? digits[(second & 15) << 2] : '=';
		to[3] = '=';
		to += 4;
	}
	*to = '\0';
	return (size_t)(to - ret);
}

static int digit_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

ssize_t base64_decode(const char *text, size_t len, char *ret)
{
	uint32_t bits = 0;
	unsigned have = 0;
	ssize_t n = 0;

	while (len && text[len - 1] == '=')
		len--;
	for (size_t i = 0; i < len; i++) {
		int v = digit_value(text[i]);

		if (v < 0)
			return -EINVAL;
		bits = bits << 6 | (uint32_t)v;
		have += 6;
		if (have >= 8) {
			have -= 8;
			ret[n++] = (char)(bits >> have);
		}
	}
	return have >= 6 ? -EINVAL : n;
}
