/* Refuses what a tier lacks, in words. */
#include "engine/tier.h"
#include "base/base.h"

static const char *const ability[] = { "changing the limits of a sandbox", "pausing", "checkpoints",
				       "networks and ports", "file operations" };

int tier_needs(const struct tier_ops *t, enum tier_ability what, struct err *e)
{
	if (!(t->lacks & what))
		return 0;
	return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "create a sandbox with isolation 'container'",
			  "isolation '%s' does not support %s", t->name, ability[__builtin_ctz(what)]);
}
