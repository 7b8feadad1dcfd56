/*
 * The execs of a sandbox. One that is kept stays here until the host releases it, with its status and descriptors of
 * the host's own ends: a host that comes back gets them again and has missed nothing.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct agent_exec *held_free(struct agent *a)
{
	for (size_t i = 0; i < a->top; i++)
		if (!a->execs[i].used)
			return &a->execs[i];
	return a->top < AGENT_EXECS_MAX ? &a->execs[a->top++] : NULL;
}

struct agent_exec *held_find(struct agent *a, uint32_t id)
{
	for (size_t i = 0; i < a->top; i++)
		if (a->execs[i].used && a->execs[i].id == id)
			return &a->execs[i];
	return NULL;
}

static struct agent_exec *find_pid(struct agent *a, pid_t pid)
{
	for (size_t i = 0; i < a->top; i++)
		if (a->execs[i].used && a->execs[i].pid == pid)
			return &a->execs[i];
	return NULL;
}

static int take(int *fds, int at)
{
	return at < 0 ? -1 : TAKE_FD(fds[at]);
}

void held_start(struct agent *a, struct agent_exec *x, uint32_t id, const struct frame_exec *f, pid_t pid, int *fds,
		int master, int warm)
{
	struct frame_exec_fds at = frame_exec_fds(f->flags);

	*x = (struct agent_exec){
		.used = true,
		.keep = f->flags & FRAME_EXEC_KEEP,
		.tty = f->flags & FRAME_EXEC_TTY,
		.with_stdin = f->flags & FRAME_EXEC_STDIN,
		.pid = pid,
		.id = id,
		.warm = warm,
		.warmed = f->flags & FRAME_EXEC_WARM,
		.oom_base = group_view_oom_kills(a),
	};
	x->fds[0] = x->tty ? master : take(fds, at.out);
	x->fds[1] = take(fds, at.err);
	x->fds[2] = take(fds, at.in);
	a->warm_hosts += warm >= 0;
	table_put(a, x);
}

static void done(struct agent *a, struct agent_exec *x)
{
	if (x->keep)
		fd_close_many(x->fds, ARRAY_LEN(x->fds));
	warm_close(a, x);
	x->used = false;
	table_put(a, x);
}

static void end(struct agent *a, struct agent_exec *x, int status, const struct rusage *ru)
{
	const uint64_t kills = group_view_oom_kills(a);
	uint8_t out[32];
	long n;

	x->exited = (struct frame_exited){
		.status = status,
		.cpu_usec = (uint64_t)(ru->ru_utime.tv_sec + ru->ru_stime.tv_sec) * 1000000ULL +
			    (uint64_t)(ru->ru_utime.tv_usec + ru->ru_stime.tv_usec),
		.maxrss = (uint64_t)ru->ru_maxrss * 1024,
		.oom_kills = kills > x->oom_base ? kills - x->oom_base : 0,
	};
	x->pid = 0;
	warm_close(a, x);
	table_put(a, x);
	n = frame_exited_encode(&x->exited, out, sizeof(out));
	agent_send(FRAME_EXITED, x->id, out, (size_t)n, NULL, 0);
	if (!x->keep)
		done(a, x);
}

/*
 * Detaches from a child that asked to be traced, so that it runs without a tracer. SIGTRAP comes from the kernel after
 * an exec and is not passed on.
 */
static void let_go(pid_t pid, int sig)
{
	sys_ptrace(PTRACE_DETACH, pid, 0, (void *)(uintptr_t)(sig == SIGTRAP ? 0 : sig));
}

void held_reap(struct agent *a)
{
	struct rusage ru;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		struct agent_exec *x = find_pid(a, pid);

		if (WIFSTOPPED(status))
			let_go(pid, WSTOPSIG(status));
		else if (x)
			end(a, x, status, &ru);
		else
			files_ended(a, pid); /* it was a file worker, an orphan, or an exec that failed to start */
	}
}

void held_release(struct agent *a, uint32_t id)
{
	struct agent_exec *x = held_find(a, id);

	if (!x || !x->keep)
		return;
	if (!x->pid) {
		done(a, x);
		return;
	}
	/* From here on it is an ordinary exec without KEEP. */
	fd_close_many(x->fds, ARRAY_LEN(x->fds));
	warm_close(a, x);
	x->keep = false;
	table_put(a, x);
}

void held_close_stdin(struct agent *a, uint32_t id)
{
	struct agent_exec *x = held_find(a, id);

	if (!x || !x->keep || x->tty)
		return;
	fd_close(TAKE_FD(x->fds[2]));
	table_put(a, x);
}

static void tell(const struct agent_exec *x)
{
	struct frame_held h = {
		.flags = (x->pid ? 0 : FRAME_HELD_ENDED) | (x->tty ? FRAME_HELD_TTY : 0) |
			 (x->fds[2] >= 0 ? FRAME_HELD_STDIN : 0),
		.exited = x->exited,
	};
	uint8_t out[48];
	long n = frame_held_encode(&h, out, sizeof(out));

	agent_send(FRAME_HELD, x->id, out, (size_t)n, x->fds, x->tty ? 1 : x->fds[2] >= 0 ? 3 : 2);
}

void held_tell(const struct agent *a)
{
	for (size_t i = 0; i < a->top; i++)
		if (a->execs[i].used && a->execs[i].keep)
			tell(&a->execs[i]);
	agent_send(FRAME_SYNCED, 0, NULL, 0, NULL, 0);
}
