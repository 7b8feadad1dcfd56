/* Translates limits of a spec into those of control groups. */
#include "engine/pool/limit.h"
#include "base/base.h"
#include "engine/pool/pool.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

/* Adds the block device of a mount to those that the I/O limit applies to. */
static void add_device(struct cgroup_limits *l, int fd)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || major(st.st_dev) == 0)
		return;
	for (unsigned i = 0; i < l->io_ndevs; i++)
		if (l->io_dev[i].major == major(st.st_dev) && l->io_dev[i].minor == minor(st.st_dev))
			return;
	if (l->io_ndevs < ARRAY_LEN(l->io_dev)) {
		l->io_dev[l->io_ndevs].major = major(st.st_dev);
		l->io_dev[l->io_ndevs].minor = minor(st.st_dev);
		l->io_ndevs++;
	}
}

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

	if (l.io_bps) {
		/*
		 * Only its own disk. A page of an image is locked while it is read, so a limit on its device would hold up
		 * whoever else reads the page: other sandboxes, and the host's programs.
		 */
		add_device(&l, root->premount.writable);
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
