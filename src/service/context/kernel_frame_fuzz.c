/* Any bytes as a frame of a kernel, which whatever is in a sandbox can send. */
#include <stdlib.h>
#include <string.h>

#include "service/context/kernel_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const struct mask_value value = { .data = "secret", .len = 6 };
	static struct mask *m;
	struct kernel_frame f;
	char *copy = malloc(len ? len : 1);

	if (!copy || (!m && mask_new(&value, 1, &m) < 0))
		abort();
	memcpy(copy, data, len);
	if (kernel_frame_read(copy, len, &f) == 0) {
		for (unsigned i = 0; i < f.n; i++) {
			struct buf text = BUF_INIT(1 << 20), shown = BUF_INIT(8 << 20);

			if (json_span_is_text(f.member[i].value))
				json_span_text(f.member[i].value, 100, &text);
			json_span_masked(f.member[i].value, m, &shown);
			buf_done(&text);
			buf_done(&shown);
		}
	}
	free(copy);
	return 0;
}
