#include "daemon/restart.h"
#include "base/base.h"
#include "base/test.h"

TEST(the_first_is_at_once_then_pauses_grow_to_two_seconds)
{
	static const int want[] = { 0, 100, 200, 400, 800, 1600, 2000, 2000, 2000 };
	struct restart r = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		CHECK_EQ(restart_after(&r, 1000 + i, false), want[i]);
	CHECK_EQ(restart_after(&r, 1010, true), RESTART_PAUSE_MS);
	CHECK_EQ(restart_after(&r, 1010, false), -1);
}

TEST(deaths_long_ago_do_not_count)
{
	struct restart r = { 0 };
	uint64_t now = 5;

	for (unsigned i = 0; i < 100; i++, now += RESTART_WITHIN_MS)
		CHECK_EQ(restart_after(&r, now, false), 0);
	/* Nine every 30 s are always allowed, ten are not. */
	for (unsigned i = 0; i < 100; i++, now += RESTART_WITHIN_MS / 9 + 1)
		CHECK(restart_after(&r, now, false) >= 0);
	for (unsigned i = 0; i < 9; i++, now += RESTART_WITHIN_MS / 10 - 1)
		restart_after(&r, now, false);
	CHECK_EQ(restart_after(&r, now, false), -1);
}
