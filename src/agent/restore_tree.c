/*
 * Who starts whom. A process inherits its session from who starts it, so that is not always its parent: one whose
 * parent has ended is the agent's child, but of somebody else's session. It is started by the session's first process through
 * another one that ends at once; the kernel then gives it to the agent, as it did before.
 */
#include "agent/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t index_of(const struct restore *r, uint32_t pid)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++)
		if (r->m.proc[i].pid == pid)
			return i;
	return MEM_NONE;
}

static bool id_used(const struct restore *r, uint32_t id)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++)
		if (r->m.proc[i].pid == id || r->proc[i].temp == id)
			return true;
	for (uint32_t i = 0; i < r->m.n[MEM_S_THREAD]; i++)
		if (r->m.thread[i].tid == id)
			return true;
	return false;
}

/* The session a process is born into: that of who starts it, at that time. */
static uint32_t born_session(const struct restore *r, uint32_t i)
{
	uint32_t by = r->proc[i].creator;

	if (by == MEM_NONE)
		return 0;
	return r->proc[i].early ? born_session(r, by) : r->m.proc[by].sid;
}

/*
 * Meeting is waiting for each other on other processors, and those may be asleep. Who is alone in its session and group
 * joins nobody's, and needs the others only to be there, if that: a warm process and who was forked ahead of it are so.
 */
static void plan_phases(struct restore *r)
{
	uint32_t n = r->m.n[MEM_S_PROC];

	for (uint32_t i = 0; i < n; i++) {
		const struct mem_proc *p = &r->m.proc[i];

		if (n > 1 && (p->state != MEM_ALIVE || p->sid != p->pid || p->pgid != p->pid || p->tty != MEM_NONE))
			r->phases = 2;
		for (uint32_t f = 0; p->state == MEM_ALIVE && f < p->fd.n; f++) {
			const struct mem_object *o = &r->m.object[r->m.fd[p->fd.first + f].object];

			r->proc[i].asks |= restore_is_own(r, o) || o->owner_pid;
		}
		if (n > 1 && r->proc[i].asks && !r->phases)
			r->phases = 1;
	}
}

int restore_plan(struct restore *r, struct err *e)
{
	const struct mem_proc *all = r->m.proc;
	uint32_t spare = 300, n = r->m.n[MEM_S_PROC];

	for (uint32_t i = 0; i < n; i++) {
		const struct mem_proc *p = &all[i];

		r->proc[i].creator = p->parent;
		if (p->parent != MEM_NONE || p->sid == p->pid)
			continue;
		r->proc[i].creator = index_of(r, p->sid);
		while (id_used(r, spare))
			spare++;
		r->proc[i].temp = spare;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t by = r->proc[i].creator;

		/* Its parent has made a session since it was started. */
		r->proc[i].early = by != MEM_NONE && all[by].sid == all[by].pid && all[i].sid != all[by].sid &&
				   all[i].sid != all[i].pid;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t up = i;

		/* A circle of creators would wait for itself. */
		for (uint32_t steps = 0; up != MEM_NONE && steps <= n; steps++)
			up = r->proc[up].creator;
		if (up != MEM_NONE || (all[i].sid != all[i].pid && born_session(r, i) != all[i].sid)) {
			err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
				"process %u is in session %u, which cannot be made again for it", all[i].pid,
				all[i].sid);
			return -EOPNOTSUPP;
		}
	}
	plan_phases(r);
	return 0;
}

static long fork_as(const struct restore *r, uint32_t id)
{
	pid_t tid = (pid_t)id;
	struct clone_args c = { .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&tid, .set_tid_size = 1 };

	return sys_clone3_cookie(&c, sizeof(c), r->agent->cookie);
}

static int spawn_one(struct restore *r, uint32_t i)
{
	int status;
	long pid;

	if (r->proc[i].temp) {
		pid = fork_as(r, r->proc[i].temp);
		if (pid > 0) {
			while (waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR)
				;
			return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ECHILD;
		}
		if (pid < 0)
			return (int)pid;
		pid = fork_as(r, r->m.proc[i].pid);
		if (pid)
			_exit(pid < 0);
		/* Its number is not told to anybody before the agent is its parent. */
		while (getppid() != 1)
			usleep(20);
		restore_become(r, i);
	}
	pid = fork_as(r, r->m.proc[i].pid);
	if (pid == 0)
		restore_become(r, i);
	return pid < 0 ? (int)pid : 0;
}

int restore_spawn(struct restore *r, uint32_t creator, bool early, uint32_t *ret_failed)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++) {
		int x;

		if (r->proc[i].creator != creator || r->proc[i].early != early)
			continue;
		x = spawn_one(r, i);
		if (x < 0) {
			*ret_failed = i;
			return x;
		}
	}
	return 0;
}
