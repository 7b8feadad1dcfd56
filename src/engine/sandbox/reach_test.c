/*
 * What a taken-over API process can do with what the warden gives it. A helper has its user, no capabilities and the same
 * descriptors; the messages are sent as the API process would. A process of the host, outside of all sandboxes, must not
 * notice.
 */
#include "base/base.h"
#include "base/test.h"
#include "engine/sandbox/persist_test.h"

#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#define API_UID 61987U
#define HELD 5U

struct scene {
	struct wt w;
	struct client_sandbox s;
	struct kt_peer p;
	int held[HELD]; /* the agent's socket, the pidfd, what groups are joined by */
	uint32_t group;
	pid_t victim;
	char before[4096]; /* the victim's groups */
};

static bool groups_of(pid_t pid, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	return fd_get(AT_FDCWD, path, text, size) > 0;
}

static bool scene_begin(struct scene *x)
{
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	*x = (struct scene){ 0 };
	wt_spec(&spec);
	kt_fresh();
	if (!wt_open(&x->w, kt_args()) || client_create(x->w.client, &spec, &x->s, &e) < 0)
		return false;
	kt_open(&x->p, TAKE_FD(x->s.sock));
	if (!kt_wait(&x->p, FRAME_UP, 0, &f, fds) ||
	    client_group_for(x->w.client, x->s.handle, 1000, &x->group, &x->held[3], &x->held[4], &e) < 0)
		return false;
	x->held[0] = x->p.sock;
	x->held[1] = x->s.pidfd;
	x->held[2] = x->s.group;
	x->victim = fork();
	if (x->victim == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return x->victim > 0 && groups_of(x->victim, x->before, sizeof(x->before));
}

static bool scene_end(struct scene *x)
{
	struct err e = { 0 };
	bool ok = kill(x->victim, SIGKILL) == 0 && waitpid(x->victim, NULL, 0) == x->victim;

	fd_close(x->held[3]);
	fd_close(x->held[4]);
	kt_close(&x->p);
	ok = client_destroy(x->w.client, x->s.handle, &e) == 0 && wt_gone(x->s.pidfd, 30000) && kt_settled(&x->w) && ok;
	client_sandbox_done(&x->s);
	ok = wt_stop(&x->w) == 0 && ok;
	kt_remove_state();
	return ok;
}

static bool untouched(const struct scene *x)
{
	char now[4096];
	siginfo_t si = { 0 };

	return waitid(P_PID, (id_t)x->victim, &si, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0 && si.si_pid == 0 &&
	       groups_of(x->victim, now, sizeof(now)) && !strcmp(now, x->before);
}

/* Groups that can be had are ended with what is in them, as a timeout of an exec does. */
static bool kill_groups(struct scene *x)
{
	struct err e = { 0 };

	return client_group_kill(x->w.client, x->s.handle, 1, &e) == 0 &&
	       client_group_kill(x->w.client, x->s.handle, x->group, &e) == 0;
}

/* Runs @fn as the API's user and returns what it does: 0, or the number of what went through. */
static int as_api(const struct scene *x, int (*fn)(const struct scene *))
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		if (setgroups(0, NULL) < 0 || setresgid(API_UID, API_UID, API_UID) < 0 ||
		    setresuid(API_UID, API_UID, API_UID) < 0)
			_exit(99);
		_exit(fn(x));
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static bool writes(int fd, pid_t pid)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%d", (int)pid);

	return write(fd, text, (size_t)n) == n;
}

static int move_others(const struct scene *x)
{
	const pid_t targets[] = { x->victim, getppid(), x->w.pid, 1, 0 };

	for (unsigned i = 2; i < HELD; i++)
		for (unsigned k = 0; k < ARRAY_LEN(targets); k++)
			if (writes(x->held[i], targets[k]))
				return 1 + (int)(i * 10 + k);
	return 0;
}

static int open_again(const struct scene *x)
{
	for (unsigned i = 1; i < HELD; i++) {
		char path[64];
		int fd;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", x->held[i]);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 || open(path, O_WRONLY | O_CLOEXEC) >= 0)
			return 1 + (int)i;
		snprintf(path, sizeof(path), "/proc/self/fd/%d/..", x->held[i]);
		if (open(path, O_PATH | O_CLOEXEC) >= 0)
			return 11 + (int)i;
	}
	return 0;
}

static int use_pidfd(const struct scene *x)
{
	const int spaces[] = { CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWCGROUP };
	const int fd = x->held[1];

	if (syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0)
		return 1;
	if (syscall(SYS_pidfd_getfd, fd, 3, 0) >= 0)
		return 2;
	for (unsigned i = 0; i < ARRAY_LEN(spaces); i++)
		if (setns(fd, spaces[i]) == 0)
			return 3 + (int)i;
	return 0;
}

TEST(the_apis_user_cannot_move_a_process_that_is_not_in_the_sandbox)
{
	struct scene x;

	CHECK(scene_begin(&x));
	CHECK_EQ(as_api(&x, move_others), 0);
	CHECK(kill_groups(&x));
	CHECK(untouched(&x));
	CHECK(wt_alive(&x.w));
	CHECK(scene_end(&x));
}

/*
 * The opener of the descriptors counts, so not even root moves foreign processes with them: the kernel does not check
 * the writer.
 */
TEST(the_descriptors_move_no_stranger_whoever_writes)
{
	struct scene x;
	char now[4096];

	CHECK(scene_begin(&x));
	for (unsigned i = 2; i < HELD; i++)
		CHECK(!writes(x.held[i], x.victim));
	CHECK(kill_groups(&x));
	CHECK(groups_of(x.victim, now, sizeof(now)) && !strcmp(now, x.before));
	CHECK(untouched(&x));
	CHECK(scene_end(&x));
}

TEST(the_descriptors_cannot_be_opened_again_with_more_rights)
{
	struct scene x;

	CHECK(scene_begin(&x));
	CHECK_EQ(as_api(&x, open_again), 0);
	CHECK(scene_end(&x));
}

TEST(the_pidfd_signals_nobody_and_opens_no_namespace)
{
	struct scene x;

	CHECK(scene_begin(&x));
	CHECK_EQ(as_api(&x, use_pidfd), 0);
	CHECK(!wt_gone(x.s.pidfd, 0));
	CHECK(scene_end(&x));
}

TEST(commands_still_join_the_group_they_are_given)
{
	struct scene x;
	struct kt_pipes a, b;
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	CHECK(scene_begin(&x));
	CHECK(kt_exec(&x.p, 1, "echo in; exec sleep 1000", x.s.group, &a));
	CHECK(kt_exec(&x.p, 2, "echo in; exec sleep 1000", x.held[3], &b));
	/* reports a failed start */
	CHECK(kt_send(&x.p, FRAME_PING, 7, NULL, 0, NULL, 0) && kt_wait(&x.p, FRAME_PONG, 7, &f, fds));
	CHECK(kt_reads(a.out, "in\n") && kt_reads(b.out, "in\n"));
	CHECK_EQ(client_group_kill(x.w.client, x.s.handle, 1, &e), 0);
	CHECK(kt_exited(&x.p, 1, SIGKILL));
	CHECK_EQ(client_group_kill(x.w.client, x.s.handle, x.group, &e), 0);
	CHECK(kt_exited(&x.p, 2, SIGKILL));
	kt_pipes_close(&a);
	kt_pipes_close(&b);
	CHECK(untouched(&x));
	CHECK(scene_end(&x));
}

/* Of a command inside: what it is, then what becomes of it when it is set back. */
TEST(commands_are_ended_before_the_daemon_when_the_host_runs_out_of_memory)
{
	static const char script[] =
		"cd /proc/self; cat oom_score_adj; echo 0 >oom_score_adj; echo -900 >oom_score_adj; "
		"sh -c 'echo = $(cat /proc/self/oom_score_adj)'; sleep 1000";
	const bool fixed = prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1;
	struct kt_pipes a;
	struct scene x;

	CHECK(scene_begin(&x));
	CHECK(kt_exec(&x.p, 1, script, x.s.group, &a));
	/*
	 * Without CAP_SYS_RESOURCE in the initial user namespace the score cannot be fixed; no process gets below the
	 * present one.
	 */
	CHECK(kt_reads(a.out, fixed ? "500\n= 500\n" : "500\n= 0\n"));
	kt_pipes_close(&a);
	CHECK(scene_end(&x));
}
