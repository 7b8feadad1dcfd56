/* System calls that fail while groups are made, limited and frozen: a clean error each time, and nothing left. */
#include "linux/cgroup.h"
#include "base/base.h"
#include "linux/cgroup_test.h"

#ifndef CLOCHE_FAULTS
#error "this test needs a build in which system calls can be made to fail"
#endif

TEST(the_host_opens)
{
	snprintf(base, sizeof(base), "cloche-test-%d", (int)getpid());
	CHECK_EQ(cgroup_host_open_as(&host, base, &err), 0);
	printf("# cgroup version %d, controllers 0x%x\n", host.version, host.have);
	CHECK_EQ(host.have & ALL, ALL);
}

TEST(a_make_that_fails_at_any_step_leaves_nothing)
{
	static const enum sys_id ids[] = { SYSID_mkdirat, SYSID_openat };
	const unsigned fds = open_fds();
	struct cgroup c;

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		const unsigned before = sys_test_count(ids[i]);
		unsigned steps;

		CHECK_EQ(cgroup_make(&host, "good", ALL, &c, &err), 0);
		steps = sys_test_count(ids[i]) - before;
		CHECK_EQ(clear(&host, &c), 0);
		CHECK(steps >= 1);
		for (unsigned n = 1; n <= steps; n++) {
			sys_test_fail(ids[i], ENOSPC, n);
			CHECK_EQ(cgroup_make(&host, "bad", ALL, &c, &err), -ENOSPC);
			CHECK_EQ(groups(&host), 0);
			CHECK_EQ(open_fds(), fds);
		}
	}
}

TEST(a_limit_that_fails_at_any_step_says_so)
{
	static const enum sys_id ids[] = { SYSID_openat, SYSID_write };
	struct cgroup_limits l = { .memory = 64 * MIB, .pids = 5, .cpu_milli = 100 };
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "fail", ALL, &c, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		const unsigned before = sys_test_count(ids[i]);
		unsigned steps;

		CHECK_EQ(cgroup_limit(&host, &c, &l, &err), 0);
		steps = sys_test_count(ids[i]) - before;
		CHECK(steps >= 4);
		for (unsigned n = 1; n <= steps; n++) {
			sys_test_fail(ids[i], EIO, n);
			CHECK_EQ(cgroup_limit(&host, &c, &l, &err), -EIO);
			CHECK(err.msg[0]);
		}
	}
	CHECK_EQ(clear(&host, &c), 0);
}

TEST(opening_the_host_fails_cleanly_at_any_step)
{
	static const enum sys_id ids[] = { SYSID_openat, SYSID_read, SYSID_mkdirat, SYSID_write };
	const unsigned fds = open_fds();
	struct cgroup_host h;

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		const unsigned before = sys_test_count(ids[i]);
		unsigned steps;

		CHECK_EQ(cgroup_host_open_as(&h, base, &err), 0);
		cgroup_host_done(&h);
		steps = sys_test_count(ids[i]) - before;
		for (unsigned n = 1; n <= steps; n++) {
			int r;

			sys_test_fail(ids[i], EACCES, n);
			r = cgroup_host_open_as(&h, base, &err);
			CHECK(r == 0 || r == -EACCES);
			if (!r)
				cgroup_host_done(&h);
			CHECK_EQ(open_fds(), fds);
		}
		sys_test_fail(ids[i], 0, 0);
	}
	CHECK_EQ(cgroup_host_open_as(&h, base, &err), 0);
	CHECK_EQ(h.have, host.have);
	cgroup_host_done(&h);
}

TEST(a_group_that_will_not_freeze_is_thawed_again)
{
	volatile unsigned *n = shared();
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "stuck", ALL, &c, &err), 0);
	CHECK(spawn(&host, &c, count_forever, (void *)(uintptr_t)n) > 0);
	CHECK(rises(n));
	sys_test_fail(SYSID_read, EIO, 1);
	CHECK_EQ(cgroup_freeze(&host, &c, &err), -EIO);
	CHECK(rises(n));
	CHECK_EQ(clear(&host, &c), 0);
}

TEST(nothing_is_left_at_the_end)
{
	end_host(&host);
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
}
