#include "linux/sched_slice.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sys_sched_attr now(void)
{
	struct sys_sched_attr a = { 0 };

	a.policy = ~0U; /* no policy: what follows says so */
	sys_sched_getattr(&a);
	return a;
}

TEST(a_long_slice_is_inherited_and_given_back_and_changes_nothing_else)
{
	const struct sys_sched_attr before = now();
	int status = -1;
	pid_t pid;

	CHECK_EQ(before.policy, SCHED_OTHER);
	/* The nice value must stay as it is: lowering it back would need a right. */
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, before.nice < 19 ? before.nice + 1 : 19), 0);
	CHECK_EQ(sched_slice_long(), 0);
	/* Kernels before 6.12 have one slice for all, and report 0. */
	CHECK_EQ(now().runtime, before.runtime ? SLICE_LONG_NS : 0);
	pid = fork();
	if (pid == 0) {
		const struct sys_sched_attr mine = now();
		const int nice = mine.nice, r = sched_slice_usual();

		_exit(mine.runtime == (before.runtime ? SLICE_LONG_NS : 0) && r == 0 &&
				      now().runtime == before.runtime && now().nice == nice ?
			      0 :
			      1);
	}
	CHECK(pid > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(sched_slice_usual(), 0);
	CHECK_EQ(now().runtime, before.runtime);
	CHECK_EQ(now().nice, before.nice < 19 ? before.nice + 1 : 19);
}

TEST(a_short_slice_is_short)
{
	struct sys_sched_attr before = now();

	CHECK_EQ(sched_slice_short(), 0);
	CHECK_EQ(now().runtime, before.runtime ? SLICE_SHORT_NS : 0);
	CHECK_EQ(now().nice, before.nice);
	CHECK_EQ(sys_sched_setattr(&before), 0);
}

TEST(a_slice_that_somebody_else_chose_stays)
{
	struct sys_sched_attr a = now();
	const uint64_t chosen = a.runtime ? 5000000 : 0;

	a.runtime = chosen;
	CHECK_EQ(sys_sched_setattr(&a), 0);
	CHECK_EQ(sched_slice_usual(), 0);
	CHECK_EQ(now().runtime, chosen);
}
