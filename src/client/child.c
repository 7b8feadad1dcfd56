/* Starts a program and waits for it. What ends this process (Ctrl-C, SIGTERM, a kill) ends the program first. */
#include "client/child.h"
#include "base/base.h"
#include "base/fd.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_S 3 /* from SIGTERM to SIGKILL */

struct pipe_end {
	int fd[2]; /* what we read, what the program writes */
	struct buf *to;
};

static int open_pipe(struct pipe_end *p, struct buf *to, struct err *e)
{
	p->to = to;
	if (to && pipe2(p->fd, O_CLOEXEC) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a pipe");
	return 0;
}

static bool keep_mounts(const struct child *c)
{
	if (!c->own_mounts || geteuid() != 0)
		return true;
	return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* The program's process: does not return. */
static void become(const struct child *c, int out, int complaints, const sigset_t *before, int status)
{
	int in = c->in >= 0 ? c->in : open("/dev/null", O_RDONLY | O_CLOEXEC), failed;

	if (keep_mounts(c) && in >= 0 && dup2(in, STDIN_FILENO) >= 0 && (out < 0 || dup2(out, STDOUT_FILENO) >= 0) &&
	    (complaints < 0 || dup2(complaints, STDERR_FILENO) >= 0)) {
		signal(SIGPIPE, SIG_DFL);
		sigprocmask(SIG_SETMASK, before, NULL);
		execvp(c->argv[0], c->argv);
	}
	failed = errno;
	fd_write_all(status, &failed, sizeof(failed));
	_exit(127);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	remove(path);
	return 0;
}

/* What was killed a moment ago may still make files. */
static void remove_scratch(const char *folder)
{
	for (int i = 0; i < 50 && access(folder, F_OK) == 0; i++) {
		if (i)
			usleep(100000);
		nftw(folder, remove_one, 64, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	}
}

/*
 * Between us and the program, which leads a group of all that it starts: it passes SIGTERM on to the group, when we ask for it and
 * when we were killed. Programs like mmdebstrap expect that a signal reaches all of them.
 */
static void lead(pid_t program, const char *scratch)
{
	const struct timespec grace = { .tv_sec = GRACE_S };
	bool asked = false;
	siginfo_t info;
	sigset_t set;
	int status = 0, number;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	do {
		number = asked ? sigtimedwait(&set, &info, &grace) : sigwaitinfo(&set, &info);
		if (number == SIGTERM || (asked && number < 0)) {
			kill(-program, asked ? SIGKILL : SIGTERM);
			asked = true;
		}
		info.si_pid = 0;
	} while (waitid(P_PID, (id_t)program, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != program);
	kill(-program, SIGKILL);
	waitpid(program, &status, 0);
	if (scratch)
		remove_scratch(scratch);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* The end of what is too long is what says why. */
static bool take(struct pipe_end *p)
{
	char piece[4096];
	ssize_t n = read(p->fd[0], piece, sizeof(piece));

	if (n < 0)
		return errno == EINTR;
	if (n == 0)
		return false;
	while (buf_add(p->to, piece, (size_t)n) < 0 && p->to->len)
		buf_drop(p->to, p->to->len < sizeof(piece) ? p->to->len : sizeof(piece));
	return true;
}

/* Until the program has ended and its pipes are empty. -EINTR when a signal came. */
static int follow(pid_t pid, int ended, int signals, struct pipe_end *pipes)
{
	struct pollfd p[4] = { { .fd = ended, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
	struct signalfd_siginfo s;
	int r = 0;

	for (int i = 0; i < 2; i++)
		p[2 + i] = (struct pollfd){ .fd = pipes[i].to ? pipes[i].fd[0] : -1, .events = POLLIN };
	for (;;) {
		if (poll(p, 4, -1) < 0)
			continue; /* EINTR: nothing else is possible here */
		if (p[1].revents && read(signals, &s, sizeof(s)) == sizeof(s)) {
			kill(pid, SIGTERM);
			r = -EINTR;
		}
		for (int i = 2; i < 4; i++)
			if (p[i].revents && !take(&pipes[i - 2]))
				p[i].fd = -1;
		/* A grandchild may keep the pipes open for longer than anyone waits. */
		if (p[0].revents && !((p[2].revents | p[3].revents) & POLLIN))
			return r;
	}
}

static int wait_for(pid_t pid, int signals, struct pipe_end *pipes, struct err *e)
{
	AUTO_CLOSE int ended = pidfd_open(pid, 0);
	int status = 0, r;

	r = ended < 0 ? -errno : follow(pid, ended, signals, pipes);
	if (ended < 0)
		kill(pid, SIGTERM);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (ended < 0)
		return err_sys(e, ERR_INTERNAL, r, "watch a program");
	if (r < 0)
		return err_set(e, ERR_LOST, r, "interrupted");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int start(const struct child *c, struct pipe_end *pipes, const sigset_t *before, pid_t *ret, struct err *e)
{
	int status[2], failed = 0, out = c->text ? pipes[0].fd[1] : c->out;
	const pid_t self = getpid();
	pid_t pid, program;

	if (pipe2(status, O_CLOEXEC) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a pipe");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		program = getppid() == self ? fork() : -1;
		if (program == 0) {
			setpgid(0, 0);
			become(c, out, pipes[1].fd[1], before, status[1]);
		}
		setpgid(program, program);
		/* The pipes end with the program. */
		close_range(STDERR_FILENO + 1, ~0U, 0);
		if (program > 0)
			lead(program, c->scratch);
		_exit(127);
	}
	fd_close(status[1]);
	if (pid > 0 && read(status[0], &failed, sizeof(failed)) != sizeof(failed))
		failed = 0;
	fd_close(status[0]);
	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "start %s", c->argv[0]);
	*ret = pid;
	if (!failed)
		return 0;
	waitpid(pid, NULL, 0);
	return err_sys(e, failed == ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, -failed, "start %s", c->argv[0]);
}

int child_run(const struct child *c, struct err *e)
{
	struct pipe_end pipes[2] = { { { -1, -1 }, NULL }, { { -1, -1 }, NULL } };
	AUTO_CLOSE int signals = -1;
	sigset_t set, before;
	pid_t pid = 0;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &before);
	sigdelset(&set, SIGCHLD); /* only lead() waits for it */
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	r = signals < 0 ? err_sys(e, ERR_EXHAUSTED, -errno, "watch for signals") : open_pipe(&pipes[0], c->text, e);
	if (r == 0)
		r = open_pipe(&pipes[1], c->complaints, e);
	if (r == 0)
		r = start(c, pipes, &before, &pid, e);
	fd_close(pipes[0].fd[1]);
	fd_close(pipes[1].fd[1]);
	if (r == 0)
		r = wait_for(pid, signals, pipes, e);
	fd_close(pipes[0].fd[0]);
	fd_close(pipes[1].fd[0]);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r;
}
