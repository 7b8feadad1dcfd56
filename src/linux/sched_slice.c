/* Sets the time slice of a thread. */
#include "linux/sched_slice.h"
#include "base/base.h"
#include "base/sys.h"

#include <sched.h>

/* Policy and nice value stay: raising the own priority needs a right that the thread may not have. */
static int change(struct sys_sched_attr *a, uint64_t ns)
{
	a->runtime = ns;
	a->flags = 0;
	return sys_sched_setattr(a);
}

static int choose(uint64_t ns)
{
	struct sys_sched_attr a = { 0 };
	int r = sys_sched_getattr(&a);

	if (r < 0 || a.policy != SCHED_OTHER)
		return r;
	return change(&a, ns);
}

int sched_slice_long(void)
{
	return choose(SLICE_LONG_NS);
}

int sched_slice_short(void)
{
	return choose(SLICE_SHORT_NS);
}

int sched_slice_usual(void)
{
	struct sys_sched_attr a = { 0 };
	int r = sys_sched_getattr(&a);

	/* If the slice cannot be read, it was not made longer either. */
	if (r < 0 || a.policy != SCHED_OTHER || a.runtime != SLICE_LONG_NS)
		return 0;
	return change(&a, 0);
}
