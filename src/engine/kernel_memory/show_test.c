#include "engine/kernel_memory/show.h"
#include "base/base.h"
#include "base/test.h"
#include "engine/rootfs/shown.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

TEST(a_load_rises_to_what_is_used_and_falls_to_nothing)
{
	uint32_t load[3] = { 0 };

	show_average(load, SHOW_FIXED, 12); /* a minute */
	CHECK(load[0] > SHOW_FIXED * 60 / 100 && load[0] < SHOW_FIXED * 66 / 100);
	CHECK(load[1] > SHOW_FIXED * 17 / 100 && load[1] < SHOW_FIXED * 20 / 100);
	CHECK(load[2] > SHOW_FIXED * 5 / 100 && load[2] < SHOW_FIXED * 8 / 100);
	show_average(load, SHOW_FIXED, UINT64_MAX);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(load[i], SHOW_FIXED);
	show_average(load, 0, UINT64_MAX);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(load[i], 0);
}

TEST(a_text_replaces_a_longer_one)
{
	char dir[] = "/tmp/shown-test-XXXXXX", text[32] = { 0 };
	int at = mkdtemp(dir) ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, fd;

	CHECK(at >= 0 && mknodat(at, "loadavg", S_IFREG | 0600, 0) == 0);
	CHECK_EQ(shown_write(at, "loadavg", "10.00 2/17\n", 11), 0);
	CHECK_EQ(shown_write(at, "loadavg", "9.99 2/9\n", 9), 0);
	fd = openat(at, "loadavg", O_RDONLY | O_CLOEXEC);
	CHECK_EQ(read(fd, text, sizeof(text) - 1), 9);
	CHECK(!strcmp(text, "9.99 2/9\n"));
	CHECK_EQ(shown_write(at, "none", "x", 1), -ENOENT);
	close(fd);
	CHECK(unlinkat(at, "loadavg", 0) == 0 && rmdir(dir) == 0);
	close(at);
}
