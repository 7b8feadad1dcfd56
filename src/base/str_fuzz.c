/* Any text: no crash, *ret untouched on failure, and what was taken means the same when written out again. */
#include "base/str.h"
#include "base/base.h"

#include <inttypes.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO_FREE char *text = calloc(1, size + 1);
	uint64_t v = 42, again = 0;
	uint32_t milli = 42;
	struct err e;
	char back[32];

	if (!text)
		abort();
	memcpy(text, data, size);
	if (parse_size(text, &v, &e) == 0) {
		snprintf(back, sizeof(back), "%" PRIu64, v);
		if (parse_size(back, &again, &e) < 0 || again != v)
			abort();
	} else if (v != 42 || !e.msg[0]) {
		abort();
	}
	v = 42;
	if (parse_duration(text, &v, &e) == 0) {
		snprintf(back, sizeof(back), "%" PRIu64 "ms", v);
		/* The largest ones fit only with their own unit. */
		if (parse_duration(back, &again, &e) == 0 && again != v)
			abort();
	} else if (v != 42 || !e.msg[0]) {
		abort();
	}
	v = 42;
	if (parse_u64(text, &v, &e) < 0 && (v != 42 || !e.msg[0]))
		abort();
	if (parse_cpus(text, &milli, &e) < 0 && (milli != 42 || !e.msg[0]))
		abort();
	return 0;
}
