/*
 * Execs that a warm process starts (proto/warm.h). The warm process belongs to the user and may answer anything, or
 * nothing. Only what the kernel reports of the sender counts: its id, its user, and that it is a child of the agent.
 * The agent waits for a bounded time, and stops asking a process that repeatedly does not answer.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/warm.h"

#include <linux/memfd.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 2000
#define ANSWER_TURNS 20
#define STRAY_MAX 64 /* messages without a request; more end the connection */
#define LATE_MAX 3 /* requests in a row without an answer */
#define STAT_FLAGS 7U /* behind the name in /proc/PID/stat, and in it: */
#define PF_EXITING 4U
#define FEW_WORDS 64U
#define SHORT_TEXT 4096U

/* The runners know them by number. */
static_assert(FRAME_STAGE_CLONE == 18 && FRAME_STAGE_STDIO == 20 && FRAME_STAGE_RLIMIT == 21 && FRAME_STAGE_CWD == 23 &&
		      FRAME_STAGE_GROUP == 28,
	      "src/agent/warm/runner.py");

int warm_pair(int *ret_ours, int *ret_theirs)
{
	const int one = 1;
	int pair[2], r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);

	if (r < 0)
		return r;
	if (setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)) < 0) {
		r = -errno;
		fd_close_many(pair, 2);
		return r;
	}
	*ret_ours = pair[0];
	*ret_theirs = pair[1];
	return 0;
}

void warm_close(struct agent *a, struct agent_exec *x)
{
	if (x->warm < 0)
		return;
	fd_close(TAKE_FD(x->warm));
	x->warm_ready = false;
	a->warm_hosts--;
}

static void give_up(struct agent *a, struct agent_exec *x)
{
	warm_close(a, x);
	table_put(a, x);
}

unsigned warm_list(struct agent *a, struct agent_exec *ret[AGENT_WARM_MAX])
{
	unsigned n = 0;

	for (size_t i = 0; n < a->warm_hosts && i < a->top; i++)
		if (a->execs[i].used && a->execs[i].warm >= 0)
			ret[n++] = &a->execs[i];
	return n;
}

/* Receives one message with its sender's ids. 1; 0: there is none; -EPIPE: there will be no more. */
static int hear(int sock, struct warm_answer *ret, struct ucred *who)
{
	_Alignas(struct cmsghdr) char ctl[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int) * 16)];
	struct iovec iov = { ret, sizeof(*ret) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl) };
	ssize_t n = sys_recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		return -EPIPE;
	*who = (struct ucred){ 0, (uid_t)-1, (gid_t)-1 };
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len >= CMSG_LEN(sizeof(*who)))
			memcpy(who, CMSG_DATA(c), sizeof(*who));
		if (c->cmsg_type == SCM_RIGHTS) { /* descriptors that were not asked for */
			size_t have = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			int fds[16];

			have = have < ARRAY_LEN(fds) ? have : ARRAY_LEN(fds);
			memcpy(fds, CMSG_DATA(c), have * sizeof(int));
			fd_close_many(fds, have);
		}
	}
	if (n != sizeof(*ret) || ret->magic != WARM_MAGIC || m.msg_flags & MSG_TRUNC)
		*ret = (struct warm_answer){ .tag = UINT32_MAX };
	return 1;
}

static struct agent_exec *find_host(struct agent *a)
{
	struct agent_exec *x[AGENT_WARM_MAX];
	unsigned n = warm_list(a, x);

	for (unsigned i = 0; i < n; i++)
		if (x[i]->pid && x[i]->warm_ready)
			return x[i];
	return NULL;
}

void warm_prepare(struct agent *a, uint32_t flag)
{
	const struct warm_request q = { .magic = WARM_MAGIC, .flags = flag };
	const struct agent_exec *host = find_host(a);

	/* Without it requests just take longer. */
	if (host && fd_send_now(host->warm, &q, sizeof(q), NULL, 0) == 0 && flag == WARM_WAKE)
		a->warm_woken = true;
}

void warm_listen(struct agent *a, struct agent_exec *x)
{
	struct warm_answer said;
	struct ucred who;
	int r;

	r = hear(x->warm, &said, &who);
	if (r == 0)
		return;
	if (r < 0 || ++x->warm_stray > STRAY_MAX) {
		give_up(a, x);
		return;
	}
	if (said.tag == 0 && said.magic == WARM_MAGIC && !x->warm_ready) {
		x->warm_ready = true;
		x->warm_stray = 0;
		agent_send(FRAME_WARM, x->id, NULL, 0, NULL, 0);
	}
}

/*
 * Writes folder, arguments and variables into a file without a name. Most are small, so a buffer on the heap is the
 * exception.
 */
static int put_words(const struct frame_exec *x, struct warm_request *q)
{
	AUTO_CLOSE int fd = sys_memfd_create("words", MFD_CLOEXEC);
	const size_t count = (size_t)x->argc + x->envc + 3;
	AUTO_FREE char **more = NULL;
	AUTO_FREE char *long_text = NULL;
	char *few[FEW_WORDS], **words = few, short_text[SHORT_TEXT], *text = short_text;
	size_t len = strlen(x->cwd) + 1, n;
	int r;

	if (fd < 0)
		return fd;
	if (count > FEW_WORDS)
		words = more = calloc(count, sizeof(*more));
	if (!words)
		return -ENOMEM;
	frame_exec_strings(x, words, words + x->argc + 1);
	memmove(words + x->argc, words + x->argc + 1, x->envc * sizeof(*words)); /* the NULL between them */
	for (uint32_t i = 0; i < x->argc + x->envc; i++)
		len += strlen(words[i]) + 1;
	if (len > sizeof(short_text))
		text = long_text = malloc(len);
	if (!text)
		return -ENOMEM;
	n = strlen(x->cwd) + 1;
	memcpy(text, x->cwd, n);
	for (uint32_t i = 0; i < x->argc + x->envc; i++) {
		size_t k = strlen(words[i]) + 1;

		memcpy(text + n, words[i], k);
		n += k;
	}
	r = fd_write_all(fd, text, len);
	if (r < 0)
		return r;
	q->len = (uint32_t)len;
	return TAKE_FD(fd);
}

/* The group's own name, as /proc shows both: "x12" of ".../x12/cgroup.threads". */
static bool joined(pid_t pid, int group)
{
	char path[48], text[1024], want[64], *slash, *name;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", group);
	n = readlinkat(AT_FDCWD, path, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	slash = strrchr(text, '/');
	if (!slash)
		return false;
	*slash = '\0';
	name = strrchr(text, '/');
	if (!name || strlen(name) + 3 > sizeof(want))
		return false;
	snprintf(want, sizeof(want), ":%s\n", name);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	return fd_get(AT_FDCWD, path, text, sizeof(text)) > 0 && strstr(text, want);
}

/*
 * Whether the process is exiting: groups of version 1 do not list it any more. It is harmless, and its memory is
 * freed.
 */
static bool leaving(pid_t pid)
{
	char path[32], text[512];
	const char *s;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return true; /* for good */
	s = strrchr(text, ')');
	for (unsigned i = 0; s && i < STAT_FLAGS; i++)
		s = strchr(s + 1, ' ');
	return s && strtoul(s, NULL, 10) & PF_EXITING;
}

static bool our_child(pid_t pid)
{
	siginfo_t si;

	return pid > 1 && waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static bool known(const struct agent *a, pid_t pid)
{
	for (size_t i = 0; i < a->top; i++)
		if (a->execs[i].used && a->execs[i].pid == pid)
			return true;
	for (size_t i = 0; i < AGENT_WORKERS_MAX; i++)
		if (a->workers[i] == pid)
			return true;
	return false;
}

/* Until the one that was asked for has answered. */
static int wait_answer(struct agent *a, struct agent_exec *host, uint32_t tag, struct warm_answer *said,
		       struct ucred *who)
{
	struct pollfd p = { .fd = host->warm, .events = POLLIN };

	/*
	 * In several turns: the clock runs while the whole sandbox is paused, and a pause of any length uses up only
	 * one turn.
	 */
	for (unsigned i = 0; i < ANSWER_TURNS;) {
		int r;

		(void)!poll(&p, 1, ANSWER_MS / ANSWER_TURNS);
		r = hear(host->warm, said, who);
		if (r < 0 || (r > 0 && said->tag != tag && ++host->warm_stray > STRAY_MAX)) {
			give_up(a, host);
			return -EPIPE;
		}
		if (r > 0 && said->tag == tag) {
			host->warm_late = 0;
			host->warm_stray = 0;
			return 0;
		}
		i += r == 0;
	}
	if (++host->warm_late >= LATE_MAX)
		give_up(a, host);
	return -ETIMEDOUT;
}

/* Whether it is the one that was asked for. */
static int check(const struct agent *a, const struct frame_exec *x, const struct warm_answer *said,
		 const struct ucred *who, enum frame_stage *stage)
{
	if (said->error) {
		*stage = said->stage < FRAME_STAGE_COUNT && said->stage ? (enum frame_stage)said->stage :
									  FRAME_STAGE_WARM;
		return said->error > 0 && said->error < 4096 ? -said->error : -EIO;
	}
	/*
	 * A process that is no child of ours is left alone: it may be any process. It sees the end of the pipe and
	 * exits.
	 */
	if (!our_child(who->pid) || known(a, who->pid))
		return -ECHILD;
	*stage = FRAME_STAGE_USER;
	if (who->uid != x->uid || who->gid != x->gid) {
		kill(who->pid, SIGKILL);
		return -EPERM;
	}
	return 0;
}

int warm_start(struct agent *a, const struct frame_exec *x, const int stdio[3], int group, pid_t *ret_pid,
	       enum frame_stage *stage)
{
	struct agent_exec *host = find_host(a);
	struct warm_request q = {
		.magic = WARM_MAGIC,
		.tag = a->warm_tag = (a->warm_tag + 1) & INT32_MAX ? (a->warm_tag + 1) & INT32_MAX : 1,
		.flags = (x->flags & FRAME_EXEC_TTY ? WARM_TTY : 0) | (group >= 0 ? WARM_GROUP : 0) |
			 (a->warm_woken ? WARM_SEEDED : 0),
		.nofile = x->nofile,
		.cpu_seconds = x->cpu_seconds,
		.argc = x->argc,
		.envc = x->envc,
	};
	AUTO_CLOSE int words = -1, wait = -1, go = -1;
	struct warm_answer said = { 0 };
	struct ucred who = { 0 };
	int ends[2], r;

	*stage = FRAME_STAGE_WARM;
	if (!host)
		return -ENOENT;
	a->warm_woken = false;
	words = put_words(x, &q);
	r = words < 0 ? words : sys_pipe2(ends, O_CLOEXEC);
	if (r < 0)
		return r;
	wait = ends[0];
	go = ends[1];
	r = fd_send_now(host->warm, &q, sizeof(q), (int[]){ words, wait, stdio[0], stdio[1], stdio[2], group },
			group >= 0 ? 6 : 5);
	if (r == 0)
		r = wait_answer(a, host, q.tag, &said, &who);
	if (r == 0)
		r = check(a, x, &said, &who, stage);
	if (r < 0)
		return r;
	(void)sys_write(go, "g", 1); /* a process that has died already is reaped like any other */
	/*
	 * Checked after the start, since this takes longer than all the rest: a process in the wrong group is killed at
	 * once, and it could have run anything before it answered.
	 */
	*stage = FRAME_STAGE_GROUP;
	if (group >= 0 && !joined(who.pid, group) && !leaving(who.pid)) {
		kill(who.pid, SIGKILL);
		return -EPERM;
	}
	*ret_pid = who.pid;
	return 0;
}
