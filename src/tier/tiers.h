/*
 * The tiers of this build, and which of them a spec requests. Code that depends on the tier asks its table
 * (engine/tier.h), and not the flags of a spec.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/spec.h"
#include "engine/tier.h"

/* NULL-terminated. The first is the default for requests that name none. */
extern const struct tier_ops *const tiers[];

/*
 * Finds a tier by the value of `isolation`. ERR_UNSUPPORTED for one that is planned, else ERR_INVALID; both messages
 * list the available ones.
 */
int tier_find(const char *name, const struct tier_ops **ret, struct err *e);
/*
 * The tier of a spec's or layer's flags; NULL: this build has none for them. Never NULL for a spec that tier_check()
 * has accepted.
 */
const struct tier_ops *tier_of(uint32_t flags);
/* Whether a sandbox with these flags is a virtual machine: its processes are reached through its agent only. */
bool tier_is_machine(uint32_t flags);
/* Whether a warden of this host, running as root, could make one. */
bool tier_ready(const struct tier_ops *t);
/* spec_check(), and then refuses what the spec's tier does not support. */
int tier_check(const struct sandbox_spec *spec, struct err *e);
