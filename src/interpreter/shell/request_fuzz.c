/* Any bytes as a request: they come from the daemon, but a sandbox can write to its own kernel, too. */
#include <stddef.h>
#include <stdint.h>

#include "interpreter/shell/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct request q;
	struct err e = { 0 };

	request_read(&q, (const char *)data, len, &e);
	request_done(&q);
	return 0;
}
