#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "base/test.h"
#include "engine/kernel_memory/looks.h"
#include "warden/warden_test.h"

static struct warden *open_with(const char *agent, unsigned pool)
{
	struct warden_opts o = { .looker = &kernel_looker_threads,
				 .pool = pool,
				 .env.freezer = true,
				 .env.accounting = true,
				 .env.agent = agent };
	struct warden *w = NULL;
	struct err e = { 0 };

	if (warden_new(&o, &w, &e) < 0)
		printf("# %s\n", e.msg);
	return w;
}

static struct warden *open_warden(unsigned pool)
{
	char agent[512];

	return wt_program("cloche-agent", agent, sizeof(agent)) ? open_with(agent, pool) : NULL;
}

TEST(in_process_a_sandbox_lives_and_leaves_nothing)
{
	unsigned fds = wt_fds(getpid()), children = wt_children(getpid());
	struct warden *w = open_warden(0);
	struct warden_sandbox *s;
	struct sandbox_spec spec;
	struct warden_stat st;
	struct warden_counts n;
	struct err e = { 0 };
	char group[256];

	CHECK(w);
	wt_spec(&spec);
	CHECK_EQ(warden_create(w, &spec, &s, &e), 0);
	CHECK(wt_wait_up(warden_sock(s)));
	CHECK(wt_cgroup(warden_pid(s), group, sizeof(group)));
	CHECK_EQ(warden_stat(w, s, &st), 0);
	CHECK(st.group.pids >= 1);
	CHECK(st.disk_size > 0);
	CHECK_EQ(warden_freeze(w, s, &e), 0);
	CHECK_EQ(warden_thaw(w, s, &e), 0);
	CHECK_EQ(warden_destroy(w, s, &e), 0);
	CHECK(access(group, F_OK) < 0);
	warden_counts(w, &n);
	CHECK(n.made == 1 && n.ended == 1 && n.alive == 0 && n.cleanup_failures == 0);
	warden_free(w);
	CHECK(wt_fds_wait(getpid(), fds) <= fds);
	CHECK_EQ(wt_children(getpid()), children);
}

TEST(an_isolation_that_the_warden_was_not_given_is_refused_and_never_a_container)
{
	struct warden *w = open_warden(0);
	struct warden_sandbox *s = NULL;
	struct sandbox_spec spec;
	struct warden_counts n;
	struct err e = { 0 };

	CHECK(w);
	wt_spec(&spec);
	spec.flags |= SPEC_TIERS & -SPEC_TIERS; /* any one of them */
	spec.limits.memory = 256 * MIB;
	spec.limits.disk = 64 * MIB;
	spec.nmounts = 0;
	CHECK_EQ(warden_create(w, &spec, &s, &e), -EOPNOTSUPP);
	CHECK(e.kind == ERR_UNSUPPORTED && !s);
	warden_counts(w, &n);
	CHECK_EQ(n.made, 0);
	warden_free(w);
}

TEST(freeing_a_warden_ends_what_is_alive_even_frozen)
{
	unsigned fds = wt_fds(getpid()), children = wt_children(getpid());
	struct warden *w = open_warden(2);
	struct warden_sandbox *s[3];
	char group[3][256];
	struct sandbox_spec spec;
	struct err e = { 0 };

	CHECK(w);
	wt_spec(&spec);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(warden_create(w, &spec, &s[i], &e), 0);
		CHECK(wt_wait_up(warden_sock(s[i])));
		CHECK(wt_cgroup(warden_pid(s[i]), group[i], sizeof(group[i])));
	}
	CHECK_EQ(warden_freeze(w, s[1], &e), 0);
	warden_free(w);
	for (int i = 0; i < 3; i++)
		CHECK(access(group[i], F_OK) < 0);
	CHECK(wt_fds_wait(getpid(), fds) <= fds);
	CHECK_EQ(wt_children(getpid()), children);
}

TEST(an_agent_that_never_gets_ready_is_an_error_not_a_wait)
{
	unsigned fds = wt_fds(getpid()), children = wt_children(getpid());
	struct warden *w = open_with("/usr/bin/true", 2);
	struct warden_sandbox *s;
	struct sandbox_spec spec;
	struct warden_counts n;
	struct err e = { 0 };

	CHECK(w);
	wt_spec(&spec);
	for (int i = 0; i < 2; i++) {
		CHECK(warden_create(w, &spec, &s, &e) < 0);
		CHECK_CONTAINS(e.msg, "the agent did not start");
	}
	warden_counts(w, &n);
	CHECK(n.ready == 0 && n.alive == 0 && n.made == 0);
	warden_free(w);
	CHECK(wt_fds_wait(getpid(), fds) <= fds);
	CHECK_EQ(wt_children(getpid()), children);
}

#ifdef CLOCHE_FAULTS
/*
 * Mounts below /sys. Other mounts, which our namespace has copies of, disappear when another process removes their
 * folder.
 */
static unsigned staged(void)
{
	unsigned n = 0;
	char line[4096];
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, " /sys/") != NULL;
	if (f)
		fclose(f);
	return n;
}

/* In a process of its own: it enters a mount namespace and covers /sys. Its exit code is the step that failed. */
static int live_staged(void)
{
	unsigned mounts = 0;
	struct sandbox_spec spec;
	struct warden_counts n;
	struct err e = { 0 };
	struct warden *w;

	setenv("CLOCHE_STAGE", "1", 1);
	w = open_warden(2);
	if (!w)
		return 1;
	wt_spec(&spec);
	for (int i = 0; i < 12; i++) {
		struct warden_sandbox *s;

		if (warden_create(w, &spec, &s, &e) < 0 || !wt_wait_up(warden_sock(s)))
			return 2;
		if (warden_destroy(w, s, &e) < 0)
			return 3;
		if (i == 1)
			mounts = staged();
	}
	if (staged() != mounts)
		return 4;
	warden_counts(w, &n);
	if (n.made != 12 || n.cleanup_failures)
		return 5;
	warden_free(w);
	return 0;
}

TEST(where_mounts_must_be_attached_to_be_stacked_none_stays)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(live_staged());
	CHECK(pid > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

/* With a pool, which `cloche run` does not have: its threads meet the fault, or the create does. */
TEST(any_one_failing_call_with_a_pool_leaves_nothing)
{
	unsigned fds = wt_fds(getpid()), children = wt_children(getpid()), failed = 0;
	struct warden *w = open_warden(1);
	struct sandbox_spec spec;
	struct warden_counts n;
	struct err e = { 0 };

	CHECK(w);
	wt_spec(&spec);
	warden_pool_wait(w, 1);
	for (unsigned id = 0; id < SYSID_COUNT; id++) {
		/* The program must not continue without its own network namespace, and does not. */
		if (id == SYSID_setns)
			continue;
		for (unsigned nth = 1; nth <= 3; nth++) {
			struct warden_sandbox *s = NULL;
			unsigned calls = sys_test_count((enum sys_id)id);
			int r;

			sys_test_fail((enum sys_id)id, EIO, nth);
			r = warden_create(w, &spec, &s, &e);
			failed += r < 0;
			if (r == 0) {
				wt_wait_up(warden_sock(s));
				warden_destroy(w, s, &e);
			}
			warden_pool_wait(w, 1);
			sys_test_fail((enum sys_id)id, 0, 0);
			if (sys_test_count((enum sys_id)id) == calls)
				break; /* not used here at all */
		}
	}
	for (int i = 0; i < 200; i++) {
		warden_counts(w, &n);
		if (n.ready == 1 && !n.cleaning)
			break;
		wt_sleep_ms(10);
	}
	CHECK(failed > 10);
	CHECK_EQ(n.alive, 0);
	CHECK_EQ(n.ready, 1);
	CHECK_EQ(wt_children(getpid()), children + 1);
	warden_free(w);
	CHECK(wt_fds_wait(getpid(), fds) <= fds);
	CHECK_EQ(wt_children(getpid()), children);
}
#endif
