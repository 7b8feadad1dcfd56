/* Starts holders of memory images, and asks them for agents. */
#include "engine/blank/stash.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/spawn.h"

#include <poll.h>

#define HOLD_MS 10000
#define AGENT_MS 5000
/* bytes of a holder besides the image's pages: its own memory, page tables, and a page of stack for each copy */
#define OTHER_BYTES (64 * MIB)

static_assert(STASH_JOINS_MAX == CGROUP_CONTROLLERS, "all that a sandbox joins");

void stash_init(struct stash *s)
{
	*s = (struct stash){ .pidfd = -1, .control = -1 };
	blank_init(&s->place);
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
	char *argv[] = { (char *)(uintptr_t) "cloche-agent", (char *)(uintptr_t)STASH_ARGUMENT, NULL };
	struct stash_ask q = { .kind = STASH_HOLD, .pages = pages, .host = host >= 0 };
	int all[2 + MEM_PAGE_FILES], fd[1], none, r;
	struct stash_answer answer = { 0 };
	struct spawn program = { .program = v->agent, .fd = fd, .fds = ARRAY_LEN(fd), .argv = argv, .null = v->null };
	struct stash s;

	stash_init(&s);
	r = take_group(v, &s, limit, e);
	if (r < 0)
		goto fail;
	program.pidfd = &s.pidfd;
	program.join = s.place.cgroup.join;
	program.njoin = s.place.cgroup.njoin;
	program.group = v->cgroups.version == 2 && s.place.cgroup.mask ? s.place.cgroup.dir[0] : 0;
	/* Its end of the socket is the last: we hear of its end. */
	r = spawn_talking(&program, &s.control);
	if (r < 0) {
		err_sys(e, ERR_INTERNAL, r, "start a socket owner");
		goto fail;
	}
	s.pid = r;
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
			spawn_end(answer.pid);
		fd_close(TAKE_FD(fd));
	}
	fd_close(fd);
}

void stash_end(struct env *v, struct stash *s)
{
	if (s->pid > 0) {
		spawn_end(s->pid);
		end_late(s);
	}
	fd_close(s->control);
	fd_close(s->pidfd);
	blank_end(v, &s->place, NULL);
	stash_init(s);
}
