/* Translates limits of a spec into those of control groups. */
#include "engine/pool/limit.h"
#include "base/base.h"
#include "engine/pool/pool.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

struct cgroup_limits limit_groups(const struct spec_limits *want)
{
	return (struct cgroup_limits){
		.memory = want->memory,
		.pids = want->pids,
		.cpu_milli = want->cpu_milli,
		.io_bps = want->io_bps,
	};
}

int limit_set(struct env *v, struct blank *s, const struct root *root, const struct spec_limits *want, struct err *e)
{
	struct cgroup_limits l = limit_groups(want);
	struct stat st;

	if (l.io_bps) {
		/*
		 * Only its own disk. A page of an image is locked while it is read, so a limit on its device would hold up
		 * whoever else reads the page: other sandboxes, and the host's programs.
		 */
		if (fstat(root->premount.writable, &st) == 0 && major(st.st_dev)) {
			l.io_dev[0].major = major(st.st_dev);
			l.io_dev[0].minor = minor(st.st_dev);
			l.io_ndevs = 1;
		}
	} else if (pool_limits_same(s, &l))
		return 0;
	s->limits = l;
	s->limited = true;
	return cgroup_limit(&v->cgroups, &s->cgroup, &l, e);
}

int limit_check(struct env *v, const struct spec_limits *l, struct err *e)
{
	const struct cgroup c = { .mask = v->controllers };
	const struct cgroup_limits probe = { .memory = l->memory, .pids = l->pids, .cpu_milli = l->cpu_milli };

	return (!l->memory || c.mask & CGROUP_BIT(CGROUP_MEMORY)) && (!l->pids || c.mask & CGROUP_BIT(CGROUP_PIDS)) &&
			       (!l->cpu_milli || c.mask & CGROUP_BIT(CGROUP_CPU)) ?
		       0 :
		       cgroup_limit(&v->cgroups, &c, &probe, e);
}
