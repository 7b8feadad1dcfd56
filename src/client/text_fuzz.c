/* Whatever a server says: after escaping, nothing is left that a terminal acts upon. */
#include "client/text.h"
#include "base/base.h"

#include <locale.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * MIB), again = BUF_INIT(64 * MIB);
	size_t width, half;

	setlocale(LC_CTYPE, "C.UTF-8");
	if (text_escape(&b, (const char *)data, len) < 0)
		return 0;
	for (size_t i = 0; i < b.len; i++) {
		unsigned char c = (unsigned char)b.data[i];

		if (c < 0x20 || c == 0x7f || (c == 0xc2 && (unsigned char)b.data[i + 1] < 0xa0))
			abort();
	}
	/* What is escaped stays as it is, and cutting never makes it wider. */
	if (text_escape(&again, buf_str(&b), b.len) < 0 || again.len != b.len)
		abort();
	width = text_width(buf_str(&b));
	half = text_cut(buf_str(&b), width / 2);
	if (half > b.len)
		abort();
	buf_cut(&b, half);
	if (text_width(buf_str(&b)) > width / 2)
		abort();
	return 0;
}
