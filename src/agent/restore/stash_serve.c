/*
 * The life of a holder (stash.h): it holds the pages that the warden names, then makes an agent for each request. It
 * has the warden's user and three of its capabilities: to enter the network namespace of a sandbox for the moment of
 * making its agent (SYS_ADMIN), and to be the owner of its user namespace for as long (SETUID; DAC_OVERRIDE where
 * groups are of version 2). It sees none of the layers, cannot be traced, and ends with the warden's socket.
 */
#include "agent/restore/stash.h"
#include "base/base.h"
#include "base/score.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "proto/stash.h"

#include <linux/prctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define NAME "cloche-stash"
#define CAPS_HOLDER ((1ULL << 1) /* DAC_OVERRIDE */ | (1ULL << 7) /* SETUID */ | (1ULL << 21) /* SYS_ADMIN */)
#define FIRST_FREE 16 /* above what the agent has when it starts */

struct holder {
	struct stash stash;
	bool held;
	int control, net;
	char name[16];
};

static int lock_up(struct holder *h)
{
	int r = sys_prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);

	if (r == 0)
		r = sys_prctl(PR_GET_NAME, (unsigned long)(uintptr_t)h->name, 0, 0, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_NAME, (unsigned long)(uintptr_t)NAME, 0, 0, 0);
	/* Else they would make pages of what is a hole in the image. */
	if (r == 0)
		r = sys_prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	if (r == 0)
		r = h->net = sys_openat(AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
	if (r >= 0)
		r = sys_unshare(CLONE_NEWNS);
	if (r < 0)
		return r;
	/* What the pool's own mount namespace has there (engine/blank/minimal_mntns.c); elsewhere there is nothing. */
	sys_umount2("/layers", 2 /* MNT_DETACH */);
	sys_umount2("/image", 2);
	return caps_set(CAPS_HOLDER, 0);
}

static int hold(struct holder *h, const struct stash_ask *q, int *fds, size_t nfds)
{
	struct err e = { 0 };
	int r;

	if (h->held || !q->pages || q->pages > MEM_PAGE_FILES || nfds != 1 + q->pages + !!q->host)
		return -EBADMSG;
	r = stash_hold(fds[0], fds + 1, q->pages, q->host ? fds[1 + q->pages] : -1, &h->stash, &e);
	h->held = r == 0;
	return r;
}

/* ---- in the copy ------------------------------------------------------------------------------------------------ */

static int place_fds(int *fds)
{
	static const struct {
		int from, to;
	} places[] = { { STASH_SOCK, AGENT_CTL }, { STASH_DEV, AGENT_DEV }, { STASH_BASE, AGENT_BASE },
		       { STASH_NULL, 0 },	  { STASH_NULL, 1 },	    { STASH_NULL, 2 } };
	int r = 0;

	for (int i = 0; r >= 0 && i < STASH_NET; i++)
		r = fds[i] = sys_fcntl(fds[i], F_DUPFD_CLOEXEC, FIRST_FREE);
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(places); i++)
		r = sys_dup3(fds[places[i].from], places[i].to, 0);
	return r < 0 ? r : sys_close_range(AGENT_BASE + 1, ~0U, 0);
}

/* As engine/blank/blank.c's child up to its execve. */
static void become_agent(struct holder *h, const struct stash_ask *q, int *fds)
{
	int r = sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* the warden's: it is our parent */
	char go;

	h->stash.groups = q->groups;
	if (!(q->groups & CGROUP_SHOWN_MADE))
		cgroup_where(fds + STASH_JOIN, q->joins, h->stash.groups_at, sizeof(h->stash.groups_at));
	if (r < 0 || sys_read(fds[STASH_SOCK], &go, 1) != 1)
		_exit(1);
	/* A thread that moves itself does not wait. */
	for (uint32_t i = 0; r >= 0 && i < q->joins; i++)
		r = (int)sys_write(fds[STASH_JOIN + i], "0", 1);
	/* After joining, so that the groups' paths read "/" inside. */
	if (r >= 0)
		r = sys_unshare(CLONE_NEWCGROUP);
	if (r == 0)
		r = sys_setresgid(0, 0, 0);
	if (r == 0)
		r = sys_setresuid(0, 0, 0);
	if (r == 0)
		r = sys_setgroups(0, NULL);
	if (r == 0)
		r = place_fds(fds);
	if (r == 0)
		r = sys_prctl(PR_SET_NAME, (unsigned long)(uintptr_t)h->name, 0, 0, 0);
	if (r == 0)
		r = sys_prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	if (r < 0)
		_exit(1);
}

/* ---- in the holder ---------------------------------------------------------------------------------------------- */

/* The owner of the user namespace is the sandbox's first id, which no process outside has: see engine/blank/blank.c. */
static long clone_owned(const struct stash_ask *q, const int *fds, int *ret_pidfd)
{
	const uid_t keep = (uid_t)-1;
	struct clone_args a = {
		.flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWTIME |
			 CLONE_PIDFD | CLONE_PARENT,
		.pidfd = (uint64_t)(uintptr_t)ret_pidfd,
	};
	long pid;
	int r = sys_setresuid(keep, q->owner, keep);

	if (r < 0)
		return r;
	if (q->group) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)fds[STASH_JOIN + q->joins];
	}
	r = caps_raise_effective();
	pid = r < 0 ? r : sys_clone3(&a, sizeof(a));
	if (pid == 0)
		return 0;
	/* A holder that cannot become its own user again must not serve another request. */
	if (sys_setresuid(keep, 0, keep) < 0 || caps_raise_effective() < 0)
		_exit(1);
	return pid;
}

/* 0 in the copy. */
static long make_agent(struct holder *h, const struct stash_ask *q, const int *fds, size_t nfds, int *ret_pidfd)
{
	long pid;
	int r;

	if (!h->held || q->joins > STASH_JOINS_MAX || nfds != STASH_JOIN + q->joins + !!q->group || !q->owner)
		return -EBADMSG;
	r = sys_setns(fds[STASH_NET], CLONE_NEWNET);
	if (r < 0)
		return r;
	pid = clone_owned(q, fds, ret_pidfd);
	if (pid == 0)
		return 0;
	/* The change of user has taken it away. */
	sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (sys_setns(h->net, CLONE_NEWNET) < 0)
		_exit(1);
	return pid;
}

/* True in the copy. */
static bool serve(struct holder *h)
{
	struct stash_answer answer = { .error = -EBADMSG };
	int fds[STASH_FDS_MAX], pidfd = -1;
	struct stash_ask q = { 0 };
	size_t nfds = 0;
	ssize_t n = fd_recv(h->control, &q, sizeof(q), fds, ARRAY_LEN(fds), &nfds);
	long pid = 0;

	if (n != (ssize_t)sizeof(q))
		_exit(0); /* the warden is gone */
	if (q.kind == STASH_HOLD) {
		answer.error = hold(h, &q, fds, nfds);
		answer.bytes = h->stash.bytes;
	} else if (q.kind == STASH_AGENT) {
		pid = make_agent(h, &q, fds, nfds, &pidfd);
		if (pid == 0) {
			become_agent(h, &q, fds);
			return true;
		}
		answer.error = pid < 0 ? (int32_t)pid : 0;
		answer.pid = pid < 0 ? 0 : (int32_t)pid;
	}
	fd_close_many(fds, nfds);
	if (fd_send(h->control, &answer, sizeof(answer), &pidfd, pidfd >= 0) < 0)
		_exit(0);
	fd_close(pidfd);
	return false;
}

struct stash *stash_serve(int control)
{
	static struct holder h;

	/* A tenant's memory, and not the daemon's. */
	if (score_sandbox_self("/proc/self/oom_score_adj") < 0)
		_exit(1);
	h.control = control;
	if (lock_up(&h) < 0)
		_exit(1);
	while (!serve(&h))
		;
	return &h.stash;
}
