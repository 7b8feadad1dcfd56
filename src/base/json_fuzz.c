/* Any bytes become one valid JSON string: plain text between quotes, well-formed UTF-8, no control characters. */
#include "base/json.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A decoder of its own, so that a mistake in the writer's does not hide itself. */
static size_t decode(const unsigned char *p, const unsigned char *end, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
	uint32_t c;

	if (!len || (size_t)(end - p) < len)
		abort();
	c = len == 1 ? *p : *p & (0xffU >> (len + 1));
	for (size_t i = 1; i < len; i++) {
		if (p[i] >> 6 != 2)
			abort();
		c = c << 6 | (p[i] & 63);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		abort();
	*ret = c;
	return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct json j = JSON_INIT(&b);
	const unsigned char *p, *end;

	jout_strn(&j, NULL, data, size);
	if (jout_done(&j) < 0)
		return size * 6 + 2 <= MIB ? (abort(), 0) : 0;
	p = (const unsigned char *)b.data + 1;
	end = (const unsigned char *)b.data + b.len - 1;
	if (b.data[0] != '"' || *end != '"' || end < p)
		abort();
	while (p < end) {
		uint32_t c;

		p += decode(p, end, &c);
		if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == '"')
			abort();
		if (c != '\\')
			continue;
		if (p == end || !strchr("\"\\bfnrtu", *p))
			abort();
		if (*p == 'u' && end - p < 5)
			abort();
		p += *p == 'u' ? 5 : 1;
	}
	return 0;
}
