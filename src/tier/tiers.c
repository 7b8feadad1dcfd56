/* The array of tiers: a new tier is a folder with a table, and one entry here. */
#include "tier/tiers.h"
#include "config.h"
#include "tier/null/null.h"
#include "vm/host/tier.h"

const struct tier_ops *const tiers[] = {
	&container_tier,
	&vm_tier,
#if CLOCHE_NULL_TIER
	&null_tier,
#endif
	NULL,
};
