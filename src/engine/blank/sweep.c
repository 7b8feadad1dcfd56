/* Removes what a killed warden has left. */
#include "engine/blank/sweep.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <time.h>

/* Time for which a slot may be held by another process that only looks, as sweeping does. */
#define LOOK_MS 100U

struct sweep {
	struct env *env;
	unsigned busy, held;
};

static int look(const char *name, void *arg)
{
	struct sweep *s = arg;
	uint64_t slot;
	int r;

	if (name[0] != 's' || parse_u64(name + 1, &slot, NULL) < 0 || slot >= SLOT_COUNT)
		return 0;
	/* A slot that is held: a process makes, uses or ends it, or sweeps as well. */
	r = slots_claim(&s->env->slots, (uint32_t)slot);
	s->held += r < 0 && r != -EALREADY;
	if (r < 0)
		return 0;
	s->busy += cgroup_remove(&s->env->cgroups, name, s->env->cgroups.have) == -EBUSY;
	slots_give(&s->env->slots, (uint32_t)slot, -1);
	return 0;
}

static struct sweep sweep(struct env *v)
{
	struct sweep s = { .env = v };

	if (v->slots.fd >= 0)
		cgroup_each(&v->cgroups, look, &s);
	return s;
}

void sweep_groups(struct env *v, unsigned ms)
{
	const uint64_t start = clock_mono_ns(), until = start + ms * 1000000ULL;
	const uint64_t looked = start + (ms < LOOK_MS ? ms : LOOK_MS) * 1000000ULL;

	for (;;) {
		struct sweep s = sweep(v);
		uint64_t now = clock_mono_ns();

		if (!(s.busy && now < until) && !(s.held && now < looked))
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
}
