#include "linux/cgroup_parse.h"
#include "base/base.h"
#include "base/test.h"
#include "linux/cgroup.h"

static struct cgroup_mount m;

static int mount(const char *line)
{
	memset(&m, 0x55, sizeof(m));
	return cgroup_parse_mount(line, strlen(line), &m);
}

TEST(a_v1_mount_names_its_controllers)
{
	CHECK_EQ(mount("32 31 0:29 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"), 1);
	CHECK_EQ(m.version, 1);
	CHECK_EQ(m.controllers, CGROUP_BIT(CGROUP_MEMORY));
	CHECK_STR(m.root, "/");
	CHECK_STR(m.point, "/sys/fs/cgroup/memory");
}

TEST(a_joint_mount_names_both_controllers)
{
	CHECK_EQ(mount("32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct"),
		 1);
	CHECK_EQ(m.controllers, CGROUP_BIT(CGROUP_CPU) | CGROUP_BIT(CGROUP_CPUACCT));
}

TEST(blkio_is_the_io_controller_and_named_hierarchies_have_none)
{
	CHECK_EQ(mount("1 2 0:3 / /b rw - cgroup cgroup rw,blkio"), 1);
	CHECK_EQ(m.controllers, CGROUP_BIT(CGROUP_IO));
	CHECK_EQ(mount("1 2 0:3 / /s rw - cgroup cgroup rw,name=memory"), 1);
	CHECK_EQ(m.controllers, 0);
	CHECK_EQ(mount("1 2 0:3 / /s rw - cgroup cgroup rw,memory2,xmemory,mem"), 1);
	CHECK_EQ(m.controllers, 0);
}

TEST(a_v2_mount_is_seen_and_other_filesystems_are_not)
{
	CHECK_EQ(mount("41 31 0:38 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup2 rw,nsdelegate"), 1);
	CHECK_EQ(m.version, 2);
	CHECK_STR(m.root, "/docker/x");
	CHECK_EQ(m.controllers, 0);
	CHECK_EQ(mount("41 31 0:38 / /sys/fs/cgroup rw - tmpfs cgroup2 rw,memory"), 0);
	CHECK_EQ(mount("41 31 0:38 / /x rw - cgroup3 cgroup rw,memory"), 0);
}

TEST(escapes_in_paths_are_undone)
{
	CHECK_EQ(mount("1 2 0:3 /a\\134b /my\\040cg\\011x rw - cgroup cgroup rw,pids"), 1);
	CHECK_STR(m.root, "/a\\b");
	CHECK_STR(m.point, "/my cg\tx");
	CHECK_EQ(mount("1 2 0:3 / /a\\04 rw - cgroup cgroup rw,pids"), 1);
	CHECK_STR(m.point, "/a\\04");
	CHECK_EQ(mount("1 2 0:3 / /a\\000b rw - cgroup cgroup rw,pids"), -EINVAL);
}

TEST(broken_lines_are_refused)
{
	static const char *const bad[] = {
		"",
		" ",
		"-",
		"cgroup",
		"1 2 0:3 / /x rw",
		"1 2 0:3 / /x rw -",
		"1 2 0:3 / /x rw - cgroup",
		"1 2 0:3 / /x rw - cgroup cgroup",
		"1 2 0:3 / x rw - cgroup cgroup rw,memory",
		"1 2 0:3  /x rw - cgroup cgroup rw,memory",
		"- - - - - - cgroup cgroup rw,memory",
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (mount(bad[i]) != -EINVAL)
			TEST_FAIL("'%s' gives %d", bad[i], mount(bad[i]));
}

TEST(a_dash_as_mount_point_is_not_the_separator)
{
	CHECK_EQ(mount("1 2 0:3 / - rw - cgroup cgroup rw,memory"), -EINVAL); /* not absolute */
	CHECK_EQ(mount("1 2 0:3 / /- - - cgroup cgroup rw,memory"), 1);
	CHECK_STR(m.point, "/-");
}

TEST(a_path_that_does_not_fit_is_refused_and_one_that_just_fits_is_not)
{
	char line[2 * CGROUP_PATH_MAX], path[CGROUP_PATH_MAX + 1];

	memset(path, 'p', sizeof(path));
	path[0] = '/';
	path[CGROUP_PATH_MAX] = '\0';
	snprintf(line, sizeof(line), "1 2 0:3 / %s rw - cgroup cgroup rw,memory", path);
	CHECK_EQ(mount(line), -ENAMETOOLONG);
	path[CGROUP_PATH_MAX - 1] = '\0';
	snprintf(line, sizeof(line), "1 2 0:3 / %s rw - cgroup cgroup rw,memory", path);
	CHECK_EQ(mount(line), 1);
	CHECK_STR(m.point, path);
}

#define OWN "9:name=systemd:/\n8:pids:/p\n4:memory:/a:b/c\n2:cpu,cpuacct:/both\n0::/unified\n"

TEST(our_own_group_is_found_in_each_hierarchy)
{
	char path[64];

	CHECK_EQ(cgroup_parse_own(OWN, "memory", path, sizeof(path)), 0);
	CHECK_STR(path, "/a:b/c");
	CHECK_EQ(cgroup_parse_own(OWN, "cpu", path, sizeof(path)), 0);
	CHECK_STR(path, "/both");
	CHECK_EQ(cgroup_parse_own(OWN, "cpuacct", path, sizeof(path)), 0);
	CHECK_STR(path, "/both");
	CHECK_EQ(cgroup_parse_own(OWN, "", path, sizeof(path)), 0);
	CHECK_STR(path, "/unified");
	CHECK_EQ(cgroup_parse_own(OWN, "freezer", path, sizeof(path)), -ENOENT);
	CHECK_EQ(cgroup_parse_own(OWN, "systemd", path, sizeof(path)), -ENOENT);
	CHECK_EQ(cgroup_parse_own("0::/only", "memory", path, sizeof(path)), -ENOENT);
}

TEST(a_broken_own_group_is_refused)
{
	char path[8];

	CHECK_EQ(cgroup_parse_own("", "memory", path, sizeof(path)), -ENOENT);
	CHECK_EQ(cgroup_parse_own(":::::", "", path, sizeof(path)), -ENOENT);
	CHECK_EQ(cgroup_parse_own("4:memory", "memory", path, sizeof(path)), -ENOENT);
	CHECK_EQ(cgroup_parse_own("4:memory:", "memory", path, sizeof(path)), -EINVAL);
	CHECK_EQ(cgroup_parse_own("4:memory:../x", "memory", path, sizeof(path)), -EINVAL);
	CHECK_EQ(cgroup_parse_own("4:memory:/1234567", "memory", path, sizeof(path)), -ENAMETOOLONG);
	CHECK_EQ(cgroup_parse_own("4:memory:/123456", "memory", path, sizeof(path)), 0);
	CHECK_EQ(cgroup_parse_own("7::/named", "", path, sizeof(path)), -ENOENT);
}

TEST(a_group_is_taken_relative_to_what_the_mount_shows)
{
	CHECK_STR(cgroup_parse_below("/", "/"), "");
	CHECK_STR(cgroup_parse_below("/", "/a/b"), "/a/b");
	CHECK_STR(cgroup_parse_below("/a", "/a/b"), "/b");
	CHECK_STR(cgroup_parse_below("/a", "/a"), "");
	CHECK(!cgroup_parse_below("/a", "/ab"));
	CHECK(!cgroup_parse_below("/a", "/"));
	CHECK(!cgroup_parse_below("/", "/../x"));
	CHECK(!cgroup_parse_below("/", "/x/.."));
	CHECK_STR(cgroup_parse_below("/", "/..x/y.."), "/..x/y..");
}

TEST(a_number_is_found_by_its_key)
{
	uint64_t v = 7;

	CHECK_EQ(cgroup_parse_kv("shmem_x 1\nshmem 2\ntotal_shmem 3\n", "shmem", &v), 0);
	CHECK_EQ(v, 2);
	CHECK_EQ(cgroup_parse_kv("a 1\nmax 18446744073709551615", "max", &v), 0);
	CHECK(v == UINT64_MAX);
	CHECK_EQ(cgroup_parse_kv("254:0 Total 5\nTotal 9\n", "Total", &v), 0);
	CHECK_EQ(v, 9);
}

TEST(a_bad_number_is_refused_and_nothing_is_written)
{
	uint64_t v = 7;

	CHECK_EQ(cgroup_parse_kv("max 18446744073709551616", "max", &v), -ERANGE);
	CHECK_EQ(cgroup_parse_kv("max -1", "max", &v), -EINVAL);
	CHECK_EQ(cgroup_parse_kv("max 1x", "max", &v), -EINVAL);
	CHECK_EQ(cgroup_parse_kv("max ", "max", &v), -EINVAL);
	CHECK_EQ(cgroup_parse_kv("max", "max", &v), -ENOENT);
	CHECK_EQ(cgroup_parse_kv("", "max", &v), -ENOENT);
	CHECK_EQ(cgroup_parse_kv(" max 1", "max", &v), -ENOENT);
	CHECK_EQ(v, 7);
}

TEST(io_of_all_devices_is_summed)
{
	CHECK_EQ(cgroup_parse_io_stat("8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5\n8:16 rbytes=10\n254:0 \n"), 13);
	CHECK_EQ(cgroup_parse_io_stat(""), 0);
	CHECK_EQ(cgroup_parse_io_stat("8:0 rbytes= wbytes=x xrbytes=5 rbytes"), 0);
	CHECK(cgroup_parse_io_stat("8:0 rbytes=18446744073709551615 wbytes=2") == UINT64_MAX);
}

TEST(words_are_whole_words)
{
	CHECK(cgroup_parse_has("cpuset cpu io memory\n", "cpu"));
	CHECK(cgroup_parse_has("memory\n", "memory"));
	CHECK(!cgroup_parse_has("cpuset memory\n", "cpu"));
	CHECK(!cgroup_parse_has("", "cpu"));
	CHECK(!cgroup_parse_has("  \n\n", ""));
}

TEST(swap_is_seen_when_there_is_any)
{
	CHECK(!cgroup_parse_swaps("Filename\tType\tSize\tUsed\tPriority\n"));
	CHECK(!cgroup_parse_swaps(""));
	CHECK(cgroup_parse_swaps("Filename\tType\n/dev/vdb partition 1 0 -2\n"));
}

TEST(process_numbers_come_line_by_line_and_a_cut_one_is_left_out)
{
	pid_t p[4] = { -1, -1, -1, -1 };

	CHECK_EQ(cgroup_parse_pids("12\n345\n67", 9, p, 4), 2);
	CHECK_EQ(p[0], 12);
	CHECK_EQ(p[1], 345);
	CHECK_EQ(p[2], -1);
	CHECK_EQ(cgroup_parse_pids("0\n-5\n99999999999\n\n8\n", 20, p, 4), 4);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(p[i], 0); /* never a number that kill() would take for many processes */
	CHECK_EQ(cgroup_parse_pids("", 0, p, 4), 0);
	CHECK_EQ(cgroup_parse_pids("1\n2\n3\n", 6, p, 2), 2);
}
