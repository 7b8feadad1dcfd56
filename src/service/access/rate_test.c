#include "service/access/rate.h"
#include "base/base.h"
#include "base/test.h"

#define S 1000000000ULL
#define START (1000 * S)

static const struct rate_rule ten = { .points = 10, .window_ms = 1000, .block_ms = 5000 };

TEST(without_a_rule_everybody_may)
{
	struct rate_bucket b = { 0 };
	struct rate_rule none = { .block_ms = 5 };

	for (unsigned i = 0; i < 1000; i++)
		CHECK_EQ(rate_take(&none, &b, START), 0);
}

TEST(all_points_can_be_used_at_once_and_then_it_is_blocked)
{
	struct rate_bucket b = { 0 };

	for (unsigned i = 0; i < 10; i++)
		CHECK_EQ(rate_take(&ten, &b, START), 0);
	CHECK_EQ(rate_take(&ten, &b, START), 5);
	CHECK_EQ(rate_take(&ten, &b, START + S + 1), 4); /* 3.99… s, rounded up; asking does not make it longer */
	CHECK_EQ(rate_take(&ten, &b, START + 5 * S - 1), 1);
	for (unsigned i = 0; i < 10; i++) /* it filled up meanwhile */
		CHECK_EQ(rate_take(&ten, &b, START + 5 * S), 0);
	CHECK_EQ(rate_take(&ten, &b, START + 5 * S), 5);
}

TEST(points_come_back_evenly)
{
	struct rate_bucket b = { 0 };
	struct rate_rule r = ten;
	unsigned ok = 0;

	r.block_ms = 0;
	for (unsigned i = 0; i < 10; i++)
		CHECK_EQ(rate_take(&r, &b, START), 0);
	CHECK_EQ(rate_take(&r, &b, START), 1); /* 0.1 s, rounded up */
	CHECK_EQ(rate_take(&r, &b, START + S / 10 - 1), 1);
	CHECK_EQ(rate_take(&r, &b, START + S / 10), 0);
	CHECK_EQ(rate_take(&r, &b, START + S / 10), 1);
	/* Ten seconds of asking every millisecond: ten per second, no more. */
	for (unsigned i = 0; i < 10000; i++)
		ok += rate_take(&r, &b, START + S + i * (S / 1000)) == 0;
	CHECK(ok >= 100 && ok <= 110);
}

TEST(who_stays_within_the_rule_is_never_blocked)
{
	struct rate_bucket b = { 0 };

	for (unsigned i = 0; i < 1000; i++)
		CHECK_EQ(rate_take(&ten, &b, START + i * (S / 10)), 0);
}

TEST(a_looser_rule_counts_at_once)
{
	struct rate_bucket b = { 0 };
	struct rate_rule hard = { .points = 1, .window_ms = RATE_MS_MAX, .block_ms = RATE_MS_MAX };

	CHECK_EQ(rate_take(&hard, &b, START), 0);
	CHECK_EQ(rate_take(&hard, &b, START), RATE_MS_MAX / 1000);
	CHECK_EQ(rate_take(&ten, &b, START), 5); /* the bucket is empty, but blocked by the new rule only */
	CHECK_EQ(rate_take(&ten, &b, START + 5 * S), 0);
}

TEST(rules_that_make_no_sense_are_refused)
{
	struct err e;

	CHECK_EQ(rate_check(&(struct rate_rule){ 0 }, &e), 0);
	CHECK_EQ(rate_check(&ten, &e), 0);
	CHECK_EQ(rate_check(&(struct rate_rule){ .points = RATE_POINTS_MAX, .window_ms = 1 }, &e), 0);
	CHECK_EQ(rate_check(&(struct rate_rule){ .points = 1 }, &e), -EINVAL);
	CHECK_EQ(e.kind, ERR_INVALID);
	CHECK_EQ(rate_check(&(struct rate_rule){ .points = RATE_POINTS_MAX + 1, .window_ms = 1 }, &e), -ERANGE);
	CHECK_EQ(rate_check(&(struct rate_rule){ .points = 1, .window_ms = RATE_MS_MAX + 1 }, &e), -ERANGE);
	CHECK_EQ(rate_check(&(struct rate_rule){ .points = 1, .window_ms = 1, .block_ms = UINT64_MAX }, &e), -ERANGE);
}

TEST(the_largest_rules_do_not_overflow)
{
	struct rate_rule r = { .points = RATE_POINTS_MAX, .window_ms = 1, .block_ms = RATE_MS_MAX };
	struct rate_bucket b = { 0 };

	for (unsigned i = 0; i < 100000; i++)
		CHECK_EQ(rate_take(&r, &b, START + i), 0);
	r.points = 1;
	r.window_ms = RATE_MS_MAX;
	b = (struct rate_bucket){ 0 };
	CHECK_EQ(rate_take(&r, &b, UINT64_MAX / 4), 0);
	CHECK_EQ(rate_take(&r, &b, UINT64_MAX / 4), RATE_MS_MAX / 1000);
}
