/* What all parsers of the first bytes of a stream share. */
#include "egress/look.h"

#include "base/base.h"

static int read_port(const char *p, size_t n, uint16_t *ret)
{
	unsigned v = 0;

	if (!n || n > 5 || *p == '0')
		return -EINVAL;
	for (; n; p++, n--) {
		if (*p < '0' || *p > '9')
			return -EINVAL;
		v = v * 10 + (unsigned)(*p - '0');
	}
	if (v > 65535)
		return -EINVAL;
	*ret = (uint16_t)v;
	return 0;
}

static int read_addr(const char *p, size_t n, struct look_to *ret)
{
	char text[64];

	if (!n || n >= sizeof(text) || memchr(p, '\0', n))
		return -EINVAL;
	memcpy(text, p, n);
	text[n] = '\0';
	return net_addr_parse(text, &ret->addr);
}

int look_authority(const char *text, size_t len, struct look_to *ret)
{
	struct look_to to = { 0 };
	const char *end = text + len, *colon, *close;

	if (len && *text == '[') {
		close = memchr(text, ']', len);
		/* An address in brackets must be IPv6, also when it is a mapped IPv4 address. */
		if (!close || !memchr(text, ':', (size_t)(close - text)) ||
		    read_addr(text + 1, (size_t)(close - text - 1), &to) < 0)
			return -EINVAL;
		colon = close + 1;
	} else {
		colon = memchr(text, ':', len);
		if (!colon)
			colon = end;
		/* First as an address: of those the grammar of names takes none. */
		if (read_addr(text, (size_t)(colon - text), &to) < 0 &&
		    net_name_parse(text, (size_t)(colon - text), to.name) < 0)
			return -EINVAL;
	}
	if (colon < end && (*colon != ':' || read_port(colon + 1, (size_t)(end - colon - 1), &to.port) < 0))
		return -EINVAL;
	*ret = to;
	return 0;
}
