#include "warden/sweep.h"
#include "base/base.h"
#include "base/str.h"

struct sweep {
	struct env *env;
	unsigned removed;
};

static int look(const char *name, void *arg)
{
	struct sweep *s = arg;
	uint64_t slot;

	if (name[0] != 's' || parse_u64(name + 1, &slot, NULL) < 0 || slot >= SLOT_COUNT)
		return 0;
	/* Held: somebody is making, using or ending it. */
	if (slots_claim(&s->env->slots, (uint32_t)slot) < 0)
		return 0;
	s->removed += cgroup_remove(&s->env->cgroups, name, s->env->cgroups.have) == 0;
	slots_give(&s->env->slots, (uint32_t)slot, -1);
	return 0;
}

unsigned sweep_groups(struct env *v)
{
	struct sweep s = { .env = v };

	if (v->slots.fd >= 0)
		cgroup_each(&v->cgroups, look, &s);
	return s.removed;
}
