/*
 * Starting the processes as the plan says (proto/memory_plan.h). One whose parent has ended is the agent's child, but of
 * another process's session: it is started by the session's first process through a process that ends at once. The kernel
 * then gives it to the agent, as it did before.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A barrier makes processes on other CPUs wait, and those CPUs may be asleep. A process that is alone in its session
 * and group joins no other, so it needs the others only to exist, if at all: a warm process and the one forked ahead of
 * it are such.
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
	int x = mem_plan(r->m.proc, r->m.n[MEM_S_PROC], r->m.thread, r->m.n[MEM_S_THREAD], r->plan, e);

	if (x == 0)
		plan_phases(r);
	return x;
}

bool restore_shares(const struct restore *r, const struct mem_proc *p)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++)
		if (r->m.proc[i].files == p->pid)
			return true;
	return p->files;
}

static long fork_as(const struct restore *r, uint32_t id, uint32_t exit_signal, uint64_t flags)
{
	pid_t tid = (pid_t)id;
	struct clone_args c = {
		.flags = flags, .exit_signal = exit_signal, .set_tid = (uint64_t)(uintptr_t)&tid, .set_tid_size = 1
	};

	return sys_clone3_cookie(&c, sizeof(c), r->agent->cookie);
}

static int spawn_one(struct restore *r, uint32_t i)
{
	int status;
	long pid;

	if (r->plan[i].temp) {
		pid = fork_as(r, r->plan[i].temp, SIGCHLD, 0);
		if (pid > 0) {
			while (waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR)
				;
			return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ECHILD;
		}
		if (pid < 0)
			return (int)pid;
		pid = fork_as(r, r->m.proc[i].pid, r->m.proc[i].exit_signal, 0);
		if (pid)
			_exit(pid < 0);
		/* The child's number is used only after the agent has become its parent. */
		while (getppid() != 1)
			usleep(20);
		restore_become(r, i);
	}
	pid = fork_as(r, r->m.proc[i].pid, r->m.proc[i].exit_signal,
		      (r->plan[i].files ? CLONE_FILES : 0) | (r->plan[i].folders ? CLONE_FS : 0));
	if (pid == 0)
		restore_become(r, i);
	return pid < 0 ? (int)pid : 0;
}

int restore_spawn(struct restore *r, uint32_t creator, bool early, uint32_t *ret_failed)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++) {
		int x;

		if (r->plan[i].creator != creator || r->plan[i].early != early)
			continue;
		x = spawn_one(r, i);
		if (x < 0) {
			*ret_failed = i;
			return x;
		}
	}
	return 0;
}

void restore_number_next(const struct restore *r)
{
	uint32_t last = 0;
	char text[16];

	for (uint32_t i = 0; i < r->m.n[MEM_S_PROC]; i++)
		last = r->m.proc[i].pid > last ? r->m.proc[i].pid : last;
	for (uint32_t i = 0; i < r->m.n[MEM_S_THREAD]; i++)
		last = r->m.thread[i].tid > last ? r->m.thread[i].tid : last;
	snprintf(text, sizeof(text), "%u", last);
	(void)fd_put(r->agent->sysctl, "ns_last_pid", text);
}
