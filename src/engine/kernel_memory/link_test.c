/* The warden's end of cloche-watch, with the real program: its starts and its ends. */
#include "engine/kernel_memory/link.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"
#include "warden/warden_test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

struct seen {
	unsigned again, blind; /* __atomic */
	void *looker;
	struct kernel_subject subject;
	int pidfd;
};

static void no_figures(void *arg, uint64_t id, const struct kernel_figures *f)
{
	(void)arg, (void)id, (void)f;
}

static int add(const struct seen *s)
{
	return kernel_looker_process.add(s->looker, &s->subject, (int[KERNEL_FDS]){ s->pidfd, -1, -1, -1 });
}

static bool no_act(void *arg, uint64_t id, const struct kernel_act *a)
{
	(void)arg, (void)id, (void)a;
	return false;
}

static void again(void *arg)
{
	struct seen *s = arg;

	/* At the first call the maker of the looker does not have it yet. */
	if (__atomic_add_fetch(&s->again, 1, __ATOMIC_SEQ_CST) > 1)
		add(s);
}

static void blind(void *arg)
{
	struct seen *s = arg;

	__atomic_add_fetch(&s->blind, 1, __ATOMIC_SEQ_CST);
}

static struct kernel_looker_opts opts(struct seen *s, const struct cgroup_host *h, int program)
{
	*s = (struct seen){ .subject = { .id = 1, .memory = 64 * MIB, .pid = (uint64_t)getpid(), .group = "none" } };
	s->pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	return (struct kernel_looker_opts){
		.host = h, .net = -1, .percent = 50, .program = program, .sink = { s, no_figures, no_act, again, blind }
	};
}

static const struct cgroup_host nothing = { .version = 1, .base = { -1, -1, -1, -1, -1, -1 } };

/* Returns -1 if there is none, or more than one. */
static pid_t watch_pid(void)
{
	char path[64], text[256], *end;
	long pid = -1;
	DIR *dir = opendir("/proc/self/task");
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/children", d->d_name);
		if (fd_get(AT_FDCWD, path, text, sizeof(text)) > 0)
			pid = strtol(text, &end, 10);
	}
	if (dir)
		closedir(dir);
	return (pid_t)pid;
}

static bool reached(const unsigned *n, unsigned most)
{
	for (unsigned i = 0; i < 1000 && __atomic_load_n(n, __ATOMIC_SEQ_CST) < most; i++)
		poll(NULL, 0, 5);
	return __atomic_load_n(n, __ATOMIC_SEQ_CST) >= most;
}

/* Kills it, and waits until another one runs. */
static bool kill_one(const struct seen *s)
{
	const unsigned before = __atomic_load_n(&s->again, __ATOMIC_SEQ_CST);
	const pid_t pid = watch_pid();

	return pid > 0 && kill(pid, SIGKILL) == 0 && reached(&s->again, before + 1);
}

TEST(without_its_program_nothing_is_watched_and_that_is_an_error)
{
	struct seen s;
	struct kernel_looker_opts o = opts(&s, &nothing, -1);
	struct err e = { 0 };
	void *l = NULL;

	CHECK_EQ(kernel_looker_process.new(&o, &l, &e), -ENOENT);
	CHECK(l == NULL && strstr(e.msg, "cloche-watch is not installed"));
	fd_close(s.pidfd);
}

TEST(a_program_that_does_not_get_ready_is_an_error_and_leaves_nothing)
{
	const unsigned fds = wt_fds(getpid()), children = wt_children(getpid());
	AUTO_CLOSE int program = open("/bin/false", O_PATH | O_CLOEXEC);
	struct seen s;
	struct kernel_looker_opts o = opts(&s, &nothing, program);
	struct err e = { 0 };
	void *l = NULL;

	CHECK(program >= 0);
	CHECK(kernel_looker_process.new(&o, &l, &e) < 0);
	CHECK(l == NULL && strstr(e.msg, "start cloche-watch"));
	fd_close(s.pidfd);
	CHECK_EQ(wt_fds(getpid()), fds + 1);
	CHECK_EQ(wt_children(getpid()), children);
}

TEST(one_that_is_killed_is_started_again_and_told_of_all_it_watched)
{
	const unsigned fds = wt_fds(getpid()), children = wt_children(getpid());
	char path[512];
	int program;
	struct seen s;
	struct kernel_looker_opts o;
	struct err e = { 0 };

	CHECK(wt_program("cloche-watch", path, sizeof(path)));
	program = open(path, O_PATH | O_CLOEXEC);
	o = opts(&s, &nothing, program);
	CHECK_EQ(kernel_looker_process.new(&o, &s.looker, &e), 0);
	CHECK(reached(&s.again, 1));
	CHECK_EQ(add(&s), 0);
	CHECK_EQ(wt_children(getpid()), children + 1);
	for (unsigned i = 0; i < 5; i++)
		CHECK(kill_one(&s));
	CHECK_EQ(s.blind, 0);
	kernel_looker_process.limit(s.looker, 1, 32 * MIB);
	kernel_looker_process.remove(s.looker, 1);
	kernel_looker_process.free(s.looker);
	fd_close(s.pidfd);
	fd_close(program);
	CHECK_EQ(wt_fds(getpid()), fds);
	CHECK_EQ(wt_children(getpid()), children);
}

TEST(where_it_ends_again_and_again_all_are_ended_and_none_is_added)
{
	char path[512];
	int program;
	struct seen s;
	struct kernel_looker_opts o;
	struct err e = { 0 };

	CHECK(wt_program("cloche-watch", path, sizeof(path)));
	program = open(path, O_PATH | O_CLOEXEC);
	o = opts(&s, &nothing, program);
	CHECK_EQ(kernel_looker_process.new(&o, &s.looker, &e), 0);
	CHECK(reached(&s.again, 1));
	for (unsigned i = 0; i < WATCH_LIVES - 1; i++)
		CHECK(kill_one(&s));
	CHECK_EQ(s.blind, 0);
	CHECK_EQ(kill(watch_pid(), SIGKILL), 0);
	CHECK(reached(&s.blind, 1));
	CHECK_EQ(add(&s), -EHOSTDOWN);
	/* The restarts must end. */
	for (unsigned i = 0; i < 150 && add(&s) < 0; i++)
		poll(NULL, 0, 100);
	CHECK_EQ(add(&s), 0);
	CHECK_EQ(s.blind, 1);
	kernel_looker_process.free(s.looker);
	fd_close(s.pidfd);
	fd_close(program);
}
