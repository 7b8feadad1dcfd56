/* Sums up a file piece by piece. */
#include "base/piece.h"
#include "base/base.h"
#include "base/blake3.h"

void piece_sum(const void *data, size_t len, uint8_t ret[SHA256_SIZE])
{
	const char *p = data;

	static_assert(PIECE_SIZE <= BLAKE3_MOST && BLAKE3_SIZE == SHA256_SIZE, "a sum is a sum");
	if (!p[0] && (len == 1 || !memcmp(p, p + 1, len - 1)))
		memset(ret, 0, SHA256_SIZE);
	else
		blake3(data, len, ret);
}
