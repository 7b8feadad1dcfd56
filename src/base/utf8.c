/* Checks UTF-8. */
#include "base/utf8.h"
#include "base/base.h"

/* Bytes of the character that begins with @c, 0 when none does. */
static size_t length(unsigned char c)
{
	return c < 0x80 ? 1 : c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* Overlong forms, surrogates and what is beyond U+10FFFF show in the second byte. */
static bool second_fits(unsigned char a, unsigned char b)
{
	return (a != 0xe0 || b >= 0xa0) && (a != 0xed || b <= 0x9f) && (a != 0xf0 || b >= 0x90) &&
	       (a != 0xf4 || b <= 0x8f);
}

bool utf8_valid(const char *p, size_t len)
{
	const unsigned char *s = (const unsigned char *)p, *end = s + len;

	while (s < end) {
		uint64_t w;
		size_t n;

		if (end - s >= 8) {
			memcpy(&w, s, 8);
			if (!(w & 0x8080808080808080ULL)) {
				s += 8;
				continue;
			}
		}
		n = length(*s);
		if (!n || (size_t)(end - s) < n)
			return false;
		for (size_t i = 1; i < n; i++)
			if ((s[i] & 0xc0) != 0x80)
				return false;
		if (n > 1 && !second_fits(s[0], s[1]))
			return false;
		s += n;
	}
	return true;
}

size_t utf8_whole(const char *p, size_t len)
{
	const unsigned char *s = (const unsigned char *)p;

	for (size_t back = 1; back <= 3 && back <= len; back++) {
		unsigned char c = s[len - back];

		if ((c & 0xc0) == 0x80)
			continue;
		return length(c) > back ? len - back : len;
	}
	return len;
}
