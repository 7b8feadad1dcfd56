#include "engine/blank/sweep.h"
#include "base/base.h"
#include "base/test.h"
#include "linux/cgroup_test.h"
#include "warden/warden_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>

static int nap(void *arg)
{
	nap_ms(*(const long *)arg);
	return 0;
}

static void *end_soon(void *arg)
{
	nap_ms(300);
	kill(*(pid_t *)arg, SIGKILL);
	finish(*(pid_t *)arg);
	return NULL;
}

TEST(a_group_whose_last_process_is_dying_is_waited_for)
{
	struct env_opts o = { 0 };
	struct err e = { 0 };
	struct cgroup c;
	struct env v;
	char agent[512], name[16];
	long ms = 60000;
	pthread_t t;
	uint32_t slot;
	pid_t pid;
	int alone;

	/* Another of us would take the slot that is given back, or have us wait for its group. */
	alone = open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_EQ(flock(alone, LOCK_EX), 0);
	CHECK(wt_program("cloche-agent", agent, sizeof(agent)));
	o.agent = agent;
	CHECK_EQ(env_open(&o, &v, &e), 0);
	CHECK_EQ(slots_take(&v.slots, &slot, &e), 0);
	snprintf(name, sizeof(name), "s%u", slot);
	CHECK_EQ(cgroup_make(&v.cgroups, name, v.controllers, &c, &e), 0);
	pid = spawn(&v.cgroups, &c, nap, &ms);
	CHECK(pid > 0);
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		while (c.dir[i] >= 0 && !is_member(c.dir[i], pid))
			nap_ms(1);

	sweep_groups(&v, 1000); /* ours: neither removed nor waited for */
	CHECK_EQ(kill(pid, 0), 0);
	slots_give(&v.slots, slot, -1);
	sweep_groups(&v, 0);
	cgroup_done(&c);
	CHECK_EQ(cgroup_open(&v.cgroups, name, v.controllers, &c), 0);
	cgroup_done(&c);
	CHECK_EQ(pthread_create(&t, NULL, end_soon, &pid), 0);
	/* Once, but another process of the host that sweeps may hold the slot when we look: it is not waited for. */
	for (unsigned i = 0; cgroup_open(&v.cgroups, name, v.controllers, &c) == 0 && i < 100; i++) {
		cgroup_done(&c);
		sweep_groups(&v, 10000);
	}
	pthread_join(t, NULL);
	CHECK_EQ(cgroup_open(&v.cgroups, name, v.controllers, &c), -ENOENT);
	env_done(&v);
	fd_close(alone);
}
