/* Runs the administrator's command that prints the key of all secrets. */
#include "daemon/key_command.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct run {
	pid_t pid;
	int pidfd, out;
	uint64_t end_ms;
	size_t len;
	bool ended; /* its output has */
};

static uint64_t now_ms(void)
{
	return clock_mono_ns() / 1000000;
}

_Noreturn static void child(const char *command, int out)
{
	char *argv[] = { (char[]){ "sh" }, (char[]){ "-c" }, (char *)(uintptr_t)command, NULL };
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	sigset_t none;

	setsid(); /* so that all of it can be killed */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execve("/bin/sh", argv, environ);
	_exit(126);
}

static int begin(const char *command, struct run *x, struct err *e)
{
	int pipe[2], r = sys_pipe2(pipe, O_CLOEXEC);

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a pipe");
	x->pid = fork();
	if (x->pid == 0)
		child(command, pipe[1]);
	r = x->pid < 0 ? -errno : 0;
	fd_close(pipe[1]);
	x->out = pipe[0];
	if (r == 0)
		r = x->pidfd = sys_pidfd_open(x->pid, 0);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "start it") : 0;
}

/* Until its output ends, and then it. */
static int follow(struct run *x, uint8_t *to, size_t size, struct err *e)
{
	uint8_t more[1];

	for (;;) {
		struct pollfd p[] = { { .fd = x->ended ? -1 : x->out, .events = POLLIN },
				      { .fd = x->pidfd, .events = POLLIN } };
		uint64_t now = now_ms();
		bool full = x->len == size;
		ssize_t n;

		if (now >= x->end_ms || poll(p, x->ended ? 2 : 1, (int)(x->end_ms - now)) == 0)
			return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "it did not end in time");
		if (x->ended && p[1].revents)
			return 0;
		if (x->ended || !p[0].revents)
			continue;
		n = read(x->out, full ? more : to + x->len, full ? 1 : size - x->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n > 0 && full)
			return err_set(e, ERR_REFUSED, -E2BIG, "it printed more than %zu bytes", size);
		x->ended = n <= 0;
		x->len += n > 0 ? (size_t)n : 0;
	}
}

static int judge(const struct run *x, int status, struct err *e)
{
	if (WIFSIGNALED(status))
		return err_set(e, ERR_REFUSED, -ECHILD, "it was killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		return err_set(e, ERR_REFUSED, -ECHILD, "it failed: exit code %d", WEXITSTATUS(status));
	if (!x->len)
		return err_set(e, ERR_REFUSED, -ENODATA, "it printed nothing");
	return 0;
}

int key_command_run(const char *command, unsigned ms, uint8_t *ret, size_t size, size_t *ret_len, struct err *e)
{
	struct run x = { .pidfd = -1, .out = -1, .end_ms = now_ms() + ms };
	int status = 0, r;
	pid_t got;

	signal(SIGCHLD, SIG_DFL); /* it may be inherited as ignored */
	r = begin(command, &x, e);
	if (r == 0)
		r = follow(&x, ret, size, e);
	if (x.pid > 0) {
		if (r < 0)
			kill(-x.pid, SIGKILL);
		/* It may not have got as far as a group of its own. */
		if (r < 0)
			kill(x.pid, SIGKILL);
		while ((got = waitpid(x.pid, &status, 0)) < 0 && errno == EINTR)
			;
		if (r == 0 && got != x.pid)
			r = err_sys(e, ERR_INTERNAL, -errno, "wait for it");
	}
	fd_close(x.pidfd);
	fd_close(x.out);
	if (r == 0)
		r = judge(&x, status, e);
	if (r < 0) {
		explicit_bzero(ret, size);
		err_remedy(e,
			   "run the command by hand: it must print the key, or a passphrase, to its standard output "
			   "within %u s",
			   KEY_COMMAND_MS / 1000U);
		return r;
	}
	*ret_len = x.len;
	return 0;
}
