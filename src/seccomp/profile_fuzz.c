/* Any bytes as a profile: it never crashes, and what is accepted becomes a valid program. */
#include "seccomp/profile.h"
#include "base/base.h"

#include <linux/filter.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buf_done) struct buf b = BUF_INIT(PROFILE_PROGRAM_MAX);
	struct err e = { 0 };
	int r = profile_compile((const char *)data, size, &b, &e);

	if (r < 0 ? !e.msg[0] || b.len : !b.len || b.len % sizeof(struct sock_filter))
		abort();
	return 0;
}
