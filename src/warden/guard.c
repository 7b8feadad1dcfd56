#include "base/base.h"
#include "base/sys.h"
#include "warden/shell.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * On our memory until we are dead: no libc state (errno) is touched while two run on it, so only raw calls and no
 * failing ones before the pipe tells. Afterwards it is alone.
 */
static int watch(void *arg)
{
	struct guard *g = arg;
	char byte;
	long n;

	syscall(SYS_setsid);
	fd_close(g->hold);
	/* The agent ends when the last host end of its socket closes: ours must not be one. Nor hold anybody's stdio. */
	fd_close(g->shell.sock);
	for (int fd = 0; fd < 3; fd++)
		syscall(SYS_dup3, g->env->null, fd, 0);
	do {
		n = syscall(SYS_read, g->pipe, &byte, 1);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	g->shell.sock = -1;
	shell_end((struct env *)(uintptr_t)g->env, &g->shell, NULL);
	return 0;
}

int guard_start(struct env *v, const struct shell *s, struct guard *g, struct err *e)
{
	struct clone_args a = {
		.flags = CLONE_VM,
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)g->stack,
		.stack_size = sizeof(g->stack),
	};
	int ends[2], r = sys_pipe2(ends, O_CLOEXEC);
	long pid;

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a pipe");
	g->env = v;
	g->shell = *s;
	g->pipe = ends[0];
	g->hold = ends[1];
	pid = ns_clone(&a, watch, g);
	fd_close(ends[0]);
	if (pid < 0) {
		fd_close(ends[1]);
		return err_sys(e, ERR_EXHAUSTED, (int)pid, "start the guard");
	}
	g->pid = (pid_t)pid;
	return 0;
}

void guard_dismiss(struct guard *g)
{
	if (!g->pid || g->hold < 0)
		return;
	fd_write_all(g->hold, "d", 1);
	fd_close(g->hold);
	g->hold = -1;
}

void guard_end(struct guard *g)
{
	int status;

	if (!g->pid)
		return;
	guard_dismiss(g);
	while (waitpid(g->pid, &status, 0) < 0 && errno == EINTR)
		;
	g->pid = 0;
}
