#include "egress/budget.h"
#include "base/base.h"
#include "base/test.h"

#define SEC 1000000000ULL

TEST(a_stream_may_begin_until_a_budget_is_used_up)
{
	struct meter m = { 0 }, tree = { 0 };

	m.counts = (struct egress_counts){ .bytes_out = 1000, .connections = 1000, .concurrent = 1000 };
	CHECK(!meter_stream(&m, &tree));
	m.budget.connections = 1001;
	CHECK(!meter_stream(&m, &tree));
	m.counts.connections++;
	CHECK_CONTAINS(meter_stream(&m, &tree), "connections");
	m.budget = (struct egress_budget){ .concurrent = 1000 };
	CHECK_CONTAINS(meter_stream(&m, &tree), "concurrent");
	m.budget = (struct egress_budget){ .bytes_out = 1000 };
	CHECK_CONTAINS(meter_stream(&m, &tree), "outgoing bytes");
	m.budget = (struct egress_budget){ 0 };
	tree.budget.bytes_in = 5;
	tree.counts.bytes_in = 5;
	CHECK_CONTAINS(meter_stream(&m, &tree), "tree");
}

TEST(bytes_are_what_is_left_of_both_and_never_more)
{
	struct meter m = { .budget.bytes_out = 100 }, tree = { .budget.bytes_out = 60 };
	uint64_t wait;
	const char *why;

	CHECK_EQ(meter_bytes(&m, &tree, true, SEC, &wait, &why), 60);
	meter_used(&m, true, 60);
	meter_used(&tree, true, 60);
	CHECK_EQ(meter_bytes(&m, &tree, true, SEC, &wait, &why), 0);
	CHECK_CONTAINS(why, "tree");
	CHECK_EQ(meter_bytes(&m, &tree, false, SEC, &wait, &why) == UINT64_MAX, 1);
	CHECK(!why);
}

TEST(a_bucket_gives_its_rate_and_no_more_over_time)
{
	struct meter m = { .budget.bandwidth = 1000000 }, tree = { 0 };
	uint64_t now = 5 * SEC, wait, given = 0, n;
	const char *why;

	for (int i = 0; i < 10000; i++) {
		n = meter_bytes(&m, &tree, true, now, &wait, &why);
		if (n > 5000)
			n = 5000;
		CHECK(n || wait);
		meter_used(&m, true, n);
		given += n;
		now += n ? 0 : wait;
		if (now >= 15 * SEC)
			break;
	}
	CHECK(now >= 15 * SEC);
	/* Ten seconds, and what the bucket held at first. */
	CHECK(given >= 9900000 && given <= 10300000);
}

TEST(a_small_rate_is_not_lost_in_small_steps)
{
	struct meter m = { .budget.bandwidth = 3 }, tree = { 0 };
	uint64_t wait, now = SEC, given = 0;
	const char *why;

	meter_bytes(&m, &tree, true, now, &wait, &why);
	meter_used(&m, true, (uint64_t)m.bucket.bytes);
	for (int i = 0; i < 100000; i++, now += SEC / 1000) {
		uint64_t n = meter_bytes(&m, &tree, true, now, &wait, &why);

		meter_used(&m, true, n);
		given += n;
	}
	CHECK(given >= 298 && given <= 301);
}

TEST(never_more_requests_than_allowed_within_any_minute)
{
	struct name n = { 0 };
	uint64_t given[64], first = 0, count = 0;

	/* One a second, of which four a minute may be. */
	for (uint64_t now = 59 * SEC; now < 600 * SEC; now += SEC) {
		if (!meter_request(&n, 4, now))
			continue;
		CHECK(count < ARRAY_LEN(given));
		given[count++] = now;
		while (now - given[first] >= 60 * SEC)
			first++;
		CHECK(count - first <= 4);
	}
	/* Nor many fewer: what is a minute and a step old is forgotten. */
	CHECK(count >= 4 * (600 - 59) / 66);
	CHECK(!meter_request(&n, 4, 600 * SEC));
	CHECK(meter_request(&n, 0, 600 * SEC));
	CHECK(meter_request(&n, 4, 100000 * SEC));
	free(n.window);
}
