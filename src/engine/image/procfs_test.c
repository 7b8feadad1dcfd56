#include "engine/image/procfs.h"
#include "base/base.h"
#include "base/test.h"

#include <sched.h>

static unsigned host(void)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	return (unsigned)CPU_COUNT(&set);
}

TEST(cpus_are_the_quota_rounded_up_but_never_more_than_there_are)
{
	CHECK_EQ(procfs_cpus(0), host());
	CHECK_EQ(procfs_cpus(10), 1);
	CHECK_EQ(procfs_cpus(1000), 1);
	CHECK_EQ(procfs_cpus(1001), host() < 2 ? 1 : 2);
	CHECK_EQ(procfs_cpus(4000000), host());
}

TEST(a_mask_holds_as_many_as_asked_of_those_we_may_use)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	CHECK(procfs_cpu_mask(host(), 0) == 0); /* all: leave */
	for (uint32_t seed = 0; seed < 2 * host(); seed++)
		for (unsigned n = 1; n < host(); n++) {
			uint64_t mask = procfs_cpu_mask(n, seed);

			CHECK_EQ(__builtin_popcountll(mask), n);
			for (unsigned c = 0; c < 64; c++)
				CHECK(!(mask & (1ULL << c)) || CPU_ISSET(c, &set));
		}
}

TEST(meminfo_tells_the_limit_and_what_is_left)
{
	char text[2048];
	struct procfs_memory m = {
		.limit = 64 * MIB, .used = 24 * MIB, .cache = 12 * MIB, .active_file = 3 * MIB, .inactive_file = 5 * MIB
	};
	const size_t n = procfs_meminfo(text, sizeof(text), &m);

	CHECK_EQ(n, strlen(text));
	CHECK_CONTAINS(text, "MemFree:           40960 kB\n");
	CHECK_CONTAINS(text, "Cached:            12288 kB\n");
	CHECK_CONTAINS(text, "MemTotal:          65536 kB\n");
	CHECK_CONTAINS(text, "MemAvailable:      49152 kB\n");
	CHECK_CONTAINS(text, "SwapTotal:             0 kB\n");
	m = (struct procfs_memory){ .limit = 64 * MIB, .used = 65 * MIB };
	CHECK_EQ(procfs_meminfo(text, sizeof(text), &m), n); /* one is written over the other */
	CHECK_CONTAINS(text, "MemAvailable:          0 kB\n");
	CHECK(procfs_meminfo(text, 40, &m) < 40);
}

TEST(cpu_max_is_what_the_groups_are_given)
{
	char text[64];

	CHECK_EQ(procfs_cpu_max(text, sizeof(text), 1500), strlen("150000 100000\n"));
	CHECK_CONTAINS(text, "150000 100000\n");
	procfs_cpu_max(text, sizeof(text), 0);
	CHECK_CONTAINS(text, "max 100000\n");
	procfs_cpu_max(text, sizeof(text), 5);
	CHECK_CONTAINS(text, "5000 1000000\n");
}

TEST(stat_has_a_line_for_each_cpu)
{
	char text[512];
	size_t n = procfs_stat(text, sizeof(text), 2);

	CHECK_EQ(n, strlen(text));
	CHECK(!strncmp(text, "cpu  ", 5));
	CHECK_CONTAINS(text, "\ncpu0 ");
	CHECK_CONTAINS(text, "\ncpu1 ");
	CHECK(!strstr(text, "cpu2"));
	CHECK_CONTAINS(text, "\nbtime ");
	CHECK(procfs_stat(text, 128, 1000) < 128);
}

TEST(online_is_a_range)
{
	char text[32];

	procfs_online(text, sizeof(text), 1);
	CHECK_STR(text, "0\n");
	procfs_online(text, sizeof(text), 4);
	CHECK_STR(text, "0-3\n");
}

TEST(cpuinfo_is_cut_and_numbered_anew)
{
	static const char in[] = "processor\t: 3\nmodel\t: x\n\nprocessor\t: 7\nmodel\t: y\n\nprocessor\t: 9\n\n";
	char out[256] = { 0 };
	size_t n = procfs_cpuinfo(in, out, sizeof(out), 2);

	out[n] = '\0';
	CHECK_STR(out, "processor\t: 0\nmodel\t: x\n\nprocessor\t: 1\nmodel\t: y\n\n");
	n = procfs_cpuinfo(in, out, 40, 2); /* what does not fit is left out whole */
	out[n] = '\0';
	CHECK_EQ(n, 0 + strlen("processor\t: 0\nmodel\t: x\n\n") * (n > 0));
	n = procfs_cpuinfo("no end", out, sizeof(out), 1);
	CHECK_EQ(n, 0);
}
