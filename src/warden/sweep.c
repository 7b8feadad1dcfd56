#include "warden/sweep.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <time.h>

struct sweep {
	struct env *env;
	unsigned busy;
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
	s->busy += cgroup_remove(&s->env->cgroups, name, s->env->cgroups.have) == -EBUSY;
	slots_give(&s->env->slots, (uint32_t)slot, -1);
	return 0;
}

static unsigned sweep(struct env *v)
{
	struct sweep s = { .env = v };

	if (v->slots.fd >= 0)
		cgroup_each(&v->cgroups, look, &s);
	return s.busy;
}

void sweep_groups(struct env *v, unsigned ms)
{
	const uint64_t until = clock_mono_ns() + ms * 1000000ULL;

	while (sweep(v) && clock_mono_ns() < until)
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}
