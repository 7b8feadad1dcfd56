/* Other limits for a sandbox that runs: its control group, the watch of kernel memory, its record and what it sees of itself. */
#include "base/base.h"
#include "base/fd.h"
#include "base/log.h"
#include "engine/image/procfs.h"
#include "engine/pool/limit.h"
#include "engine/rootfs/shown.h"
#include "engine/sandbox/internal.h"

static unsigned cpus_of(uint32_t milli)
{
	return (milli + 999) / 1000;
}

/* What is left out (0) stays. */
static struct spec_limits joined(const struct warden_sandbox *s, const struct spec_limits *l)
{
	const struct cgroup_limits *now = &s->blank.limits;

	return (struct spec_limits){
		.memory = l->memory ? l->memory : s->memory,
		.pids = l->pids ? l->pids : now->pids,
		.cpu_milli = l->cpu_milli ? l->cpu_milli : now->cpu_milli,
	};
}

static int may(const struct warden_sandbox *s, const struct spec_limits *l, struct err *e)
{
	const struct cgroup_limits *now = &s->blank.limits;

	int r = tier_needs(s->tier, TIER_LIMITS, e);

	if (r < 0)
		return r;
	if (s->restoring)
		return err_set(e, ERR_CONFLICT, -EBUSY, "the sandbox is being restored");
	if ((l->memory && !s->memory) || (l->pids && !now->pids) || (l->cpu_milli && !now->cpu_milli))
		return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "hibernate it, change the limit, and let it wake up",
				  "a limit that was removed cannot be set while the sandbox runs");
	/* Its processes are bound to as many, and would not use more. */
	if (l->cpu_milli && cpus_of(l->cpu_milli) > cpus_of(now->cpu_milli) &&
	    procfs_cpus(l->cpu_milli) != procfs_cpus(now->cpu_milli))
		return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "hibernate it, change the limit, and let it wake up",
				  "cpus: the sandbox sees %u CPUs, and cannot get more while it runs",
				  cpus_of(now->cpu_milli));
	return 0;
}

#define GROWS (1U << 20) /* bytes that it may take until the limit is in force */

/*
 * Refuses limits close to or below the present use. Version 2 would end processes until it fits, and both versions
 * would look for memory to free for as long as that takes, while all other requests wait: so nothing is freed here. A
 * sandbox close to the new limit is refused, too: it may pass it before it is set, and no process may die of a change
 * that would have been refused a moment later.
 */
static int refuse_below_use(const struct env *v, const struct warden_sandbox *s, uint64_t memory, struct err *e)
{
	struct cgroup_stat st = { 0 };

	if (memory >= s->memory || cgroup_stat(&v->cgroups, &s->blank.cgroup, &st) < 0 || st.memory + GROWS <= memory)
		return 0;
	return err_advise(e, ERR_CONFLICT, -EBUSY,
			  "end processes that use it, or hibernate the sandbox, change the limit, and let it wake up",
			  "memory limit: %llu bytes are in use, including cached files; the limit must be 1 MiB more",
			  (unsigned long long)st.memory);
}

static int put_all(struct warden *w, struct warden_sandbox *s, const struct spec_limits *l, struct err *e)
{
	const struct cgroup_limits groups = limit_groups(l);
	int r;

	/* The watch first: it may write the limit itself. */
	if (s->watched)
		kernel_watch_limit(w->kernel, s->watched, l->memory);
	r = cgroup_limit(&w->env.cgroups, &s->blank.cgroup, &groups, e);
	if (r == 0 && s->blank.recorded) {
		r = records_limits(&w->env.records, s->blank.slot, l->memory, l->pids, l->cpu_milli);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "write the sandbox's record");
	}
	return r;
}

/*
 * What it sees. The watch writes the parts of the memory when it runs. Version 1: /sys/fs/cgroup/cpu.max is a text of ours
 * (engine/rootfs/premount.c). Elsewhere nothing shows it.
 */
static void show(const struct warden *w, const struct warden_sandbox *s)
{
	struct procfs_memory m = { .limit = s->memory };
	struct cgroup_stat st = { 0 };
	char text[PROCFS_MAX];
	int r;

	if (cgroup_stat(&w->env.cgroups, &s->blank.cgroup, &st) == 0)
		m.used = st.memory;
	shown_write(s->root.premount.writable, "meminfo", text, procfs_meminfo(text, sizeof(text), &m));
	r = shown_write(s->root.premount.writable, "cpu.max", text,
			procfs_cpu_max(text, sizeof(text), s->blank.limits.cpu_milli));

	if (r < 0 && r != -ENOENT) /* one that an older warden made has none */
		log_warn("slot %u: cpu.max inside shows the old limit: %s", s->blank.slot, strerror(-r));
}

int warden_limits(struct warden *w, struct warden_sandbox *s, const struct spec_limits *want, struct err *e)
{
	const struct spec_limits was = joined(s, &(struct spec_limits){ 0 }), now = joined(s, want);
	int r = may(s, want, e);

	if (r == 0)
		r = refuse_below_use(&w->env, s, now.memory, e);
	if (r < 0)
		return r;
	r = put_all(w, s, &now, e);
	if (r < 0) {
		if (put_all(w, s, &was, NULL) < 0)
			log_error("slot %u: its limits are not the previous ones", s->blank.slot);
		return r;
	}
	s->memory = now.memory;
	s->blank.limits.memory = now.memory;
	s->blank.limits.pids = now.pids;
	s->blank.limits.cpu_milli = now.cpu_milli;
	show(w, s);
	return 0;
}
