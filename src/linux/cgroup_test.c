/*
 * On real groups, in a base folder of our own. Runs on version 1 and version 2 hosts and says which one it has. On a
 * hybrid host the version 2 hierarchy has no controllers that limit, but groups, joining, freezing and killing are
 * there, so those tests run on both.
 */
#include "linux/cgroup.h"
#include "base/base.h"
#include "base/clock.h"
#include "linux/cgroup_test.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

static struct cgroup_host unified; /* the second one of a hybrid host; ->version 0 when there is none */

static void find_v2(struct cgroup_mount *m)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[8192];

	m->version = 0;
	while (f && m->version != 2 && fgets(line, sizeof(line), f))
		if (cgroup_parse_mount(line, strcspn(line, "\n"), m) != 1)
			m->version = 0;
	if (f)
		fclose(f);
}

static int dir_of(const struct cgroup_host *h, const struct cgroup *c, enum cgroup_controller id)
{
	return c->dir[h->version == 2 ? 0 : id];
}

/* Tests run in the order of this file, so this is the first, and the check for leftovers is the last. */
TEST(the_host_opens_and_has_controllers)
{
	static struct cgroup_mount m;
	char own[8192];

	snprintf(base, sizeof(base), "cloche-test-%d", (int)getpid());
	CHECK_EQ(cgroup_host_open_as(&host, base, &err), 0);
	printf("# cgroup version %d, controllers 0x%x, swap %s\n", host.version, host.have,
	       host.swap_accounted ? "accounted" : "not accounted");
	CHECK_EQ(host.have & ALL, ALL);
	find_v2(&m);
	if (host.version == 1 && m.version == 2) {
		CHECK(fd_get(AT_FDCWD, "/proc/self/cgroup", own, sizeof(own)) > 0);
		cgroup_host_init(&unified);
		cgroup_v2_take(&unified, &(struct cgroup_seen){ .own = own, .base = base }, &m);
		printf("# and cgroup version 2 beside it, controllers 0x%x\n", unified.have);
		CHECK(unified.have & CGROUP_BIT(CGROUP_FREEZER));
	}
}

TEST(all_groups_together_count_as_one_process_on_each_cpu_unless_somebody_chose)
{
	const char *file = host.version == 1 ? "cpu.shares" : "cpu.weight";
	const unsigned usual = host.version == 1 ? 1024 : 100;
	const int dir = host.base[host.version == 1 ? CGROUP_CPU : 0];
	unsigned long long cpus = (unsigned long long)sysconf(_SC_NPROCESSORS_ONLN), weight = 0;

	CHECK_EQ(fd_get_u64(dir, file, &weight), 0);
	CHECK_EQ(weight, cpus * usual);
	CHECK_EQ(fd_put(dir, file, "77"), 0);
	cgroup_weigh(dir, file, usual, 10000);
	CHECK_EQ(fd_get_u64(dir, file, &weight), 0);
	CHECK_EQ(weight, 77);
	cgroup_weigh(dir, file, 77, cpus > 1 ? 78 : 77); /* never more than the kernel takes */
	CHECK_EQ(fd_get_u64(dir, file, &weight), 0);
	CHECK_EQ(weight, cpus > 1 ? 78 : 77);
}

TEST(who_works_for_the_groups_is_counted_with_them)
{
	char text[4096], want[80];
	int status = -1;
	pid_t pid;

	if (host.version == 2) {
		CHECK_EQ(cgroup_host_join_cpu(&host), -EOPNOTSUPP);
		return;
	}
	snprintf(want, sizeof(want), "/%s\n", base);
	pid = fork();
	if (pid == 0)
		_exit(cgroup_host_join_cpu(&host) == 0 &&
				      fd_get(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) > 0 &&
				      strstr(text, want) ?
			      0 :
			      1);
	CHECK(pid > 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}

static void check_join(const struct cgroup_host *h, unsigned mask)
{
	volatile unsigned *n = shared();
	struct cgroup c;
	pid_t pid;

	CHECK_EQ(cgroup_make(h, "join", mask, &c, &err), 0);
	pid = spawn(h, &c, count_forever, (void *)(uintptr_t)n);
	CHECK(pid > 0);
	CHECK(rises(n));
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (c.dir[i] >= 0)
			CHECK(is_member(c.dir[i], pid));
	CHECK_EQ(c.njoin, h->version == 2 ? 0 : __builtin_popcount(mask));
	CHECK_EQ(clear(h, &c), 0);
	CHECK_EQ(groups(h), 0);
}

TEST(a_child_that_joins_is_a_member_everywhere)
{
	check_join(&host, ALL);
	if (unified.version)
		check_join(&unified, unified.have);
}

static int eat(void *arg)
{
	const size_t len = *(size_t *)arg;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < len; i += 4096)
		((volatile char *)p)[i] = 1;
	return 0;
}

TEST(the_memory_limit_kills_who_takes_too_much_and_counts_it)
{
	struct cgroup_limits l = { .memory = 16 * MIB };
	struct cgroup_stat s;
	struct cgroup c;
	size_t much = 64 * MIB, little = 2 * MIB;
	int status;

	CHECK_EQ(cgroup_make(&host, "oom", CGROUP_BIT(CGROUP_MEMORY), &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &l, &err), 0);
	CHECK_EQ(finish(spawn(&host, &c, eat, &little)), 0);
	CHECK_EQ(cgroup_stat(&host, &c, &s), 0);
	CHECK_EQ(s.oom_kills, 0);
	status = finish(spawn(&host, &c, eat, &much));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK_EQ(cgroup_stat(&host, &c, &s), 0);
	CHECK(s.oom_kills >= 1);
	CHECK(s.memory_peak >= 8 * MIB && s.memory_peak <= 16 * MIB);
	CHECK_EQ(s.pids_peak, 0); /* not in the mask */
	CHECK_EQ(clear(&host, &c), 0);
}

static int fill_file(void *arg)
{
	static char block[64 * KIB];
	int fd = sys_memfd_create("x", 0);

	for (int i = 0; i < 64; i++)
		if (sys_write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			return 1;
	return count_forever(arg);
}

TEST(files_in_memory_are_told_apart)
{
	volatile unsigned *n = shared();
	struct cgroup_stat s;
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "files", CGROUP_BIT(CGROUP_MEMORY), &c, &err), 0);
	CHECK(spawn(&host, &c, fill_file, (void *)(uintptr_t)n) > 0);
	CHECK(rises(n));
	nap_ms(50);
	for (int i = 0; i < 100; i++) { /* the kernel sums memory.stat up every two seconds, or when much has changed */
		CHECK_EQ(cgroup_stat(&host, &c, &s), 0);
		if (s.memory_files >= 4 * MIB)
			break;
		nap_ms(50);
	}
	CHECK(s.memory_files >= 4 * MIB && s.memory_files < 5 * MIB);
	CHECK(s.memory >= s.memory_files);
	CHECK_EQ(clear(&host, &c), 0);
}

TEST(a_memory_limit_can_be_lowered_and_raised_and_allows_no_swap)
{
	const char *plain = host.version == 2 ? "memory.max" : "memory.limit_in_bytes";
	const char *swap = host.version == 2 ? "memory.swap.max" : "memory.memsw.limit_in_bytes";
	const uint64_t sizes[] = { 64 * MIB, 32 * MIB, 128 * MIB, 128 * MIB };
	unsigned long long v;
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "resize", CGROUP_BIT(CGROUP_MEMORY), &c, &err), 0);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .memory = sizes[i] }, &err), 0);
		CHECK_EQ(fd_get_u64(c.dir[CGROUP_MEMORY], plain, &v), 0);
		CHECK_EQ(v, sizes[i]);
		if (host.swap_accounted) {
			CHECK_EQ(fd_get_u64(c.dir[CGROUP_MEMORY], swap, &v), 0);
			CHECK_EQ(v, host.version == 2 ? 0 : sizes[i]);
		}
		/* Version 2 counts sockets as memory. */
		if (host.version == 1) {
			CHECK_EQ(fd_get_u64(c.dir[CGROUP_MEMORY], "memory.kmem.tcp.limit_in_bytes", &v), 0);
			CHECK_EQ(v, sizes[i] / 4);
		}
	}
	CHECK_EQ(clear(&host, &c), 0);
}

static int fork_until_refused(void *arg)
{
	for (int i = 0; i < *(int *)arg; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return errno == EAGAIN ? 42 : 43;
		if (!pid)
			for (;;)
				pause();
	}
	return 0;
}

TEST(the_process_limit_refuses_a_fork_and_counts_it)
{
	struct cgroup_stat s;
	struct cgroup c;
	int tries = 20;

	CHECK_EQ(cgroup_make(&host, "pids", CGROUP_BIT(CGROUP_PIDS), &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .pids = 5 }, &err), 0);
	CHECK_EQ(finish(spawn(&host, &c, fork_until_refused, &tries)), 42 << 8);
	CHECK_EQ(cgroup_stat(&host, &c, &s), 0);
	CHECK_EQ(s.pids, 4);
	CHECK(s.pids_peak == 5 || s.pids_peak == 0);
	CHECK(s.pids_refused >= 1);
	CHECK_EQ(clear(&host, &c), 0);
}

TEST(a_group_is_used_again_only_when_it_has_no_past)
{
	const unsigned mask = CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_CPUACCT);
	size_t much = 64 * MIB, little = 2 * MIB;
	struct cgroup_stat s;
	struct cgroup c;
	int tries = 20, r;

	CHECK_EQ(cgroup_make(&host, "again", mask, &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .memory = 16 * MIB, .pids = 5 }, &err), 0);
	CHECK_EQ(finish(spawn(&host, &c, eat, &little)), 0);
	r = cgroup_recycle(&host, &c);
	CHECK_EQ(r, 0);
	if (r == 0) {
		CHECK_EQ(cgroup_stat(&host, &c, &s), 0);
		CHECK(s.memory_peak < (host.version == 1 ? MIB : 8 * MIB) && s.oom_kills == 0 && s.cpu_usec < 1000);
		CHECK(WIFSIGNALED(finish(spawn(&host, &c, eat, &much)))); /* its limit still holds */
		CHECK_EQ(cgroup_recycle(&host, &c), -EBUSY); /* a process was killed in it */
	}
	CHECK_EQ(clear(&host, &c), 0);
	CHECK_EQ(cgroup_make(&host, "again", mask, &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .pids = 5 }, &err), 0);
	CHECK_EQ(finish(spawn(&host, &c, fork_until_refused, &tries)), 42 << 8);
	CHECK(cgroup_recycle(&host, &c) < 0); /* a fork was refused, and there are members */
	CHECK_EQ(clear(&host, &c), 0);
	/* Version 2 cannot reset the peak of memory, so one that shows is a past, too. */
	little = 24 * MIB;
	CHECK_EQ(cgroup_make(&host, "again", mask, &c, &err), 0);
	CHECK_EQ(finish(spawn(&host, &c, eat, &little)), 0);
	CHECK_EQ(cgroup_recycle(&host, &c), host.version == 1 ? 0 : -EBUSY);
	CHECK_EQ(clear(&host, &c), 0);
}

TEST(a_huge_process_limit_is_taken_as_the_most_the_kernel_knows)
{
	unsigned long long v;
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "huge", CGROUP_BIT(CGROUP_PIDS), &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .pids = UINT32_MAX }, &err), 0);
	CHECK_EQ(fd_get_u64(dir_of(&host, &c, CGROUP_PIDS), "pids.max", &v), 0);
	CHECK_EQ(v, CGROUP_PIDS_MOST);
	CHECK_EQ(clear(&host, &c), 0);
}

static void check_cpu(const struct cgroup *c, unsigned milli, const char *quota, const char *period)
{
	char text[64], both[64];

	CHECK_EQ(cgroup_limit(&host, c, &(struct cgroup_limits){ .cpu_milli = milli }, &err), 0);
	snprintf(both, sizeof(both), "%s %s\n", quota, period);
	if (host.version == 2) {
		CHECK(fd_get(c->dir[0], "cpu.max", text, sizeof(text)) > 0);
		CHECK_STR(text, both);
		return;
	}
	CHECK(fd_get(c->dir[CGROUP_CPU], "cpu.cfs_quota_us", text, sizeof(text)) > 0);
	CHECK(!strncmp(text, quota, strlen(quota)) && text[strlen(quota)] == '\n');
	CHECK(fd_get(c->dir[CGROUP_CPU], "cpu.cfs_period_us", text, sizeof(text)) > 0);
	CHECK(!strncmp(text, period, strlen(period)) && text[strlen(period)] == '\n');
}

TEST(the_cpu_quota_is_exact_down_to_a_thousandth_of_a_core)
{
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "quota", CGROUP_BIT(CGROUP_CPU), &c, &err), 0);
	check_cpu(&c, 500, "50000", "100000");
	check_cpu(&c, 1, "1000", "1000000");
	check_cpu(&c, 2500, "250000", "100000");
	check_cpu(&c, 10, "1000", "100000");
	check_cpu(&c, UINT32_MAX, "100000000", "100000");
	CHECK_EQ(clear(&host, &c), 0);
}

static int spin(void *arg)
{
	const uint64_t until = clock_mono_ns() + *(uint64_t *)arg;

	while (clock_mono_ns() < until)
		;
	return 0;
}

TEST(a_cpu_quota_throttles_and_the_time_is_counted)
{
	const unsigned mask = CGROUP_BIT(CGROUP_CPU) | CGROUP_BIT(CGROUP_CPUACCT);
	uint64_t ns = 500 * 1000000ULL;
	struct cgroup_stat s;
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "spin", mask, &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .cpu_milli = 200 }, &err), 0);
	/* On a busy host it may get so little that nothing has to be kept from it. */
	for (unsigned i = 1; i <= 20; i++) {
		CHECK_EQ(finish(spawn(&host, &c, spin, &ns)), 0);
		CHECK_EQ(cgroup_stat(&host, &c, &s), 0);
		CHECK(s.cpu_usec < i * 300000);
		if (s.cpu_usec > 20000 && s.throttled_usec > 20000)
			break;
	}
	CHECK(s.cpu_usec > 20000);
	CHECK(s.throttled_usec > 20000);
	CHECK_EQ(clear(&host, &c), 0);
}

static void check_freeze(const struct cgroup_host *h)
{
	volatile unsigned *n = shared();
	struct cgroup c;
	unsigned was;

	CHECK_EQ(cgroup_make(h, "freeze", CGROUP_BIT(CGROUP_FREEZER), &c, &err), 0);
	CHECK(spawn(h, &c, count_forever, (void *)(uintptr_t)n) > 0);
	CHECK(rises(n));
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(cgroup_freeze(h, &c, &err), 0);
		was = *n;
		nap_ms(30);
		CHECK_EQ(*n, was);
		CHECK_EQ(cgroup_thaw(h, &c, &err), 0);
		CHECK(rises(n));
	}
	/* And one that is frozen is killed all the same. */
	CHECK_EQ(cgroup_freeze(h, &c, &err), 0);
	CHECK_EQ(clear(h, &c), 0);
	CHECK_EQ(groups(h), 0);
}

TEST(freezing_stops_a_counter_and_thawing_goes_on)
{
	check_freeze(&host);
	if (unified.version)
		check_freeze(&unified);
}

static int bomb(void *arg)
{
	volatile unsigned *n = arg;

	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		++*n;
		if (fork() < 0)
			nap_ms(1);
	}
	return 0;
}

static void check_kill(const struct cgroup_host *h, unsigned mask)
{
	const int pids_before = (int)getpid();
	struct cgroup c;
	int n = 100;

	/* 300: more than one batch. The first generation ends, so its children have no parent that is known here. */
	CHECK_EQ(cgroup_make(h, "kill", mask, &c, &err), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(finish(spawn(h, &c, fork_until_refused, &n)), 0);
	CHECK_EQ(cgroup_kill(h, &c), 0);
	CHECK_EQ(cgroup_kill(h, &c), 0); /* of an empty one */
	CHECK_EQ(cgroup_remove(h, "kill", mask), 0);
	CHECK_EQ(cgroup_kill(h, &c), 0); /* of one that is gone */
	CHECK_EQ(getpid(), pids_before);
	cgroup_done(&c);
}

TEST(kill_leaves_nobody)
{
	check_kill(&host, ALL);
	if (unified.version)
		check_kill(&unified, unified.have);
}

TEST(kill_ends_a_fork_bomb_and_gives_the_process_limit_back)
{
	volatile unsigned *n = shared();
	unsigned long long v;
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "bomb", ALL, &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .pids = 100, .cpu_milli = 500 }, &err), 0);
	CHECK(spawn(&host, &c, bomb, (void *)(uintptr_t)n) > 0);
	CHECK(rises(n));
	nap_ms(20);
	CHECK_EQ(cgroup_kill(&host, &c), 0);
	CHECK_EQ(fd_get_u64(dir_of(&host, &c, CGROUP_PIDS), "pids.max", &v), 0);
	CHECK_EQ(v, 100);
	CHECK_EQ(clear(&host, &c), 0);
}

static int kill_own_group(void *arg)
{
	return cgroup_kill(&host, arg) == -EDEADLK ? 0 : 1;
}

TEST(nobody_kills_itself_by_mistake_on_version_1)
{
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "self", CGROUP_BIT(CGROUP_PIDS), &c, &err), 0);
	/* On version 2 the kernel does the killing, the caller included. */
	if (host.version == 2)
		CHECK_EQ(finish(spawn(&host, &c, kill_own_group, &c)), SIGKILL);
	else
		CHECK_EQ(finish(spawn(&host, &c, kill_own_group, &c)), 0);
	CHECK_EQ(clear(&host, &c), 0);
}

static void check_busy(const struct cgroup_host *h, unsigned mask)
{
	volatile unsigned *n = shared();
	struct cgroup c;

	CHECK_EQ(cgroup_make(h, "busy", mask, &c, &err), 0);
	CHECK(spawn(h, &c, count_forever, (void *)(uintptr_t)n) > 0);
	CHECK(rises(n));
	CHECK_EQ(cgroup_remove(h, "busy", mask), -EBUSY);
	CHECK_EQ(cgroup_remove_wait(h, "busy", mask, 20, &err), -EBUSY);
	CHECK_EQ(err.kind, ERR_TIMEOUT);
	CHECK_CONTAINS(err.msg, "'busy'");
	CHECK(rises(n)); /* its processes still run */
	CHECK_EQ(clear(h, &c), 0);
	CHECK_EQ(cgroup_remove(h, "busy", mask), 0); /* twice is fine */
	CHECK_EQ(groups(h), 0);
}

TEST(a_group_with_a_member_is_busy)
{
	check_busy(&host, ALL);
	if (unified.version)
		check_busy(&unified, unified.have);
}

TEST(children_of_a_group_are_removed_with_it)
{
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "deep", ALL, &c, &err), 0);
	CHECK_EQ(sys_mkdirat(c.dir[0], "a", 0755), 0);
	CHECK_EQ(sys_mkdirat(c.dir[0], "a/b", 0755), 0);
	CHECK_EQ(sys_mkdirat(c.dir[0], "c", 0755), 0);
	cgroup_done(&c);
	CHECK_EQ(cgroup_remove(&host, "deep", ALL), 0);
	CHECK_EQ(groups(&host), 0);
}

TEST(a_child_is_used_again_only_when_it_is_alone_and_has_no_past)
{
	int tries = 20, join;
	struct cgroup c, child;
	char max[16];

	CHECK_EQ(cgroup_make(&host, "heir", CGROUP_BIT(CGROUP_PIDS), &c, &err), 0);
	CHECK_EQ(cgroup_child_recycle(&host, &c, 1) < 0, true);
	join = cgroup_child_make(&host, &c, 1, 0);
	CHECK(join >= 0);
	fd_close(join);
	if (host.version == 1) {
		child = c;
		child.dir[CGROUP_PIDS] = sys_openat(c.dir[CGROUP_PIDS], "x1", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		child.join[0] = cgroup_child_open(&host, &c, 1, 0);
		child.njoin = 1;
		CHECK(child.dir[CGROUP_PIDS] >= 0 && child.join[0] >= 0);
		/* A group in which processes were killed stays closed to others. */
		CHECK_EQ(cgroup_child_kill(&host, &c, 1), 0);
		CHECK_EQ(cgroup_child_recycle(&host, &c, 1), 0);
		CHECK(fd_get(child.dir[CGROUP_PIDS], "pids.max", max, sizeof(max)) > 0);
		CHECK_STR(max, "max\n");
		fd_close(cgroup_child_make(&host, &c, 2, 0));
		CHECK_EQ(cgroup_child_recycle(&host, &c, 1), -EBUSY);
		CHECK_EQ(cgroup_child_remove(&host, &c, 2), 0);
		CHECK_EQ(cgroup_child_remove(&host, &c, 2), -ENOENT); /* one that is ended twice is counted once */
		CHECK_EQ(cgroup_child_recycle(&host, &c, 1), 0);
		CHECK_EQ(fd_put(child.dir[CGROUP_PIDS], "pids.max", "3"), 0);
		CHECK_EQ(finish(spawn(&host, &child, fork_until_refused, &tries)), 42 << 8);
		CHECK_EQ(cgroup_child_recycle(&host, &c, 1), -EBUSY);
		CHECK_EQ(cgroup_child_kill(&host, &c, 1), 0);
		fd_close(child.dir[CGROUP_PIDS]);
		fd_close(child.join[0]);
	} else {
		CHECK_EQ(cgroup_child_recycle(&host, &c, 1), 0);
		fd_close(cgroup_child_make(&host, &c, 2, 0));
		CHECK_EQ(cgroup_child_recycle(&host, &c, 1), -EBUSY);
	}
	CHECK_EQ(clear(&host, &c), 0);
}

static int join_and_fork(void *arg)
{
	const int *join = arg;
	int n = 150;

	return write(*join, "0", 1) == 1 ? fork_until_refused(&n) : 1;
}

/* Frozen ones stay in the list after the signal, as those do that a busy machine gives no time to die. */
TEST(everybody_of_a_child_is_told_also_while_nobody_dies)
{
	const unsigned mask = CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_FREEZER);
	unsigned long long left = 1;
	struct cgroup c;
	int join;

	if (host.version != 1 || (host.have & mask) != mask)
		return; /* cgroup.kill needs no list of members */
	CHECK_EQ(cgroup_make(&host, "told", mask, &c, &err), 0);
	join = cgroup_child_make(&host, &c, 1, 0);
	CHECK(join >= 0);
	CHECK_EQ(finish(spawn(&host, &c, join_and_fork, &join)), 0);
	fd_close(join);
	CHECK_EQ(cgroup_freeze(&host, &c, &err), 0);
	CHECK_EQ(cgroup_child_kill(&host, &c, 1), 0);
	CHECK_EQ(cgroup_thaw(&host, &c, &err), 0);
	for (int i = 0; i < 1000 && left; i++, nap_ms(10))
		CHECK_EQ(fd_get_u64(c.dir[CGROUP_PIDS], "x1/pids.current", &left), 0);
	CHECK_EQ(left, 0);
	CHECK_EQ(clear(&host, &c), 0);
}

TEST(a_name_that_is_taken_is_refused_and_the_first_stays)
{
	struct cgroup c, d;
	unsigned fds;

	CHECK_EQ(cgroup_make(&host, "twice", CGROUP_BIT(CGROUP_FREEZER), &c, &err), 0);
	fds = open_fds();
	CHECK_EQ(cgroup_make(&host, "twice", ALL, &d, &err), -EEXIST);
	CHECK_EQ(err.kind, ERR_CONFLICT);
	CHECK_EQ(open_fds(), fds);
	/* What was made before the one that was taken is gone again, and only that. */
	CHECK_EQ(cgroup_remove(&host, "twice", CGROUP_BIT(CGROUP_FREEZER)), 0);
	CHECK_EQ(groups(&host), 0);
	cgroup_done(&c);
}

TEST(bad_names_are_refused)
{
	static const char *const bad[] = { "",	   ".",	   "..",
					   "a/b",  "/",	   "../x",
					   "a\nb", "_key", "a23456789012345678901234567890123456789012345678" };
	struct cgroup c;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(cgroup_make(&host, bad[i], ALL, &c, &err), -EINVAL);
		CHECK_EQ(cgroup_remove(&host, bad[i], ALL), -EINVAL);
	}
}

TEST(each_tells_every_name_once)
{
	struct cgroup a, b;

	CHECK_EQ(cgroup_make(&host, "one", ALL, &a, &err), 0);
	CHECK_EQ(cgroup_make(&host, "two", CGROUP_BIT(CGROUP_FREEZER), &b, &err), 0);
	CHECK_EQ(groups(&host), 2);
	CHECK_EQ(clear(&host, &a), 0);
	CHECK_EQ(clear(&host, &b), 0);
}

TEST(a_limit_without_its_controller_is_refused_with_a_remedy)
{
	struct cgroup_host poor = host;
	struct cgroup c;

	CHECK_EQ(cgroup_make(&host, "none", CGROUP_BIT(CGROUP_PIDS), &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &(struct cgroup_limits){ .memory = 1 * MIB, .pids = 7 }, &err), -EOPNOTSUPP);
	CHECK_EQ(err.kind, ERR_UNSUPPORTED);
	CHECK_CONTAINS(err.msg, "memory limit: ");
	CHECK_CONTAINS(err.remedy, "--memory 0");
	CHECK_EQ(cgroup_freeze(&host, &c, &err), -EOPNOTSUPP);
	CHECK_EQ(clear(&host, &c), 0);
	poor.have &= ~(CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS));
	CHECK_EQ(cgroup_make(&poor, "none", ALL, &c, &err), -EOPNOTSUPP);
	CHECK_CONTAINS(err.remedy, "remove the limits with --memory 0 --pids 0");
	poor.have = host.have & ~CGROUP_BIT(CGROUP_CPU);
	CHECK_EQ(cgroup_make(&poor, "none", ALL, &c, &err), -EOPNOTSUPP);
	CHECK_CONTAINS(err.msg, "CPU limit: the cpu controller is not available");
	CHECK_CONTAINS(err.remedy, "--cpus 0");
	CHECK_EQ(groups(&host), 0);
}

/* A folder on a disk, and the whole disk's numbers: a partition can't be throttled by itself. */
static const char *find_disk(unsigned *major, unsigned *minor)
{
	static const char *const dirs[] = { "/var/tmp", "/tmp", "." };
	char path[96], text[32];
	struct stat st;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		if (stat(dirs[i], &st))
			continue;
		for (int up = 1; up >= 0; up--) {
			snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%sdev", major(st.st_dev), minor(st.st_dev),
				 up ? "../" : "");
			if (fd_get(AT_FDCWD, path, text, sizeof(text)) > 0 && sscanf(text, "%u:%u", major, minor) == 2)
				return dirs[i];
		}
	}
	return NULL;
}

static int write_disk(void *arg)
{
	static _Alignas(4096) char block[64 * KIB];
	int fd = sys_openat(AT_FDCWD, arg, O_WRONLY | O_TMPFILE | O_DIRECT, 0600);

	return fd >= 0 && sys_write(fd, block, sizeof(block)) == (ssize_t)sizeof(block) ? 0 : 1;
}

TEST(disk_bandwidth_is_limited_and_bytes_are_counted)
{
	struct cgroup_limits l = { .io_bps = 8 * MIB, .io_ndevs = 1 };
	char dir[64], text[256], want[64];
	const char *on_disk;
	struct cgroup_stat s;
	struct cgroup c;

	if (!(host.have & CGROUP_BIT(CGROUP_IO)))
		SKIP("no io controller");
	on_disk = find_disk(&l.io_dev[0].major, &l.io_dev[0].minor);
	if (!on_disk)
		SKIP("no folder to write to is on a disk");
	CHECK_EQ(cgroup_make(&host, "disk", CGROUP_BIT(CGROUP_IO), &c, &err), 0);
	CHECK_EQ(cgroup_limit(&host, &c, &l, &err), 0);
	if (host.version == 2) {
		snprintf(want, sizeof(want), "%u:%u rbps=8388608 wbps=8388608", l.io_dev[0].major, l.io_dev[0].minor);
		CHECK(fd_get(c.dir[0], "io.max", text, sizeof(text)) > 0);
		CHECK_CONTAINS(text, want);
	} else {
		snprintf(want, sizeof(want), "%u:%u 8388608\n", l.io_dev[0].major, l.io_dev[0].minor);
		CHECK(fd_get(c.dir[CGROUP_IO], "blkio.throttle.read_bps_device", text, sizeof(text)) > 0);
		CHECK_STR(text, want);
		CHECK(fd_get(c.dir[CGROUP_IO], "blkio.throttle.write_bps_device", text, sizeof(text)) > 0);
		CHECK_STR(text, want);
	}
	snprintf(dir, sizeof(dir), "%s", on_disk);
	CHECK_EQ(finish(spawn(&host, &c, write_disk, dir)), 0);
	CHECK_EQ(cgroup_stat(&host, &c, &s), 0);
	CHECK(s.io_bytes >= 64 * KIB);
	l.io_ndevs = 0;
	CHECK_EQ(cgroup_limit(&host, &c, &l, &err), -EOPNOTSUPP);
	CHECK_EQ(clear(&host, &c), 0);
}

static int as_nobody(void *arg)
{
	struct cgroup_host h;
	struct cgroup c;

	(void)arg;
	if (sys_setgroups(0, NULL) || sys_setresgid(65534, 65534, 65534) || sys_setresuid(65534, 65534, 65534))
		return 1;
	if (cgroup_host_open_as(&h, base, &err) || h.have)
		return 2;
	if (cgroup_make(&h, "x", CGROUP_BIT(CGROUP_MEMORY), &c, &err) != -EOPNOTSUPP || err.kind != ERR_UNSUPPORTED)
		return 3;
	printf("# as nobody: %s; %s\n", err.msg, err.remedy);
	fflush(stdout);
	if (!strstr(err.remedy, host.version == 2 ? "systemd-run --user --scope -p Delegate=yes" : "run as root"))
		return 4;
	return 0;
}

TEST(without_rights_there_is_no_controller_and_a_remedy)
{
	struct cgroup nowhere;

	cgroup_init(&nowhere);
	CHECK_EQ(finish(spawn(&(struct cgroup_host){ .version = 1 }, &nowhere, as_nobody, NULL)), 0);
}

TEST(controllers_that_share_a_hierarchy_share_its_folder)
{
	const unsigned both = CGROUP_BIT(CGROUP_CPU) | CGROUP_BIT(CGROUP_CPUACCT);
	struct cgroup_host joint = { .version = 1, .have = both };
	const unsigned fds = open_fds();
	struct cgroup c;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		joint.base[i] = -1;
	/* As on hosts with one mount "cpu,cpuacct"; any folder that can have children will do. */
	joint.base[CGROUP_CPU] = joint.base[CGROUP_CPUACCT] =
		sys_openat(host.base[host.version == 2 ? 0 : CGROUP_CPU], ".", O_PATH | O_CLOEXEC, 0);
	if (host.version == 1) {
		CHECK_EQ(cgroup_make(&joint, "joint", both, &c, &err), 0);
		CHECK_EQ(c.njoin, 1);
		CHECK_EQ(c.dir[CGROUP_CPU], c.dir[CGROUP_CPUACCT]);
		CHECK_EQ(clear(&joint, &c), 0);
	}
	CHECK_EQ(groups(&joint), 0);
	cgroup_host_done(&joint);
	CHECK_EQ(open_fds(), fds);
}

/*
 * Delegation: a version 2 group with a member that is this process. It must hand out controllers, so the member moves
 * down. Where version 2 has no controllers (hybrid), no member needs to move.
 */
TEST(an_own_group_with_members_hands_out_what_it_has)
{
	const struct cgroup_host *h = unified.version ? &unified : &host;
	struct cgroup_host below;
	static struct cgroup_mount m;
	volatile unsigned *n = shared();
	char own[96];
	struct cgroup c;
	pid_t pid;

	find_v2(&m);
	if (h->version != 2)
		SKIP("no cgroup version 2 hierarchy is mounted");
	CHECK_EQ(cgroup_make(h, "mine", h->have, &c, &err), 0);
	pid = spawn(h, &c, count_forever, (void *)(uintptr_t)n);
	CHECK(rises(n));
	snprintf(m.root, sizeof(m.root), "/%s/mine", base);
	snprintf(own, sizeof(own), "0::/%s/mine\n", base);
	snprintf(m.point + strlen(m.point), sizeof(m.point) - strlen(m.point), "/%s/mine", base);
	for (int again = 0; again < 2; again++) {
		cgroup_host_init(&below);
		cgroup_v2_take(&below, &(struct cgroup_seen){ .own = own, .base = "inner" }, &m);
		CHECK_EQ(below.have, h->have);
		CHECK_EQ(is_member(c.dir[0], pid), !(h->have & CGROUP_BIT(CGROUP_MEMORY)));
		cgroup_host_done(&below);
		/* the second time, as a process that was moved before */
		snprintf(own, sizeof(own), "0::/%s/mine/%s\n", base, CGROUP_SELF);
	}
	CHECK_EQ(clear(h, &c), 0);
	CHECK_EQ(groups(h), 0);
}

TEST(nothing_is_left_at_the_end)
{
	end_host(&host);
	if (unified.version)
		end_host(&unified);
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1); /* no child either */
}
