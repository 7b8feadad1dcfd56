/*
 * Starts a process: a child that shares the agent's memory until it runs the program (no page is copied, so the cost
 * does not grow), drops to its user in a fixed order, and reports the step that failed.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/seccomp.h"
#include "proto/account.h"
#include "proto/nofile.h"

#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define TTY_GROUP 5
#define START_MS 10000 /* an emulated machine on a busy host is slow */
#define START_TURNS 50
#define FEW_STRINGS 128 /* up to so many strings, which is nearly always enough, memory is on the stack */

struct start {
	const struct agent *agent;
	const struct frame_exec *x;
	int stdio[3], group;
	int warm; /* the socket of a warm process, which becomes its descriptor 3; or -1 */
	char **argv, **envp;
	const uint32_t *groups; /* supplementary groups */
	size_t ngroups;
	struct sock_filter *filter;
	size_t filter_len;
	uint64_t memory; /* the sandbox's memory, in bytes */
	int alive; /* closed by the child's execve or death; -1 = the clone waits for that itself */
	enum frame_stage stage; /* step that failed, written by the child */
	int error;
};

#define EXEC_NAMED_ENV 3
struct exec_named {
	struct account is;
	char home[5 + ACCOUNT_HOME], user[5 + ACCOUNT_NAME], logname[8 + ACCOUNT_NAME];
};

/* Only one child at a time runs on this: the next is not begun before the last has its own memory. */
static _Alignas(16) char child_stack[16384];

static int run(const struct start *s)
{
	const char *name = s->argv[0], *path = "";
	bool denied = false;
	char full[4096];
	int r = -ENOENT;

	if (strchr(name, '/'))
		return sys_execve(name, s->argv, s->envp);
	if (!*name)
		return -ENOENT;
	for (char **e = s->envp; *e; e++)
		if (!strncmp(*e, "PATH=", 5))
			path = *e + 5;
	while (*path) {
		size_t n = strcspn(path, ":");

		if (n && n + 1 + strlen(name) < sizeof(full)) {
			memcpy(full, path, n);
			full[n] = '/';
			memcpy(full + n + 1, name, strlen(name) + 1);
			r = sys_execve(full, s->argv, s->envp);
			if (r == -EACCES)
				denied = true;
			else if (r != -ENOENT && r != -ENOTDIR)
				return r;
		}
		path += n + (path[n] == ':');
	}
	return denied ? -EACCES : -ENOENT;
}

static int set_stdio(const struct start *s)
{
	int r, end = 3;

	for (int i = 0; i < 3; i++) {
		r = sys_dup3(s->stdio[i], i, 0);
		if (r < 0)
			return r;
	}
	if (s->x->flags & FRAME_EXEC_TTY) {
		r = sys_ioctl(0, TIOCSCTTY, NULL);
		if (r < 0)
			return r;
	}
	/* The agent's own descriptors are all above these: see AGENT_PLACES_END. */
	if (s->warm >= 0) {
		r = sys_dup3(s->warm, end++, 0);
		if (r < 0)
			return r;
	}
	if (s->alive >= 0) {
		r = sys_dup3(s->alive, end++, O_CLOEXEC);
		if (r < 0)
			return r;
	}
	return sys_close_range((unsigned)end, ~0U, 0);
}

/*
 * Sets the limit of open files. Where the host's own limit is low, a part of it stays reserved for the process that
 * restores memory images (proto/memory_fds.h).
 */
static int set_nofile(uint64_t soft)
{
	uint64_t hard = nofile_hard(soft), most;
	struct rlimit now;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0)
		return -errno;
	most = now.rlim_max - now.rlim_max / 4;
	if (hard > most)
		hard = most < soft ? soft : most;
	return sys_prlimit(RLIMIT_NOFILE, soft, hard);
}

static int set_limits(const struct start *s)
{
	const struct frame_exec *x = s->x;
	int r = memory_size_hint(s->memory);

	if (r == 0 && x->nofile)
		r = set_nofile(x->nofile);
	/* A backstop per process; the soft limit's signal can be caught, the hard one's not. */
	if (r == 0 && x->cpu_seconds)
		r = sys_prlimit(RLIMIT_CPU, x->cpu_seconds + 1, x->cpu_seconds + 2);
	return r;
}

/*
 * The number of CPUs in the mask is what nproc and similar programs print. Which CPUs they are does not matter, so the
 * child gets the one on which the scheduler has just put the agent: another one might be busy. The agent itself may run
 * anywhere, except in the moment of the clone. The child starts on the agent's CPU; its pages are in no other CPU's
 * tables, so no CPU needs an interrupt.
 */
int exec_pin(const struct agent *a)
{
	uint64_t mask[16] = { a->cpu_mask };
	unsigned cpu;

	if (!a->cpu_mask)
		return 0;
	if (syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 && cpu < 64 && !(mask[0] & 1ULL << cpu))
		mask[0] = (mask[0] & (mask[0] - 1)) | 1ULL << cpu;
	return sys_sched_setaffinity(mask, sizeof(mask));
}

int exec_become(const struct agent *a, uint32_t uid, uint32_t gid)
{
	return exec_become_with(a, uid, gid, NULL, 0);
}

int exec_become_with(const struct agent *a, uint32_t uid, uint32_t gid, const void *groups, size_t n)
{
	uint64_t keep = uid ? 0 : a->host_writable ? CAPS_ROOT & ~CAPS_FILE_RIGHTS : CAPS_ROOT;
	int r;

	if (!a->single_id) {
		r = sys_setgroups(n, groups);
		if (r == 0)
			r = sys_setresgid(gid, gid, gid);
		if (r == 0)
			r = sys_setresuid(uid, uid, uid);
		if (r < 0)
			return r;
	} else if (uid != a->single_id - 1 || gid != a->single_id - 1) {
		return -EINVAL;
	}
	return caps_set(keep, keep); /* inheritable, so that they outlast the execve: see blank.c */
}

/* Runs in the agent's memory on a stack of its own, so it may only make raw system calls. */
static int child(void *arg)
{
	struct start *s = arg;
	uint64_t none = 0;
	int r;

	syscall(SYS_setsid);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
	s->stage = FRAME_STAGE_GROUP;
	r = s->group >= 0 ? (int)sys_write(s->group, "0", 1) : 0;
	if (r >= 0) {
		s->stage = FRAME_STAGE_STDIO;
		r = set_stdio(s);
	}
	if (r >= 0) {
		s->stage = FRAME_STAGE_RLIMIT;
		r = set_limits(s);
	}
	if (r >= 0) {
		s->stage = FRAME_STAGE_USER;
		r = exec_become_with(s->agent, s->x->uid, s->x->gid, s->groups, s->ngroups);
	}
	if (r >= 0) {
		s->stage = FRAME_STAGE_CWD;
		r = sys_chdir(s->x->cwd);
	}
	if (r >= 0 && s->agent->host_writable) {
		s->stage = FRAME_STAGE_SECCOMP;
		r = seccomp_install_no_setid();
	}
	if (r >= 0 && s->filter) {
		s->stage = FRAME_STAGE_FILTER;
		r = seccomp_install_extra(s->filter, s->filter_len);
	}
	if (r >= 0) {
		s->stage = FRAME_STAGE_EXECVE;
		r = run(s);
	}
	s->error = r;
	return 127;
}

/*
 * O_CLOEXEC is set afterwards: TIOCGPTPEER would keep it among the flags of the open file, and a memory image would
 * then take every descriptor of that file for close-on-exec. The agent has no other thread that could start a process
 * in between.
 */
int exec_open_slave(int master, int flags)
{
	int fd = sys_ioctl(master, TIOCGPTPEER, (void *)(uintptr_t)(unsigned)(flags | O_NOCTTY));
	int r = fd < 0 ? fd : sys_fcntl(fd, F_SETFD, FD_CLOEXEC);

	if (fd >= 0 && r < 0)
		fd_close(fd);
	return r < 0 ? r : fd;
}

static int open_tty(const struct frame_exec *x, int *ret_master, int *ret_slave)
{
	struct winsize ws = { .ws_row = (unsigned short)x->rows, .ws_col = (unsigned short)x->cols };
	AUTO_CLOSE int master = sys_openat(AT_FDCWD, "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC, 0);
	AUTO_CLOSE int slave = -1;
	int unlock = 0, r;

	if (master < 0)
		return master;
	r = sys_ioctl(master, TIOCSPTLCK, &unlock);
	if (r < 0)
		return r;
	slave = exec_open_slave(master, O_RDWR);
	if (slave < 0)
		return slave;
	if (fchown(slave, x->uid, TTY_GROUP) < 0 && fchown(slave, x->uid, (gid_t)-1) < 0)
		return -errno;
	if (ws.ws_row || ws.ws_col)
		sys_ioctl(slave, TIOCSWINSZ, &ws);
	*ret_master = TAKE_FD(master);
	*ret_slave = TAKE_FD(slave);
	return 0;
}

static int read_filter(int fd, struct start *s)
{
	size_t size = SECCOMP_PROFILE_MAX * sizeof(*s->filter);
	ssize_t n;

	s->filter = malloc(size);
	if (!s->filter)
		return -ENOMEM;
	n = pread(fd, s->filter, size, 0);
	if (n <= 0 || n % (ssize_t)sizeof(*s->filter))
		return n < 0 ? -errno : -EINVAL;
	s->filter_len = (size_t)n / sizeof(*s->filter);
	return 0;
}

/*
 * Waits until the child runs its program or is dead. Another process of the same user may stop the child before that;
 * then it is killed. Returns 0 or -ETIMEDOUT.
 */
static int wait_started(int alive, pid_t pid)
{
	struct pollfd p = { .fd = alive, .events = POLLIN };

	/*
	 * In several turns: the clock runs while the whole sandbox is paused, and a pause of any length uses up only
	 * one turn.
	 */
	for (unsigned i = 0; i < START_TURNS;) {
		int n = poll(&p, 1, START_MS / START_TURNS);

		if (n > 0)
			return 0;
		i += n == 0 || errno != EINTR;
	}
	kill(pid, SIGKILL);
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
	return -ETIMEDOUT;
}

/*
 * Whether no other process is in the sandbox. All are descendants of the agent's children, since orphans become its
 * own.
 */
static bool nobody_else(void)
{
	siginfo_t si;

	return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

/*
 * Plain clone, since the filter answers clone3 with ENOSYS in the whole sandbox, the agent included. While no other
 * process is in the sandbox, the kernel may hold the agent until the child runs its program (CLONE_VFORK). Otherwise
 * another process could stop the child after it has become its user, and the agent with it; so then the agent waits
 * itself, for a bounded time.
 */
static long clone_child(struct start *s)
{
	bool alone = nobody_else();
	int flags = CLONE_VM | (alone ? CLONE_VFORK : 0) | SIGCHLD, ends[2] = { -1, -1 }, r = 0;
	AUTO_CLOSE int alive = -1;
	long pid;

	if (!alone) {
		r = sys_pipe2(ends, O_CLOEXEC);
		if (r < 0)
			return r;
	}
	alive = ends[0];
	s->alive = ends[1];
	pid = clone(child, child_stack + sizeof(child_stack), flags, s);
	if (pid < 0)
		pid = -errno;
	fd_close(ends[1]);
	if (pid > 0 && !alone)
		r = wait_started(alive, (pid_t)pid);
	return r < 0 ? r : pid;
}

/*
 * Replaces the host's null device by the sandbox's own: processes could not open the host's again by a name such as
 * /dev/stdin. -1: @fd is something else.
 */
static int own_null(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
		return -1;
	return sys_openat(AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC, 0);
}

/* Looks up a user by name: *@to becomes @x with the user's ids. */
static int find_user(const struct frame_exec *x, struct exec_named *n, struct frame_exec *to, enum frame_stage *stage)
{
	AUTO_CLOSE int root = sys_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	bool group = false;
	int r = root < 0 ? root : account_look_up(root, x->user, &n->is, &group);

	*stage = group ? FRAME_STAGE_ACCOUNT_GROUP : FRAME_STAGE_ACCOUNT;
	if (r < 0)
		return r;
	*to = *x;
	to->uid = n->is.uid;
	to->gid = n->is.gid;
	return 0;
}

static void set_name(char **envp, const char *name, const char *value, char *to, size_t size)
{
	const size_t n = strlen(name);

	for (; *envp; envp++)
		if (!strncmp(*envp, name, n) && (*envp)[n] == '=')
			return;
	snprintf(to, size, "%s=%s", name, value);
	envp[0] = to;
	envp[1] = NULL;
}

/*
 * Adds the variables that a login sets, unless the host has given them. @envp has room for EXEC_NAMED_ENV more. A user
 * without a line in /etc/passwd has no home.
 */
static void set_names(struct exec_named *n, char **envp)
{
	const char *name = n->is.name;

	set_name(envp, "HOME", *name ? n->is.home : "/", n->home, sizeof(n->home));
	if (!*name)
		return;
	set_name(envp, "USER", name, n->user, sizeof(n->user));
	set_name(envp, "LOGNAME", name, n->logname, sizeof(n->logname));
}

int exec_start(struct agent *a, const struct frame_exec *x, const int *fds, struct exec_started *ret,
	       enum frame_stage *stage)
{
	const struct frame_exec_fds at = frame_exec_fds(x->flags);
	struct start s = { .agent = a, .x = x, .group = at.group < 0 ? -1 : fds[at.group], .warm = -1 };
	AUTO_CLOSE int master = -1, slave = -1, ours = -1, theirs = -1, null = -1;
	char *few[FEW_STRINGS], **strings = few;
	AUTO_FREE char **many = NULL;
	AUTO_FREE struct sock_filter *filter = NULL;
	bool tty = x->flags & FRAME_EXEC_TTY;
	struct exec_named who;
	struct frame_exec by_name;
	long pid;
	int r;

	if (x->flags & FRAME_EXEC_USER) {
		r = find_user(x, &who, &by_name, stage);
		if (r < 0)
			return r;
		s.x = x = &by_name;
		s.groups = who.is.groups;
		s.ngroups = who.is.ngroups;
	}
	*stage = FRAME_STAGE_CLONE;
	if (x->argc + x->envc + 2 + EXEC_NAMED_ENV > FEW_STRINGS) {
		strings = many = calloc(x->argc + x->envc + 2 + EXEC_NAMED_ENV, sizeof(char *));
		if (!many)
			return -ENOMEM;
	}
	s.argv = strings;
	s.envp = strings + x->argc + 1;
	frame_exec_strings(x, s.argv, s.envp);
	if (x->flags & FRAME_EXEC_USER)
		set_names(&who, s.envp);
	if (x->flags & FRAME_EXEC_FILTER) {
		*stage = FRAME_STAGE_FILTER;
		r = read_filter(fds[at.filter], &s);
		filter = s.filter;
		if (r < 0)
			return r;
	}
	if (tty) {
		*stage = FRAME_STAGE_TTY;
		r = open_tty(x, &master, &slave);
		if (r < 0)
			return r;
	}
	for (int i = 0; i < 3; i++)
		s.stdio[i] = tty ? slave : fds[i];
	if (x->flags & FRAME_EXEC_MERGE)
		s.stdio[2] = s.stdio[1];
	if (!tty)
		null = own_null(fds[0]);
	if (null >= 0)
		s.stdio[0] = null;
	*ret = (struct exec_started){ .master = -1, .warm = -1 };
	if (x->flags & FRAME_EXEC_WARM) {
		r = warm_start(a, x, s.stdio, s.group, &ret->pid, stage);
		if (r < 0)
			return r;
	} else {
		*stage = FRAME_STAGE_CLONE;
		if (x->flags & FRAME_EXEC_WARM_HOST)
			r = a->warm_hosts < AGENT_WARM_MAX ? warm_pair(&ours, &theirs) : -EAGAIN;
		else
			r = 0;
		if (r < 0)
			return r;
		s.warm = theirs;
		*stage = FRAME_STAGE_RLIMIT;
		r = memory_size_read(&s.memory);
		if (r < 0)
			return r;
		*stage = FRAME_STAGE_AFFINITY;
		r = exec_pin(a);
		if (r < 0)
			return r;
		*stage = FRAME_STAGE_CLONE;
		pid = clone_child(&s);
		r = a->cpu_mask ? sys_sched_setaffinity(a->cpus, sizeof(a->cpus)) : 0;
		if (pid < 0)
			return (int)pid;
		if (r < 0) {
			kill((pid_t)pid, SIGKILL);
			*stage = FRAME_STAGE_AFFINITY;
			return r;
		}
		if (s.error) {
			*stage = s.stage;
			return s.error;
		}
		ret->pid = (pid_t)pid;
		ret->warm = TAKE_FD(ours);
	}
	ret->master = TAKE_FD(master);
	return 0;
}
