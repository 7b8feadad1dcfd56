/* The tier of virtual machines. */
#pragma once
#include "engine/tier.h"

extern const struct tier_ops vm_tier;
