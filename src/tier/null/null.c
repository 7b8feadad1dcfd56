/*
 * The null tier's table. A sandbox is one process of the host with a PID namespace of its own, so that its end kills
 * all processes that it has started. It uses nothing of the container engine: no slot, no record, no control group. So
 * a sandbox ends with its warden, and its execs are lost with the API process.
 */
#include "tier/null/null.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/sandbox/internal.h"

#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Refuses features whose absence would be noticed. Limits are not refused: a request has some even if it names none. */
static int check_spec(const struct sandbox_spec *s, struct err *e)
{
	const struct {
		bool asked;
		const char *what;
	} all[] = {
		{ s->flags & SPEC_NET, "a network policy" },
		{ s->flags & SPEC_READ_ONLY, "read_only" },
		{ s->flags & (SPEC_DISK | SPEC_DISK_AGAIN), "storage 'disk'" },
		{ s->flags & SPEC_MEMORY || s->layers, "checkpoints" },
		{ s->nmounts || s->ntmpfs, "mounts, tmpfs and secrets as files" },
		{ strcmp(s->image, "host"), "an image" },
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		if (!all[i].asked)
			continue;
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "isolation 'null' does not support %s", all[i].what);
		err_remedy(e, "create a sandbox with isolation 'container'");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int start(struct warden_sandbox *s, struct err *e)
{
	int sock[2] = { -1, -1 }, ctl[2] = { -1, -1 }, pidfd = -1;
	struct clone_args a = {
		.flags = CLONE_NEWPID | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
		.exit_signal = SIGCHLD,
	};
	int r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock);
	long pid = 0;

	if (r == 0)
		r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ctl);
	if (r < 0) {
		err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	} else {
		pid = sys_clone3(&a, sizeof(a));
		if (pid == 0)
			null_agent(sock[1], ctl[1]);
		if (pid < 0)
			r = err_sys(e, ERR_EXHAUSTED, (int)pid, "start a process without isolation");
	}
	fd_close(sock[1]);
	fd_close(ctl[1]);
	if (r < 0) {
		fd_close(sock[0]);
		fd_close(ctl[0]);
		return r;
	}
	s->blank.pid = (pid_t)pid;
	s->blank.pidfd = pidfd;
	s->blank.sock = sock[0];
	s->blank.give = ctl[0];
	return 0;
}

static int create(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e)
{
	struct warden_sandbox *s;
	int r;

	if (w->env.rootless)
		return err_set(e, ERR_UNSUPPORTED, -EPERM, "isolation 'null' needs root");
	r = sandbox_new(spec, &s, e);
	if (r < 0)
		return r;
	s->tier = &null_tier;
	r = start(s, e);
	if (r < 0) {
		free(s);
		return r;
	}
	sandbox_show(w, s);
	*ret = s;
	return 0;
}

/* The kernel has ended all of its processes when this returns. */
static void end(struct warden *w, struct warden_sandbox *s)
{
	siginfo_t si;

	(void)w;
	sys_pidfd_send_signal(s->blank.pidfd, SIGKILL);
	while (waitid(P_PIDFD, (id_t)s->blank.pidfd, &si, WEXITED) < 0 && errno == EINTR)
		;
	fd_close(TAKE_FD(s->blank.pidfd));
	fd_close(TAKE_FD(s->blank.sock));
	fd_close(TAKE_FD(s->blank.give));
}

static int no_stat(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret)
{
	(void)w;
	(void)s;
	*ret = (struct warden_stat){ 0 };
	return 0;
}

/* A number takes the place of a control group; the process reads it with the command. */
static int group_new(struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e)
{
	const uint32_t number = s->groups.last + 1 ? s->groups.last + 1 : 1;
	AUTO_CLOSE int fd = sys_memfd_create("group", MFD_CLOEXEC);
	int r = fd < 0 ? fd : fd_write_all(fd, &number, sizeof(number));

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make an exec group");
	*ret = s->groups.last = number;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int first_group(struct warden_sandbox *s)
{
	uint32_t number;
	int fd = -1;

	return group_new(s, &number, &fd, NULL) < 0 ? -1 : fd;
}

static int group_open(uint32_t group, struct err *e)
{
	return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "isolation 'null' does not support warm code (group %u)",
		       group);
}

static int group_end(struct warden_sandbox *s, enum tier_group_end how, uint32_t group, struct err *e)
{
	int r = how == TIER_GROUP_KILL ? fd_send_now(s->blank.give, &group, sizeof(group), NULL, 0) : 0;

	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* the process has ended, and all groups with it */
	return r < 0 ? err_sys(e, WHY_WRONG_STATE, r, "end an exec group") : 0;
}

/* Logged by the daemon, because such a build must not be mistaken for another. */
static void warn(struct warden *w)
{
	if (w->env.persist)
		log_warn("this build has isolation 'null', which isolates nothing: it is for measurements only");
}

const struct tier_ops null_tier = {
	.name = "null",
	.flag = 0x10000U,
	.bare = "nothing is enforced: no isolation and no limits; commands run on the host as user 65534",
	.lacks = TIER_LIMITS | TIER_PAUSE | TIER_CHECKPOINTS | TIER_NETWORK | TIER_FILES,
	.check = check_spec,
	.open = warn,
	.create = create,
	.forget = end,
	.end = end,
	.stat = no_stat,
	.first_group = first_group,
	.group_new = group_new,
	.group_open = group_open,
	.group_end = group_end,
};
