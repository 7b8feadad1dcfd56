/* A server's bytes, in pieces: whatever they are, the value is not in the output, and a body with a length keeps it. */
#include "egress/scrub.h"

#include <stdint.h>

#include "base/base.h"

#define VALUE "s3cret-value"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct mask *m;
	const struct mask_value v = { VALUE, sizeof(VALUE) - 1, false };
	AUTO(buf_done) struct buf out = BUF_INIT(4 * MIB);
	struct scrub *s;
	const char *why = "";
	size_t at = 1;
	int r = 0;

	if ((!m && mask_new(&v, 1, &m) < 0) || !size || !(s = scrub_new(m)))
		return 0;
	scrub_asked(s, data[0] & 1, data[0] & 2);
	scrub_asked(s, data[0] & 4, data[0] & 8);
	while (at < size && r == 0) {
		size_t n = 1 + data[at] % 64;

		if (n > size - at)
			n = size - at;
		r = scrub_feed(s, (const char *)data + at, n, &out, &why);
		at += n;
		if (r == 0 && n % 7 == 0)
			r = scrub_pause(s, &out);
	}
	if (r == 0)
		(void)scrub_end(s, data[0] & 16, &out);
	/* Framing separates the pieces of a body, and a head is masked line by line: so a whole value is never left. */
	if (out.len && memmem(out.data, out.len, VALUE, sizeof(VALUE) - 1))
		abort();
	scrub_free(s);
	return 0;
}
