/* The control groups of a sandbox's execs, in a container or in a machine. */
#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "engine/sandbox/internal.h"

int warden_first_group(struct warden_sandbox *s)
{
	return s->tier->first_group ? s->tier->first_group(s) : TAKE_FD(s->blank.group);
}

int warden_group(struct warden *w, struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e)
{
	int fd;

	if (s->tier->group_new)
		return s->tier->group_new(s, ret, ret_fd, e);
	fd = groups_new(&s->groups, &w->env.cgroups, &s->blank.cgroup, blank_agent_uid(&s->blank), ret, e);

	if (fd < 0)
		return fd;
	s->blank.grouped = true;
	*ret_fd = fd;
	return 0;
}

int warden_group_for(struct warden *w, struct warden_sandbox *s, uint32_t group, uint32_t uid, int *ret_fd,
		     struct err *e)
{
	/* Version 2 ignores the user id of the moved process, and its files have one owner. */
	const uid_t by = !s->blank.uid_base || w->env.cgroups.version == 2 ? blank_agent_uid(&s->blank) :
									     s->blank.uid_base + uid;
	int fd = s->tier->group_open ? s->tier->group_open(group, e) :
				       cgroup_child_open(&w->env.cgroups, &s->blank.cgroup, group, by);

	if (fd < 0)
		return s->tier->group_open ? fd : err_sys(e, ERR_INTERNAL, fd, "open an exec group");
	*ret_fd = fd;
	return 0;
}

int warden_group_kill(struct warden *w, struct warden_sandbox *s, uint32_t group, struct err *e)
{
	if (s->tier->group_end)
		return s->tier->group_end(s, TIER_GROUP_KILL, group, e);
	return groups_kill(&s->groups, &w->env.cgroups, &s->blank.cgroup, group, e);
}

int warden_group_end(struct warden *w, struct warden_sandbox *s, uint32_t group, struct err *e)
{
	if (s->tier->group_end)
		return s->tier->group_end(s, TIER_GROUP_DONE, group, e);
	return groups_end(&s->groups, &w->env.cgroups, &s->blank.cgroup, group, e);
}
