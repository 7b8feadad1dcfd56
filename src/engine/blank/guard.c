/* A process that cleans up when its warden dies. */
#include "base/base.h"
#include "base/sys.h"
#include "engine/blank/blank.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLEAN_MS 10000

/* Our descriptors of the groups came later than the guard: it opens its own. */
static void clean(const struct cgroup_host *h, const struct cgroup *made)
{
	struct cgroup c;

	if (cgroup_open(h, made->name, made->mask, &c) == 0)
		cgroup_kill(h, &c);
	cgroup_remove_wait(h, made->name, made->mask, CLEAN_MS, NULL);
}

/*
 * Shares the caller's memory until the caller is dead: while two processes run on it, libc's state (errno) must not be
 * touched. So before the pipe closes there are only calls of base/sys.h, or such that cannot fail. Afterwards it is
 * alone.
 */
static int watch(void *arg)
{
	struct guard *g = arg;
	ssize_t n;
	char byte;

	syscall(SYS_setsid);
	syscall(SYS_close, g->hold);
	/* It must not hold the caller's stdio either. */
	for (int fd = 0; fd < 3; fd++)
		syscall(SYS_dup3, g->env->null, fd, 0);
	do {
		n = sys_read(g->pipe, &byte, 1);
	} while (n == -EINTR);
	/* The other end was closed without a byte, so the caller died. */
	if (n == 0)
		clean(&g->env->cgroups, &g->cgroup);
	return 0;
}

static void dismiss(struct guard *g)
{
	if (g->hold < 0)
		return;
	fd_write_all(g->hold, "d", 1);
	fd_close(g->hold);
	g->hold = -1;
}

static void end(struct guard *g)
{
	int status;

	dismiss(g);
	while (waitpid(g->pid, &status, 0) < 0 && errno == EINTR)
		;
	g->pid = 0;
}

int guard_start(const struct env *v, const char *name, unsigned controllers, struct guard *g, struct err *e)
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
	cgroup_init(&g->cgroup);
	g->cgroup.mask = controllers;
	snprintf(g->cgroup.name, sizeof(g->cgroup.name), "%s", name);
	g->pipe = ends[0];
	g->hold = ends[1];
	pid = ns_clone(&a, watch, g);
	fd_close(ends[0]);
	if (pid < 0) {
		fd_close(ends[1]);
		return err_sys(e, ERR_EXHAUSTED, (int)pid, "start the guard");
	}
	g->pid = (pid_t)pid;
	g->dismiss = dismiss;
	g->end = end;
	return 0;
}
