#include "daemon/key_command.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

TEST(what_it_writes_is_given_whole)
{
	uint8_t key[64];
	size_t n = 0;
	struct err e = { 0 };

	CHECK_EQ(key_command_run("printf 'a\\0b'; printf c", 60000, key, sizeof(key), &n, &e), 0);
	CHECK_EQ(n, 4);
	CHECK(!memcmp(key, "a\0bc", 4));
	CHECK_EQ(key_command_run("head -c 64 /dev/zero", 60000, key, sizeof(key), &n, &e), 0);
	CHECK_EQ(n, 64);
}

TEST(one_that_fails_says_nothing_or_too_much_is_refused)
{
	uint8_t key[64] = { 1 };
	size_t n = 7;
	struct err e = { 0 };

	CHECK_EQ(key_command_run("printf secret; exit 3", 60000, key, sizeof(key), &n, &e), -ECHILD);
	CHECK_CONTAINS(e.msg, "exit code 3");
	CHECK_EQ(key[0], 0);
	CHECK_EQ(key_command_run("kill -9 $$", 60000, key, sizeof(key), &n, &e), -ECHILD);
	CHECK_EQ(key_command_run("true", 60000, key, sizeof(key), &n, &e), -ENODATA);
	CHECK_EQ(key_command_run("head -c 65 /dev/zero", 60000, key, sizeof(key), &n, &e), -E2BIG);
	CHECK_EQ(key_command_run("/no/such/program", 60000, key, sizeof(key), &n, &e), -ECHILD);
	CHECK_EQ(n, 7);
}

TEST(one_that_is_slow_is_ended_with_all_it_started)
{
	uint8_t key[64];
	size_t n = 0;
	struct err e = { 0 };
	uint64_t begun = clock_mono_ns();

	CHECK_EQ(key_command_run("sleep 1000 & sleep 1000", 200, key, sizeof(key), &n, &e), -ETIMEDOUT);
	/* Its output is closed, and it is still there. */
	CHECK_EQ(key_command_run("exec >&-; sleep 1000", 200, key, sizeof(key), &n, &e), -ETIMEDOUT);
	CHECK(clock_mono_ns() - begun < 60ULL * 1000000000ULL);
}
