/* Names of the kinds of kernel memory, and of the pools; what the log says when one is exceeded. */
#include "engine/kernel_memory/kind.h"

#include "base/base.h"
#include "base/log.h"
#include "engine/kernel_memory/looker.h"

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

void kernel_kind_log(const char *group, const struct kernel_act *a)
{
	const unsigned long long memory = a->memory / KIB, have = a->have / KIB;

	if (a->by < KERNEL_POOLS_FIRST)
		log_info(
			"sandbox %s: %llu KiB of %s and %llu KiB of memory exceed its limit of %llu KiB: its processes are "
			"ended",
			group, (unsigned long long)a->bytes[a->by - 1] / KIB, kernel_kind_name(a->by), have, memory);
	else
		log_info("sandbox %s: its tenant's sandboxes use more than %llu of %s, of which it uses %llu: its "
			 "processes are ended",
			 group, (unsigned long long)a->share, kernel_kind_name(a->by), (unsigned long long)a->taken);
}
