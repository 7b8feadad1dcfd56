/* Starts holders of memory images, and asks them for agents. */
#include "engine/blank/stash.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/prctl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLD_MS 10000
#define AGENT_MS 5000
/* bytes of a holder besides the image's pages: its own memory, page tables, and a page of stack for each copy */
#define OTHER_BYTES (64 * MIB)

static_assert(STASH_JOINS_MAX == CGROUP_CONTROLLERS, "all that a sandbox joins");

struct start {
	_Alignas(16) char stack[NS_STACK_SIZE];
	int agent, null, control;
	const int *join;
	unsigned njoin;
	int error; /* written by the child */
};

void stash_init(struct stash *s)
{
	*s = (struct stash){ .pidfd = -1, .control = -1 };
	blank_init(&s->place);
}

/* On the warden's memory, on a stack of its own: calls of base/sys.h, or such that cannot fail. */
static int child(void *arg)
{
	struct start *s = arg;
	char *argv[] = { (char *)(uintptr_t) "cloche-agent", (char *)(uintptr_t)STASH_ARGUMENT, NULL },
	     *envp[] = { NULL };
	uint64_t none = 0;
	int r = sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none));
	if (r == 0)
		r = cgroup_join_self(s->join, s->njoin);
	if (r == 0)
		r = s->control = sys_fcntl(s->control, F_DUPFD_CLOEXEC, 8);
	if (r >= 0)
		r = s->agent = sys_fcntl(s->agent, F_DUPFD_CLOEXEC, 8);
	for (int fd = 0; r >= 0 && fd < 3; fd++)
		r = sys_dup3(s->null, fd, 0);
	if (r >= 0)
		r = sys_dup3(s->control, 3, 0);
	if (r >= 0)
		r = sys_close_range(4, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
	if (r >= 0)
		r = sys_execveat(s->agent, "", argv, envp, AT_EMPTY_PATH);
	s->error = r;
	return 127;
}

static int launch(struct env *v, struct start *start, struct stash *s)
{
	struct clone_args a = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&s->pidfd,
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)start->stack,
		.stack_size = sizeof(start->stack),
	};
	long pid;

	if (v->cgroups.version == 2 && s->place.cgroup.mask) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)s->place.cgroup.dir[0];
	}
	pid = ns_clone(&a, child, start);
	if (pid < 0)
		return (int)pid;
	s->pid = (pid_t)pid;
	return start->error;
}

/* Sends one question and waits for its answer. *ret_fd: the descriptor that comes with it. */
static int ask(struct stash *s, const struct stash_ask *q, const int *fds, unsigned nfds, int ms,
	       struct stash_answer *ret, int *ret_fd)
{
	struct pollfd p = { .fd = s->control, .events = POLLIN };
	size_t got = 0;
	ssize_t n;
	int r = fd_send_now(s->control, q, sizeof(*q), fds, nfds);

	*ret_fd = -1;
	if (r < 0)
		return -EPIPE;
	do {
		r = poll(&p, 1, ms);
	} while (r < 0 && errno == EINTR);
	if (r == 0)
		return -ETIMEDOUT;
	n = fd_recv(s->control, ret, sizeof(*ret), ret_fd, 1, &got);
	return n == (ssize_t)sizeof(*ret) ? 0 : -EPIPE;
}

/* Where there is nothing that limits memory nothing else of ours is limited either. */
static int take_group(struct env *v, struct stash *s, uint64_t limit, struct err *e)
{
	const unsigned controllers = v->controllers & CGROUP_BIT(CGROUP_MEMORY);
	const struct cgroup_limits l = { .memory = limit + OTHER_BYTES };
	int r = blank_place(v, &s->place, controllers, e);

	return r == 0 && controllers ? cgroup_limit(&v->cgroups, &s->place.cgroup, &l, e) : r;
}

int stash_start(struct env *v, const int *fds, uint32_t pages, int host, uint64_t limit, struct stash *ret,
		struct err *e)
{
	struct stash_ask q = { .kind = STASH_HOLD, .pages = pages, .host = host >= 0 };
	AUTO_FREE struct start *start = calloc(1, sizeof(*start));
	int all[2 + MEM_PAGE_FILES], pair[2], none, r;
	struct stash_answer answer = { 0 };
	AUTO_CLOSE int theirs = -1;
	struct stash s;

	stash_init(&s);
	r = start ? take_group(v, &s, limit, e) : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a socket owner");
	if (r < 0)
		goto fail;
	r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	if (r < 0) {
		err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
		goto fail;
	}
	s.control = pair[0];
	theirs = pair[1];
	*start = (struct start){ .agent = v->agent,
				 .null = v->null,
				 .control = theirs,
				 .join = s.place.cgroup.join,
				 .njoin = s.place.cgroup.njoin };
	r = launch(v, start, &s);
	if (r < 0) {
		err_sys(e, ERR_INTERNAL, r, "start a socket owner");
		goto fail;
	}
	fd_close(TAKE_FD(theirs)); /* the holder then has the only copy, so we notice its end */
	memcpy(all, fds, (1 + pages) * sizeof(int));
	all[1 + pages] = host;
	r = ask(&s, &q, all, 1 + pages + q.host, HOLD_MS, &answer, &none);
	r = r < 0 ? r : answer.error;
	if (r < 0) {
		err_sys(e, ERR_INTERNAL, r, "hold an image's memory");
		goto fail;
	}
	s.bytes = answer.bytes;
	*ret = s;
	return 0;
fail:
	stash_end(v, &s);
	return r;
}

int stash_agent(struct stash *s, const struct stash_ask *q, const int *fds, unsigned nfds, pid_t *ret_pid,
		int *ret_pidfd)
{
	struct stash_answer answer = { 0 };
	int fd, r = ask(s, q, fds, nfds, AGENT_MS, &answer, &fd);

	r = r < 0 ? r : answer.error;
	if (r == 0 && (fd < 0 || answer.pid <= 0))
		r = -EPIPE;
	if (r < 0) {
		fd_close(fd);
		return r;
	}
	*ret_pid = answer.pid;
	*ret_pidfd = fd;
	return 0;
}

/* Kills a child that was not reaped, so that its number cannot be another process's. */
static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Ends an agent that the holder made after we had stopped waiting for it: it is a child of ours, too. */
static void end_late(struct stash *s)
{
	struct pollfd p = { .fd = s->control, .events = POLLIN };
	struct stash_answer answer;
	size_t got = 0;
	int fd = -1;

	while (poll(&p, 1, 0) == 1 &&
	       fd_recv(s->control, &answer, sizeof(answer), &fd, 1, &got) == (ssize_t)sizeof(answer)) {
		if (answer.error == 0 && answer.pid > 0 && fd >= 0)
			end_child(answer.pid);
		fd_close(TAKE_FD(fd));
	}
	fd_close(fd);
}

void stash_end(struct env *v, struct stash *s)
{
	if (s->pid > 0) {
		end_child(s->pid);
		end_late(s);
	}
	fd_close(s->control);
	fd_close(s->pidfd);
	blank_end(v, &s->place, NULL);
	stash_init(s);
}
