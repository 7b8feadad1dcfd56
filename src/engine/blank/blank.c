/* Makes and ends a sandbox that has no image yet. */
#include "engine/blank/blank.h"
#include "base/base.h"
#include "base/pidfd.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/blank/persist.h"
#include "engine/blank/stash.h"
#include "engine/image/device_folder.h"
#include "linux/caps.h"
#include "linux/mount.h"
#include "linux/net_limits.h"
#include "proto/frame.h"

#include <linux/prctl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define CLEANUP_TRIES 3
#define ORPHAN_MS 200
#define SLOT_TRIES 32

void blank_init(struct blank *s)
{
	*s = (struct blank){
		.pidfd = -1,
		.sock = -1,
		.userns = -1,
		.take = -1,
		.give = -1,
		.table = -1,
		.group = -1,
		.again = -1,
		.way = { -1, -1, -1 },
	};
	ground_init(&s->ground);
}

uid_t blank_agent_uid(const struct blank *s)
{
	return s->uid_base ? s->uid_base + AGENT_UID : 0;
}

/* The sources may sit where the targets go, so they are moved away first. */
static int place_fds(struct blank_start *s)
{
	int *const sources[] = { &s->sock, &s->dev, &s->base, &s->null, &s->agent };
	int r;

	for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
		r = sys_fcntl(*sources[i], F_DUPFD_CLOEXEC, 16);
		if (r < 0)
			return r;
		*sources[i] = r;
	}
	r = sys_dup3(s->sock, 3, 0);
	if (r >= 0)
		r = sys_dup3(s->dev, 4, 0);
	if (r >= 0)
		r = sys_dup3(s->base, 5, 0);
	for (int fd = 0; r >= 0 && fd < 3; fd++)
		r = sys_dup3(s->null, fd, 0);
	return r < 0 ? r : 0;
}

/* Becomes root (or @single_id) of the new user namespace, and keeps every capability there across the execve. */
static int become(uint32_t single_id)
{
	int r;

	if (!single_id) {
		r = sys_setresgid(0, 0, 0);
		if (r == 0)
			r = sys_setresuid(0, 0, 0);
		return r == 0 ? sys_setgroups(0, NULL) : r;
	}
	/* An id other than 0 keeps capabilities through execve only as ambient ones. */
	r = caps_set((1ULL << 41) - 1, (1ULL << 41) - 1);
	return r == 0 ? caps_raise_ambient((1ULL << 40) - 1) : r;
}

/* Runs on the warden's memory, its errno included: only calls of base/sys.h, or such that cannot fail. */
static int child(void *arg)
{
	struct blank_start *s = arg;
	char *argv[] = { (char *)(uintptr_t) "cloche-agent", s->single, s->fault[0] ? s->fault : NULL, NULL };
	char go, *envp[] = { NULL };
	uint64_t none = 0;
	int r;

	/* Until the change of user below clears it: two that start at once may hold each other's host ends. */
	s->error = sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (s->error < 0)
		return 1;
	if (s->nlow) {
		s->error = sys_close_range(s->limit, ~0U,
					   2 /* CLOSE_RANGE_UNSHARE: from here on the table is ours alone */);
		if (s->error < 0)
			return 1;
	}
	/* While our copy of the host's end is open, we could not notice that the host has closed it. */
	if (!s->nlow || (unsigned)s->peer < s->limit)
		syscall(SYS_close, s->peer);
	s->error = (int)sys_read(s->sock, &go, 1);
	if (s->error != 1)
		return 1;
	s->error = 0;
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
	r = cgroup_join_self(s->join, s->njoin);
	/* After joining, so that the groups' paths read "/" inside. The time namespace takes effect with the execve. */
	if (r == 0)
		r = sys_unshare(CLONE_NEWCGROUP | CLONE_NEWTIME);
	if (r == 0)
		r = become(s->single_id);
	if (r == 0)
		r = place_fds(s);
	if (r == 0)
		r = sys_execveat(s->agent, "", argv, envp, AT_EMPTY_PATH);
	s->error = r;
	return 1;
}

static int leave_net(const struct env *v, struct err *e)
{
	/* Without root this process cannot return to the host's; it has no use for a network either. */
	int r = v->rootless ? 0 : sys_setns(v->net, CLONE_NEWNET);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "return to the host's network namespace") : 0;
}

/*
 * The kind of error when a process or namespace cannot be made: it may work later, unless this kernel never makes one.
 */
static enum err_kind kind_of(int r)
{
	return r == -EAGAIN || r == -ENOMEM ? ERR_EXHAUSTED : ERR_UNSUPPORTED;
}

static int new_net(struct blank *s, struct err *e)
{
	int r = sys_unshare(CLONE_NEWNET);

	s->steered = false;
	if (r < 0)
		return err_sys(e, kind_of(r), r, "make a network namespace");
	r = ns_loopback_up();
	if (r == 0)
		net_limits_set();
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "bring the loopback interface up") : 0;
}

/* Rules can be changed, but making another namespace is quicker than waiting until the old ones are gone. */
static bool rules_fit(const struct blank_start *start, const struct blank *s)
{
	return !s->steered || (start->steer && steer_same(start->steer, &s->rules));
}

/*
 * Sets up the network of the current namespace. @net: one that was used before; it is given up when it cannot be
 * reused.
 */
static int steer(const struct blank_start *start, struct blank *s, int *net, struct err *e)
{
	int r = 0;

	if (s->steered) {
		r = steer_sockets(s->way, e);
		if (r != -EADDRINUSE)
			return r;
		/* The process that carried its streams has not closed them yet, so a new namespace is made. */
		fd_close(TAKE_FD(*net));
		r = new_net(s, e);
	}
	if (r == 0)
		r = steer_up(start->steer, e);
	if (r == 0)
		r = steer_sockets(s->way, e);
	if (r < 0)
		return r;
	s->steered = true;
	s->rules = *start->steer;
	return 0;
}

/*
 * The network namespace is made here, not by the clone: so it belongs to our user namespace, and root of the sandbox
 * has no power over it.
 */
static int enter_net(struct env *v, const struct blank_start *start, struct blank *s, struct err *e)
{
	AUTO_CLOSE int ahead = s->net >= 0 ? TAKE_FD(s->net) : env_take_net(v);
	int r = ahead >= 0 ? sys_setns(ahead, CLONE_NEWNET) : new_net(s, e), back;

	if (r < 0 && ahead >= 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "enter a network namespace");
	if (r == 0 && ahead >= 0 && s->used && (ns_net_used() || !rules_fit(start, s))) {
		fd_close(TAKE_FD(ahead));
		r = new_net(s, e);
	}
	if (r == 0 && start->steer)
		r = steer(start, s, &ahead, e);
	if (r == 0 && start->keep_net) {
		s->net = ahead >= 0 ? TAKE_FD(ahead) :
				      sys_openat(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC, 0);
		if (s->net < 0)
			r = err_sys(e, ERR_INTERNAL, s->net, "open a network namespace");
	}
	if (r == 0)
		return 0;
	back = leave_net(v, e);
	return back < 0 ? back : r;
}

/*
 * Inotify instances, queued signals and bytes in message queues are also counted for the owner of the user namespace.
 * If that were root for all, one sandbox could use up what the others and the host's own services need. So the owner is
 * a sandbox's first id, which no process outside has.
 */
static long clone_owned(uint32_t owner, struct clone_args *a, struct blank_start *start)
{
	const uid_t keep = (uid_t)-1;
	long pid;
	int r;

	if (!owner)
		return ns_clone(a, child, start);
	r = sys_setresuid(keep, owner, keep);
	if (r < 0)
		return r;
	/*
	 * The change of the user id has cleared the effective capabilities; with cgroup version 2 the clone needs them.
	 */
	r = caps_raise_effective();
	pid = r < 0 ? r : ns_clone(a, child, start);
	/* The saved id is still root's, so the kernel has no reason to refuse. If it does, this sandbox is given up. */
	r = sys_setresuid(keep, 0, keep);
	return r < 0 ? r : pid;
}

/* Which of the sandbox's control groups the agent can show inside: those that belong to this sandbox alone. */
static uint32_t groups_shown(const struct env *v, const struct blank *s)
{
	const uint32_t how = (v->cgroups.version == 2 ? CGROUP_SHOWN_V2 : 0) | (s->tree >= 0 ? CGROUP_SHOWN_MADE : 0);

	return v->rootless || !s->cgroup.mask ? 0 : s->cgroup.mask | how;
}

static void set_argument(const struct env *v, const struct blank *s, struct blank_start *start)
{
	int n = snprintf(start->single, sizeof(start->single), "%u,%u,", start->single_id, groups_shown(v, s));

	if (s->tree < 0)
		cgroup_where(start->join, start->njoin, start->single + n, sizeof(start->single) - (size_t)n);
}

/* Has a holder make the agent. The holder enters the network namespace itself. */
static int copy_holder(struct env *v, struct blank_start *start, struct blank *s, struct err *e)
{
	struct stash_ask q = { .kind = STASH_AGENT,
			       .owner = s->uid_base,
			       .joins = start->njoin,
			       .group = v->cgroups.version == 2 && s->cgroup.mask,
			       .groups = groups_shown(v, s) };
	int fds[STASH_FDS_MAX] = { [STASH_SOCK] = start->sock,
				   [STASH_DEV] = start->dev,
				   [STASH_BASE] = start->base,
				   [STASH_NULL] = start->null };
	int r = enter_net(v, start, s, e);

	if (r == 0)
		r = leave_net(v, e);
	if (r < 0)
		return r;
	fds[STASH_NET] = s->net;
	memcpy(fds + STASH_JOIN, start->join, start->njoin * sizeof(int));
	fds[STASH_JOIN + start->njoin] = s->cgroup.dir[0];
	r = stash_agent(start->stash, &q, fds, STASH_JOIN + start->njoin + q.group, &s->pid, &s->pidfd);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "copy the descriptor of a socket owner") : 0;
}

static int clone_child(struct env *v, struct blank_start *start, struct blank *s, struct err *e)
{
	struct clone_args a = {
		.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_VM |
			 CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&s->pidfd,
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)start->stack,
		.stack_size = sizeof(start->stack),
	};
	long pid;
	int r;

	if (start->nlow)
		a.flags |= CLONE_FILES;
	if (v->cgroups.version == 2 && s->cgroup.mask) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)s->cgroup.dir[0];
	}
	r = enter_net(v, start, s, e);
	if (r < 0)
		return r;
	pid = clone_owned(s->uid_base, &a, start);
	r = leave_net(v, e);
	if (r < 0)
		return r;
	if (pid < 0) {
		err_sys(e, kind_of((int)pid), (int)pid, "make namespaces (user, pid, mount, ipc, uts)");
		err_remedy(e, pid == -EAGAIN ?
				      "the host has reached its limit of processes (pid_max, threads-max, pids.max)" :
				      "see `cloche doctor`");
		return (int)pid;
	}
	s->pid = (pid_t)pid;
	return 0;
}

static int make_cgroup(struct env *v, struct blank *s, unsigned controllers, struct guard *guard, struct err *e)
{
	char name[48];
	int r = 0;

	if (!controllers)
		return 0;
	if (v->rootless)
		snprintf(name, sizeof(name), "p%d-%u", (int)getpid(), s->slot);
	else
		snprintf(name, sizeof(name), "s%u", s->slot);
	if (guard && v->alone)
		r = v->alone->guard_start(v, name, controllers, guard, e);
	if (r < 0)
		return r;
	r = cgroup_make(&v->cgroups, name, controllers, &s->cgroup, e);
	if (r == -EEXIST) {
		/* The slot is ours, so the maker of this group is gone. Its members may not be. */
		r = cgroup_remove_wait(&v->cgroups, name, v->cgroups.have, ORPHAN_MS, e);
		if (r == 0)
			r = cgroup_make(&v->cgroups, name, controllers, &s->cgroup, e);
	}
	return r;
}

static void give_slot(struct env *v, struct blank *s)
{
	if (!v->rootless && s->uid_base)
		slots_give(&v->slots, s->slot, TAKE_FD(s->slot_fd));
	s->uid_base = 0;
}

/* A slot in whose cgroup something still runs, after a crash, is passed over. */
static int take_place(struct env *v, struct blank *s, unsigned controllers, struct guard *guard, struct err *e)
{
	int r;

	if (v->rootless)
		return make_cgroup(v, s, controllers, guard, e);
	for (unsigned tries = 0; tries < SLOT_TRIES; tries++) {
		r = v->persist ? slots_take_own(&v->slots, &s->slot, &s->slot_fd, e) :
				 slots_take(&v->slots, &s->slot, e);
		if (r < 0)
			return r;
		s->uid_base = slot_uid(s->slot);
		r = make_cgroup(v, s, controllers, guard, e);
		if (r != -EBUSY)
			return r;
		if (guard)
			guard_end(guard);
		give_slot(v, s);
	}
	return r;
}

int blank_place(struct env *v, struct blank *s, unsigned controllers, struct err *e)
{
	return take_place(v, s, controllers, NULL, e);
}

static int start_child(struct env *v, struct blank_start *start, struct blank *s, struct err *e)
{
	int r;

	r = start->stash ? copy_holder(v, start, s, e) : clone_child(v, start, s, e);
	if (r < 0)
		return r;
	if (start->single_id)
		r = ns_map_ids(s->pid, start->single_id - 1, 0, 1, e);
	else
		r = ns_map_ids(s->pid, 0, s->uid_base, SLOT_UIDS, e);
	if (r < 0)
		return r;
	s->userns = ns_open_user(s->pid, s->pidfd);
	if (s->userns < 0)
		return err_sys(e, ERR_INTERNAL, s->userns, "open the user namespace of %d", (int)s->pid);
	r = fd_write_all(s->sock, "g", 1);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "release the agent") : 0;
}

static void take_ground(struct blank_start *start, struct blank *s)
{
	s->ground = *start->ground;
	s->uid_base = slot_uid(s->slot);
	s->used = true;
	ground_init(start->ground);
}

int blank_start_reserve(const struct env *v, struct blank_start *start)
{
	start->limit = 0;
	for (start->nlow = 0; start->nlow < BLANK_LOW; start->nlow++) {
		int fd = sys_fcntl(v->null, F_DUPFD_CLOEXEC, 3);

		if (fd < 0) {
			blank_start_done(start);
			return fd;
		}
		start->low[start->nlow] = fd;
		if (start->limit <= (unsigned)fd)
			start->limit = (unsigned)fd + 1;
	}
	if (start->limit <= (unsigned)v->agent)
		start->limit = (unsigned)v->agent + 1;
	return 0;
}

void blank_start_release(const struct env *v, struct blank_start *start)
{
	for (unsigned i = 0; start->nlow && i < 3 + start->njoin; i++)
		sys_dup3(v->null, start->low[i], O_CLOEXEC);
}

void blank_start_done(struct blank_start *start)
{
	fd_close_many(start->low, start->nlow);
	start->nlow = 0;
	group_tree_done(&start->tree);
}

/* Moves descriptors to the low numbers that the new process gets a copy of. */
static int lower_fds(struct blank_start *s)
{
	int *const which[] = { &s->dev, &s->base, &s->sock };
	int r = 0;

	for (unsigned i = 0; r >= 0 && s->nlow && i < 3 + s->njoin; i++) {
		int *fd = i < 3 ? which[i] : &s->join[i - 3];

		r = sys_dup3(*fd, s->low[i], O_CLOEXEC);
		*fd = s->low[i];
	}
	return r < 0 ? r : 0;
}

/* Copies the agent's base, with all in it that can be if there are trees; else the agent and premount.c mount that. */
static int copy_base(struct blank_start *start, struct blank *s)
{
	const struct group_stock *k = &start->image->groups;
	AUTO_CLOSE int cpus = -1;
	int from = k->base, r = 0;

	if (from < 0)
		return mount_clone(start->image->base, "",
				   MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, -1);
	if (s->tree >= 0 && (s->shown || !start->cpus))
		return mount_copy_tree(s->tree, -1);
	fd_close(TAKE_FD(s->tree));
	s->shown = 0;
	if (start->cpus) {
		r = cpus = image_cpus(start->image, start->cpus, NULL);
		if (r >= 0)
			r = group_tree_show(k, cpus, &start->tree);
		if (r < 0)
			return r;
		s->shown = start->tree.shown;
		from = start->tree.mnt;
	}
	if (k->groups && s->cgroup.mask)
		from = s->tree = group_tree_make(k, from, &s->cgroup);
	return from < 0 ? from : mount_copy_tree(from, -1);
}

static int own_devices(struct env *v, const struct blank_start *start, uint32_t base, uint64_t attrs, struct err *e)
{
	AUTO_CLOSE int dir = -1;
	int r;

	if (!v->rootless)
		return device_folder_own(start->devices, &(struct device_owner){ base, start->uid, start->gid },
					 (unsigned)attrs);
	r = v->alone->stage_devices(v, start->devices, &dir, e);
	return r < 0 ? r : mount_clone_tree(dir, "", attrs, -1);
}

int blank_make(struct env *v, struct blank_start *start, unsigned controllers, uint32_t single_id, struct blank *ret,
	       struct err *e)
{
	const uint64_t dev_attrs = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	const int devices = start->image->dev;
	AUTO_CLOSE int dev = -1, base = -1, sock = -1;
	struct blank s;
	int pair[2], r;

	blank_init(&s);
	if (start->ground && start->ground->valid)
		take_ground(start, &s);
	r = !s.used	   ? take_place(v, &s, controllers, start->guard, e) :
	    !s.cgroup.mask ? make_cgroup(v, &s, controllers, NULL, e) :
			     0;
	if (r < 0)
		goto fail;
	if (start->devices)
		r = dev = own_devices(v, start, s.uid_base, dev_attrs, e);
	else if (start->image->groups.base < 0)
		r = dev = v->rootless ? mount_clone_tree(devices, "", dev_attrs, -1) :
					mount_clone(devices, "", dev_attrs, -1);
	if (r >= 0)
		r = base = copy_base(start, &s);
	if (r < 0) {
		err_sys(e, ERR_UNSUPPORTED, r,
			start->devices ? "make a device folder" : "copy the mounts that an agent starts with");
		goto fail;
	}
	r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	if (r < 0) {
		err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
		goto fail;
	}
	s.sock = pair[0];
	sock = pair[1];
	start->agent = v->agent;
	start->null = v->null;
	start->dev = dev < 0 ? v->null : dev; /* no folder: the base has them */
	start->base = base;
	start->sock = sock;
	start->peer = s.sock;
	memcpy(start->join, s.cgroup.join, sizeof(start->join));
	start->njoin = s.cgroup.njoin;
	start->single_id = v->rootless ? single_id + 1 : 0;
	set_argument(v, &s, start);
	memcpy(start->fault, v->fault, sizeof(start->fault));
	start->error = 0;
	r = lower_fds(start);
	if (r < 0)
		err_sys(e, ERR_EXHAUSTED, r, "copy a descriptor");
	else
		r = start_child(v, start, &s, e);
	if (r == 0 && v->persist)
		r = persist_prepare(v, &s, e);
	if (r < 0)
		goto fail;
	*ret = s;
	return 0;
fail:
	blank_end(v, &s, NULL);
	blank_start_release(v, start);
	return r;
}

/* Returns when its last process is gone. */
static void end_processes(struct blank *s)
{
	siginfo_t si;

	if (s->pidfd < 0)
		return;
	sys_pidfd_send_signal(s->pidfd, SIGKILL);
	fd_close(s->sock); /* and should that have failed: an agent without its host ends by itself */
	s->sock = -1;
	pidfd_wait(s->pidfd, -1);
	while (!s->adopted && waitid(P_PIDFD, (id_t)s->pidfd, &si, WEXITED) < 0 && errno == EINTR)
		;
}

static int remove_groups(struct env *v, struct cgroup *c, struct err *e)
{
	struct err why = { 0 };
	int r = 0;

	if (!c->mask)
		return 0;
	for (int tries = 0; tries < CLEANUP_TRIES && (tries == 0 || r < 0); tries++) {
		if (tries) {
			__atomic_fetch_add(&v->cleanup_retries, 1, __ATOMIC_RELAXED);
			log_warn("cgroup %s: %s; trying again", c->name, why.msg);
		}
		r = cgroup_remove_wait(&v->cgroups, c->name, c->mask, 2000, &why);
	}
	if (r < 0) {
		__atomic_fetch_add(&v->cleanup_failures, 1, __ATOMIC_RELAXED);
		if (e)
			*e = why;
		else
			log_error("cannot remove cgroup %s: %s", c->name, why.msg);
	}
	cgroup_done(c);
	return r;
}

/*
 * Whether the cgroups can be used for another sandbox. Exec group 1, which every sandbox has, stays if it can be used
 * again.
 */
static bool recycle_groups(const struct env *v, struct blank *s)
{
	if (!s->cgroup.mask || cgroup_recycle(&v->cgroups, &s->cgroup) < 0)
		return false;
	if (!s->grouped || cgroup_child_recycle(&v->cgroups, &s->cgroup, PERSIST_FIRST_GROUP) == 0)
		return true;
	s->grouped = false;
	return cgroup_children_remove(&v->cgroups, &s->cgroup) == 0;
}

int blank_end_keep(struct env *v, struct blank *s, struct ground *ret, struct err *e)
{
	bool recycled;
	int r = 0;

	ground_init(ret);
	end_processes(s);
	fd_close_many(s->way, STEER_SOCKETS);
	recycled = s->uid_base && s->net >= 0 && recycle_groups(v, s);
	if (!recycled)
		r = remove_groups(v, &s->cgroup, e);
	/* What cannot be removed is still known to the next warden. */
	if (s->recorded && r == 0)
		records_clear(&v->records, s->slot);
	/* Slot and network namespace serve again even where the groups do not. */
	if (r == 0 && s->uid_base && s->net >= 0) {
		if (!recycled) {
			cgroup_init(&s->cgroup);
			fd_close(TAKE_FD(s->tree));
			s->grouped = s->limited = false;
		}
		*ret = s->ground;
		ret->valid = true;
		ground_init(&s->ground);
		s->uid_base = 0;
	}
	fd_close_many((int[]){ s->take, s->give, s->table, s->group, s->again, s->pidfd, s->sock, s->userns, s->net,
			       s->tree },
		      10);
	give_slot(v, s);
	fd_close(s->slot_fd);
	blank_init(s);
	return r;
}

int blank_end(struct env *v, struct blank *s, struct err *e)
{
	struct ground none;

	end_processes(s);
	fd_close(s->net);
	s->net = -1; /* without it nothing is kept */
	return blank_end_keep(v, s, &none, e);
}

void ground_init(struct ground *g)
{
	*g = (struct ground){ .net = -1, .tree = -1, .slot_fd = -1 };
	cgroup_init(&g->cgroup);
}

void ground_end(struct env *v, struct ground *g)
{
	if (!g->valid)
		return;
	remove_groups(v, &g->cgroup, NULL);
	fd_close(g->net);
	fd_close(g->tree);
	slots_give(&v->slots, g->slot, g->slot_fd);
	ground_init(g);
}
