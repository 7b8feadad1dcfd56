/* Starts a program without copying the caller's memory: it runs on that until it executes the program. */
#include "linux/spawn.h"
#include "base/base.h"
#include "base/cpu.h"
#include "base/sys.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK_SIZE 32768
#ifdef CLOCHE_FAULTS
#define TEST_ENV(none) ((void)(none), environ) /* says which calls fail, and at which steps to wait */
#else
#define TEST_ENV(none) (none)
#endif

struct child {
	struct spawn *s;
	char **envp;
};

/* Two steps, since a place may be where another's source is. */
static int place(struct spawn *s)
{
	const int end = SPAWN_FIRST + (int)s->fds;
	int r = 0;

	for (unsigned i = 0; r >= 0 && i < s->fds; i++)
		if (s->fd[i] >= 0)
			r = s->fd[i] = sys_fcntl(s->fd[i], F_DUPFD_CLOEXEC, end);
	if (r >= 0)
		r = s->program = sys_fcntl(s->program, F_DUPFD_CLOEXEC, end);
	for (unsigned i = 0; r >= 0 && i < s->fds; i++) {
		const unsigned to = SPAWN_FIRST + i;

		r = s->fd[i] >= 0 ? sys_dup3(s->fd[i], (int)to, 0) : sys_close_range(to, to, 0);
	}
	return r < 0 ? r : sys_close_range((unsigned)end, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
}

/* On the caller's memory, on a stack of its own: calls of base/sys.h, or such that cannot fail. */
static int child(void *arg)
{
	struct child *c = arg;
	uint64_t none = 0;
	int r = sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
	if (r == 0)
		r = place(c->s);
	if (r == 0)
		r = sys_execveat(c->s->program, "", c->s->argv, c->envp, AT_EMPTY_PATH);
	c->s->error = r;
	return 127;
}

pid_t spawn_program(struct spawn *s)
{
	char plain[] = "CLOCHE_PLAIN_CPU=1";
	char *envp[] = { cpu_plain() ? plain : NULL, NULL }; /* never but in a test build */
	struct child c = { s, TEST_ENV(envp) };
	AUTO_FREE char *stack = malloc(STACK_SIZE);
	pid_t pid;

	if (!stack)
		return -ENOMEM;
	s->error = 0;
	/* The kernel holds this thread until the program runs, so that the stack can go. */
	pid = clone(child, stack + STACK_SIZE - 64, CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
	if (pid < 0)
		return -errno;
	if (s->error == 0)
		return pid;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return s->error;
}

pid_t spawn_talking(struct spawn *s, int *ret_sock)
{
	int pair[2], r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);

	if (r < 0)
		return r;
	s->fd[0] = pair[1];
	r = spawn_program(s);
	fd_close(pair[1]);
	if (r < 0)
		fd_close(pair[0]);
	else
		*ret_sock = pair[0];
	return r;
}

void spawn_end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}
