/*
 * The process that is a sandbox of the null tier. It speaks the part of the agent's protocol that starts commands, and
 * isolates nothing: commands see the host, as NULL_USER. It is PID 1 of its namespace, so the kernel ends all commands
 * with it, and it ends with the warden (PR_SET_PDEATHSIG) and with its sockets.
 *
 * It refuses requests by FAILED; frames that only make sense with kept descriptors are ignored, because it keeps none.
 */
#include "tier/null/null.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/ns.h"
#include "proto/frame.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMANDS 512
#define QUEUE (FRAME_FDS_MAX * 2)
#define IN_MAX (FRAME_HEAD + FRAME_PAYLOAD_MAX)
#define FDS_FIRST 3 /* descriptors from here on are not inherited */

struct command {
	pid_t pid; /* 0: free */
	uint32_t id, group;
};

/* State of the process that the warden's child becomes; the warden itself never uses it. */
static struct {
	int sock;
	uint8_t *in; /* IN_MAX bytes */
	size_t len;
	int fds[QUEUE]; /* received descriptors, for the frames in ->in */
	size_t nfds;
	struct command command[COMMANDS];
	char *strings[FRAME_STRINGS_MAX + 2];
	uint8_t stack[65536];
} me;

struct start {
	const struct frame_exec *x;
	char **argv, **envp;
	const int *stdio;
	enum frame_stage stage; /* the step that failed, with ->error */
	int error;
};

static void answer(enum frame_type type, uint32_t id, const uint8_t *payload, size_t len)
{
	uint8_t out[FRAME_HEAD + 320];

	frame_head(out, type, 0, id, (uint32_t)len);
	if (len)
		memcpy(out + FRAME_HEAD, payload, len);
	if (fd_send(me.sock, out, FRAME_HEAD + len, NULL, 0) < 0)
		_exit(1);
}

static void refuse(uint32_t id, enum frame_stage stage, int r)
{
	const struct frame_failed f = { .stage = stage, .errnum = (uint32_t)-r };
	uint8_t out[16];

	answer(FRAME_FAILED, id, out, (size_t)frame_failed_encode(&f, out, sizeof(out)));
}

/* Searches PATH like a shell. */
static int run(const struct start *s)
{
	const char *name = s->argv[0], *path = "";
	char full[4096];
	int r = -ENOENT;

	if (strchr(name, '/'))
		return sys_execve(name, s->argv, s->envp);
	for (char **v = s->envp; *v; v++)
		if (!strncmp(*v, "PATH=", 5))
			path = *v + 5;
	while (*name && *path) {
		const int n = (int)strcspn(path, ":");

		if (snprintf(full, sizeof(full), "%.*s/%s", n, path, name) < (int)sizeof(full))
			r = sys_execve(full, s->argv, s->envp);
		if (r != -ENOENT && r != -ENOTDIR && r != -EACCES)
			return r;
		path += n + (path[n] == ':');
	}
	return r;
}

/*
 * Runs in the memory of the process that waits for it. There are no home folders: a folder that the host does not have
 * becomes "/".
 */
static int child(void *arg)
{
	struct start *s = arg;
	uint64_t none = 0;
	int r = 0;

	syscall(SYS_setsid);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
	s->stage = FRAME_STAGE_STDIO;
	for (int i = 0; r >= 0 && i < FDS_FIRST; i++)
		r = sys_dup3(s->stdio[i], i, 0);
	if (r >= 0)
		r = sys_close_range(FDS_FIRST, ~0U, 0);
	if (r >= 0 && sys_chdir(s->x->cwd) < 0) {
		s->stage = FRAME_STAGE_CWD;
		r = sys_chdir("/");
	}
	if (r >= 0) {
		s->stage = FRAME_STAGE_EXECVE;
		r = run(s);
	}
	s->error = r;
	return 127;
}

/* @fds as from frame_exec_fds(); the caller closes all. */
static int start(uint32_t id, const struct frame_exec *x, const int *fds, enum frame_stage *stage)
{
	const struct frame_exec_fds at = frame_exec_fds(x->flags);
	struct start s = { .x = x, .argv = me.strings, .envp = me.strings + x->argc + 1 };
	int stdio[3];
	struct clone_args a = {
		.flags = CLONE_VM | CLONE_VFORK,
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)me.stack,
		.stack_size = sizeof(me.stack),
	};
	struct command *c = me.command;
	uint32_t group = 0;
	long pid;

	*stage = FRAME_STAGE_PROTOCOL;
	if (x->flags & (FRAME_EXEC_TTY | FRAME_EXEC_WARM | FRAME_EXEC_WARM_HOST | FRAME_EXEC_FILTER))
		return -EOPNOTSUPP;
	for (int i = 0; i < 3; i++)
		stdio[i] = fds[at.stdio + (i == 2 && x->flags & FRAME_EXEC_MERGE ? 1 : i)];
	s.stdio = stdio;
	*stage = FRAME_STAGE_LIMIT;
	while (c < me.command + COMMANDS && c->pid)
		c++;
	if (c == me.command + COMMANDS)
		return -EAGAIN;
	*stage = FRAME_STAGE_GROUP;
	if (at.group >= 0 && pread(fds[at.group], &group, sizeof(group), 0) != sizeof(group))
		return -EBADMSG;
	frame_exec_strings(x, s.argv, s.envp);
	*stage = FRAME_STAGE_CLONE;
	pid = ns_clone(&a, child, &s);
	if (pid < 0)
		return (int)pid;
	if (s.error) {
		*stage = s.stage;
		return s.error; /* it is reaped like an unknown orphan */
	}
	*c = (struct command){ .pid = (pid_t)pid, .id = id, .group = group };
	return 0;
}

static void serve_exec(const struct frame *f, const int *fds)
{
	enum frame_stage stage = FRAME_STAGE_PROTOCOL;
	struct frame_exec x;
	int r = frame_exec_decode(f, &x);

	if (r == 0)
		r = start(f->id, &x, fds, &stage);
	if (r < 0)
		refuse(f->id, stage, r);
}

static void serve_signal(const struct frame *f)
{
	uint32_t sig, scope;

	if (f->len != 8)
		return;
	memcpy(&sig, f->payload, 4);
	memcpy(&scope, f->payload + 4, 4);
	if (scope == FRAME_SCOPE_ALL)
		kill(-1, (int)sig);
	for (struct command *c = me.command; scope != FRAME_SCOPE_ALL && c < me.command + COMMANDS; c++)
		if (c->pid && c->id == f->id)
			kill(scope == FRAME_SCOPE_GROUP ? -c->pid : c->pid, (int)sig);
}

static void serve(const struct frame *f, const int *fds)
{
	switch ((enum frame_type)f->type) {
	case FRAME_EXEC:
		serve_exec(f, fds);
		break;
	case FRAME_SIGNAL:
		serve_signal(f);
		break;
	case FRAME_PING:
		answer(FRAME_PONG, f->id, NULL, 0);
		break;
	case FRAME_SYNC: /* no execs to list */
		answer(FRAME_SYNCED, 0, NULL, 0);
		break;
	case FRAME_RELEASE:
	case FRAME_CLOSE_STDIN:
	case FRAME_WARM:
		break;
	case FRAME_FILES:
	case FRAME_SETUP:
	case FRAME_MOUNTS:
	case FRAME_KEEP:
	case FRAME_RESTORE:
	case FRAME_CONNECT:
	case FRAME_CHANGES:
	case FRAME_WHO:
		refuse(f->id, FRAME_STAGE_PROTOCOL, -EOPNOTSUPP);
		break;
	case FRAME_READY:
	case FRAME_UP:
	case FRAME_STARTED:
	case FRAME_EXITED:
	case FRAME_FAILED:
	case FRAME_PONG:
	case FRAME_HELD:
	case FRAME_SYNCED:
	case FRAME_RESTORED:
		_exit(1); /* exits as an agent does */
	}
}

static void read_frames(void)
{
	size_t used = 0, got = 0;
	struct frame f;
	ssize_t n = fd_recv(me.sock, me.in + me.len, IN_MAX - me.len, me.fds + me.nfds, QUEUE - me.nfds, &got);
	long whole;

	if (n <= 0)
		_exit(0);
	me.len += (size_t)n;
	me.nfds += got;
	while ((whole = frame_decode(me.in + used, me.len - used, &f)) > 0) {
		if (f.nfds > me.nfds)
			_exit(1);
		serve(&f, me.fds);
		fd_close_many(me.fds, f.nfds);
		me.nfds -= f.nfds;
		memmove(me.fds, me.fds + f.nfds, me.nfds * sizeof(int));
		used += (size_t)whole;
	}
	if (whole < 0)
		_exit(1);
	me.len -= used;
	memmove(me.in, me.in + used, me.len);
}

/* As PID 1 it is also the parent of all orphans. */
static void reap(int children)
{
	struct signalfd_siginfo si;
	struct rusage used;
	int status;
	pid_t pid;

	if (read(children, &si, sizeof(si)) < 0)
		_exit(1);
	while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
		for (struct command *c = me.command; c < me.command + COMMANDS; c++) {
			const struct frame_exited x = {
				.status = status,
				.cpu_usec = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
					    (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
				.maxrss = (uint64_t)used.ru_maxrss * KIB,
			};
			uint8_t out[64];

			if (c->pid != pid)
				continue;
			c->pid = 0;
			answer(FRAME_EXITED, c->id, out, (size_t)frame_exited_encode(&x, out, sizeof(out)));
		}
	}
}

/*
 * A group consists of the sessions of its commands: a process that has left its session stays until the sandbox ends.
 */
static void end_group(int ctl)
{
	uint32_t group;
	size_t none;

	if (fd_recv(ctl, &group, sizeof(group), NULL, 0, &none) != sizeof(group))
		_exit(0);
	for (struct command *c = me.command; c < me.command + COMMANDS; c++)
		if (c->pid && c->group == group)
			kill(-c->pid, SIGKILL);
}

/* Does nothing as a user: benchmarks need no root. The signal is set last, because a change of user clears it. */
static int drop_root(void)
{
	int r = sys_setgroups(0, NULL);

	if (r == 0)
		r = sys_setresgid(NULL_USER, NULL_USER, NULL_USER);
	if (r == 0)
		r = sys_setresuid(NULL_USER, NULL_USER, NULL_USER);
	if (r == 0)
		r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return r < 0 ? r : sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
}

static int set_up(int *sock, int *ctl)
{
	int r = sys_fcntl(*sock, F_DUPFD, 64), null;

	if (r >= 0)
		*sock = r;
	if (r >= 0)
		r = sys_fcntl(*ctl, F_DUPFD, 64);
	if (r >= 0)
		*ctl = r;
	/* Both are above all descriptors that are closed: the warden's own. */
	if (r >= 0)
		r = sys_dup3(*sock, FDS_FIRST, O_CLOEXEC);
	if (r >= 0)
		r = sys_dup3(*ctl, FDS_FIRST + 1, O_CLOEXEC);
	*sock = FDS_FIRST;
	*ctl = FDS_FIRST + 1;
	if (r >= 0)
		r = sys_close_range(FDS_FIRST + 2, ~0U, 0);
	null = r < 0 ? r : sys_openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
	r = null < 0 ? null : 0;
	for (int i = 0; r >= 0 && i < FDS_FIRST; i++)
		r = sys_dup3(null, i, 0);
	if (null >= 0)
		fd_close(null);
	return r < 0 ? r : drop_root();
}

_Noreturn void null_agent(int sock, int ctl)
{
	const uint32_t ready[2] = { FRAME_VERSION, 0 }; /* no Landlock */
	struct pollfd p[3] = { { .events = POLLIN }, { .events = POLLIN }, { .events = POLLIN } };
	uint8_t first[sizeof(ready)];
	sigset_t set;
	int r = set_up(&sock, &ctl);

	me.sock = sock;
	me.in = mmap(NULL, IN_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (r < 0 || me.in == MAP_FAILED || sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		_exit(1);
	p[0].fd = sock;
	p[1].fd = ctl;
	p[2].fd = signalfd(-1, &set, SFD_CLOEXEC);
	memcpy(first, ready, sizeof(ready)); /* both supported architectures are little-endian */
	answer(FRAME_READY, 0, first, sizeof(first));
	answer(FRAME_UP, 0, NULL, 0);
	for (;;) {
		if (poll(p, ARRAY_LEN(p), -1) < 0 && errno != EINTR)
			_exit(1);
		/*
		 * Ended commands first: their places are free then, and their ends are reported before another start.
		 */
		if (p[2].revents)
			reap(p[2].fd);
		if (p[1].revents)
			end_group(ctl);
		if (p[0].revents)
			read_frames();
	}
}
