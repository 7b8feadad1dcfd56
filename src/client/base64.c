#include "client/base64.h"
#include "base/base.h"

int base64_encode(const void *data, size_t len, char *ret, size_t size)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = data;

	if (size < (len + 2) / 3 * 4 + 1)
		return -ENOSPC;
	for (; len; p += 3, ret += 4) {
		unsigned long v = (unsigned long)p[0] << 16;

		if (len > 1)
			v |= (unsigned long)p[1] << 8;
		if (len > 2)
			v |= p[2];
		ret[0] = digits[v >> 18 & 63];
		ret[1] = digits[v >> 12 & 63];
		ret[2] = len > 1 ? digits[v >> 6 & 63] : '=';
		ret[3] = len > 2 ? digits[v & 63] : '=';
		len = len < 3 ? 0 : len - 3;
	}
	*ret = '\0';
	return 0;
}
