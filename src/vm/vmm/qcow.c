/* Writes the header of an empty disk. */
#include "vm/vmm/qcow.h"
#include "base/base.h"
#include "base/sys.h"

#include <unistd.h>

#define BITS 16U /* the size of a cluster is 2^BITS bytes */
#define CLUSTER (1U << BITS)
#define L2_SPAN ((uint64_t)CLUSTER * (CLUSTER / 8)) /* bytes that one entry of the first table maps */
#define HEAD_LEN 104U
#define REFCOUNT_ORDER 4U /* 16 bits each */

enum place { PLACE_HEAD, PLACE_COUNTS, PLACE_COUNT_BLOCK, PLACE_TABLE, PLACES };
static_assert(QCOW_SIZE_MAX / L2_SPAN <= CLUSTER / 8, "the first table is one cluster");

static void put(uint8_t *at, uint64_t v, unsigned bytes)
{
	while (bytes--) {
		at[bytes] = (uint8_t)v;
		v >>= 8;
	}
}

int qcow_format(int fd, uint64_t size)
{
	uint8_t head[HEAD_LEN] = { 'Q', 'F', 'I', 0xfb }, counts[8], block[2 * PLACES];
	const struct {
		const void *data;
		size_t len;
		off_t at;
	} part[] = { { head, sizeof(head), 0 },
		     { counts, sizeof(counts), PLACE_COUNTS * CLUSTER },
		     { block, sizeof(block), PLACE_COUNT_BLOCK * CLUSTER } };
	int r;

	if (!size || size % 512 || size > QCOW_SIZE_MAX)
		return -EINVAL;
	put(head + 4, 3, 4); /* version */
	put(head + 20, BITS, 4);
	put(head + 24, size, 8);
	put(head + 36, (size + L2_SPAN - 1) / L2_SPAN, 4);
	put(head + 40, PLACE_TABLE * CLUSTER, 8);
	put(head + 48, PLACE_COUNTS * CLUSTER, 8);
	put(head + 56, 1, 4); /* clusters of counts' table */
	put(head + 96, REFCOUNT_ORDER, 4);
	put(head + 100, HEAD_LEN, 4);
	put(counts, PLACE_COUNT_BLOCK * CLUSTER, 8);
	for (unsigned i = 0; i < PLACES; i++)
		put(block + 2 * i, 1, 2);
	r = sys_ftruncate(fd, PLACES * CLUSTER);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(part); i++) {
		ssize_t n = pwrite(fd, part[i].data, part[i].len, part[i].at);

		r = n < 0 ? -errno : (size_t)n == part[i].len ? 0 : -EIO;
	}
	return r;
}
