/* Marks by which a layer that was not settled is recognized after a restart of the warden, or of the machine. */
#include "layers/settle_mark.h"
#include "base/base.h"
#include "base/fd.h"
#include "layers/settle.h"

#include <fcntl.h>

int mark_boot(uint64_t *ret)
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;
	char text[64];
	ssize_t n = fd_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text));

	if (n <= 0)
		return n < 0 ? (int)n : -EIO;
	sha256_init(&s);
	sha256_add(&s, text, (size_t)n);
	sha256_end(&s, sum);
	memcpy(ret, sum, sizeof(*ret));
	return 0;
}

bool settle_this_boot(const struct manifest *m)
{
	struct mark mark;
	uint64_t boot;

	memcpy(&mark, m->meta_sum, sizeof(mark));
	return mark_boot(&boot) == 0 && mark.boot == boot;
}
