/* Any bytes as a stream of messages: nothing is read outside them, searching always gets on, what decodes is in range. */
#include "proto/mux.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t at = 0;

	while (at < size) {
		struct mux_start start;
		struct mux_stat stat;
		const uint8_t *spec;
		struct mux m;
		long n = mux_decode(data + at, size - at, &m);

		if (n == 0)
			break;
		if (n < 0) {
			size_t skip = mux_skip(data + at, size - at);

			if (!skip || skip > size - at)
				abort();
			at += skip;
			continue;
		}
		if ((size_t)n > size - at || m.len > MUX_PAYLOAD_MAX || m.channel >= MUX_CHANNELS ||
		    m.payload + m.len > data + size)
			abort();
		mux_stat_decode(&m, &stat);
		if (mux_start_decode(&m, &start, &spec) == 0 && spec + start.spec_len != m.payload + m.len)
			abort();
		at += (size_t)n;
	}
	return 0;
}
