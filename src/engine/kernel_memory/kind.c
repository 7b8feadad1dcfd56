#include "engine/kernel_memory/kind.h"

#include <assert.h>

static_assert(KERNEL_KINDS_COUNT <= KERNEL_KINDS_MAX, "kinds have places in struct kernel_usage");

static const char *const names[KERNEL_KINDS_COUNT] = {
#define X(id, name) [KERNEL_##id] = name,
	KERNEL_KINDS(X)
#undef X
};

static const char *const pools[KERNEL_POOLS_COUNT] = {
#define X(id, name) [KERNEL_POOL_##id] = name,
	KERNEL_POOLS(X)
#undef X
};

const char *kernel_kind_name(uint64_t killed_by)
{
	if (killed_by >= KERNEL_POOLS_FIRST && killed_by < KERNEL_POOLS_FIRST + KERNEL_POOLS_COUNT)
		return pools[killed_by - KERNEL_POOLS_FIRST];
	return killed_by && killed_by <= KERNEL_KINDS_COUNT ? names[killed_by - 1] : "memory";
}
