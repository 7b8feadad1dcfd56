/* The list of tiers that a warden on a host has. */
#pragma once
#include "engine/tier.h"

extern const struct tier_ops vm_tier;
extern const struct tier_ops *const host_tiers[]; /* NULL ends it */
