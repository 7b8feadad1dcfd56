/* Starts a program without copying the caller's memory: it runs on that until it executes the program. */
#include "linux/spawn.h"
#include "base/base.h"
#include "base/cpu.h"
#include "base/sys.h"
#include "linux/cgroup.h"
#include "linux/ns.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
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
		r = cgroup_join_self(c->s->join, c->s->njoin);
	for (int fd = 0; r >= 0 && c->s->null && fd < SPAWN_FIRST; fd++)
		r = sys_dup3(c->s->null, fd, 0);
	if (r >= 0)
		r = place(c->s);
	if (r == 0)
		r = sys_execveat(c->s->program, "", c->s->argv, c->envp, AT_EMPTY_PATH);
	c->s->error = r;
	return 127;
}

/* In a control group, which takes clone3: the filter of an unprivileged caller refuses that. */
static long start_in(struct spawn *s, char *stack, struct child *c)
{
	struct clone_args a = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP | (s->pidfd ? CLONE_PIDFD : 0),
		.pidfd = (uint64_t)(uintptr_t)s->pidfd,
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)stack,
		.stack_size = STACK_SIZE,
		.cgroup = (uint64_t)s->group,
	};

	return ns_clone(&a, child, c);
}

pid_t spawn_program(struct spawn *s)
{
	char plain[] = "CLOCHE_PLAIN_CPU=1", no_sha[] = "CLOCHE_PLAIN_CPU=sha";
	const enum cpu_use use = cpu_use();
	/* Only a test build masks instructions. */
	char *envp[] = { use == CPU_PLAIN ? plain : use == CPU_NO_SHA ? no_sha : NULL, NULL };
	struct child c = { s, TEST_ENV(envp) };
	AUTO_FREE char *stack = malloc(STACK_SIZE);
	long pid;

	if (!stack)
		return -ENOMEM;
	s->error = 0;
	/* The kernel holds this thread until the program runs, so that the stack can go. */
	pid = s->group ? start_in(s, stack, &c) :
			 clone(child, stack + STACK_SIZE - 64,
			       CLONE_VM | CLONE_VFORK | SIGCHLD | (s->pidfd ? CLONE_PIDFD : 0), &c, s->pidfd);
	if (pid < 0)
		return s->group ? (pid_t)pid : -errno;
	if (s->error == 0)
		return (pid_t)pid;
	while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (s->pidfd)
		fd_close(TAKE_FD(*s->pidfd));
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

static int hear(int sock, void *ret, size_t size, int ms)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int r;

	do
		r = poll(&p, 1, ms);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	return fd_recv(sock, ret, size, NULL, 0, &(size_t){ 0 }) == (ssize_t)size ? 0 : -EIO;
}

int spawn_ask(struct spawn *s, void *ret, size_t size, int ms, struct err *e)
{
	AUTO_CLOSE int sock = -1;
	pid_t pid = spawn_talking(s, &sock);
	int r;

	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, pid, "start %s", s->argv[0]);
	r = hear(sock, ret, size, ms);
	spawn_end(pid);
	if (r == -ETIMEDOUT)
		return err_set(e, ERR_TIMEOUT, r, "%s took longer than %d s", s->argv[0], ms / 1000);
	return r < 0 ? err_set(e, ERR_INTERNAL, r, "%s ended without an answer", s->argv[0]) : 0;
}

bool spawn_answered(int result, struct err *e)
{
	return result <= 0 && result >= -4095 && err_received(e);
}

void spawn_end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

int spawn_unreadable(const char *name, const char *path)
{
	AUTO_CLOSE int from = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), copy = -1;
	char self[32];
	ssize_t n;
	int r;

	if (from < 0)
		return from;
	copy = sys_memfd_create(name, MFD_CLOEXEC);
	if (copy < 0)
		return copy;
	while ((n = sendfile(copy, from, NULL, 1 << 20)) > 0)
		;
	r = n < 0 ? -errno : sys_fchmod(copy, 0111);
	if (r < 0)
		return r;
	/* A file open for writing cannot be run. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", copy);
	return sys_openat(AT_FDCWD, self, O_PATH | O_CLOEXEC, 0);
}
