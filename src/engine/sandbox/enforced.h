/* What is in force for a sandbox, in words: the object `enforced` of a receipt. */
#pragma once

struct sandbox_spec;
struct tier_ops;
struct warden_receipt;

typedef void enforced_fn(void *arg, const char *name, const char *how);

/* What the line "cpus" contains when more were asked for than there are. */
#define ENFORCED_HOST_HAS "this host has"
/* Calls @fn for each line. */
void enforced_say(const struct tier_ops *tier, const struct warden_receipt *r, const struct sandbox_spec *spec,
		  enforced_fn *fn, void *arg);
