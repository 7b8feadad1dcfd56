#include "cli/capture.h"
#include "base/base.h"
#include "base/test.h"

/* The model: everything that was written, at once. */
static char all[200000];
static size_t all_len;
static uint64_t state;

static uint32_t rnd(uint32_t below)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(state >> 33) % below;
}

static int collect(void *arg, const char *data, size_t len)
{
	return buf_add(arg, data, len);
}

static void run(uint64_t limit, size_t head_max, bool keep, size_t total)
{
	struct capture c;
	AUTO(buf_done) struct buf passed = BUF_INIT(MIB), tail = BUF_INIT(MIB);
	const size_t head = !limit ? total : head_max < limit ? head_max : (size_t)limit;
	const size_t want_head = head < total ? head : total;
	size_t want_tail = total - want_head;

	if (limit && want_tail > limit - head)
		want_tail = (size_t)(limit - head);
	all_len = 0;
	CHECK_EQ(capture_init(&c, limit, head_max), 0);
	while (all_len < total) {
		size_t n = 1 + rnd(rnd(4) ? 50 : 40000);
		long r;

		if (n > total - all_len)
			n = total - all_len;
		for (size_t i = 0; i < n; i++)
			all[all_len + i] = (char)rnd(256);
		r = capture_add(&c, all + all_len, n, keep);
		CHECK(r >= 0 && (size_t)r <= n);
		CHECK_EQ(buf_add(&passed, all + all_len, (size_t)r), 0);
		all_len += n;
	}
	CHECK_EQ(c.total, total);
	CHECK_EQ(passed.len, want_head);
	CHECK(!memcmp(buf_str(&passed), all, want_head));
	CHECK_EQ(c.head.len, keep ? want_head : 0);
	CHECK(!keep || !memcmp(buf_str(&c.head), all, want_head));
	CHECK_EQ(capture_tail(&c, collect, &tail), 0);
	CHECK_EQ(tail.len, want_tail);
	CHECK(!memcmp(buf_str(&tail), all + total - want_tail, want_tail));
	CHECK_EQ(capture_truncated(&c), limit && total > limit);
	CHECK_EQ(capture_dropped(&c), total - want_head - want_tail);
	capture_done(&c);
}

TEST(head_and_tail_are_those_of_the_model_whatever_the_sizes)
{
	for (unsigned i = 0; i < 400; i++) {
		uint64_t limit = rnd(5) ? 1 + rnd(rnd(2) ? 100 : 60000) : 0;

		state = i * 2654435761ULL + 1;
		run(limit, rnd(limit ? (uint32_t)limit + 50 : 100), rnd(2), rnd(rnd(2) ? 300 : 100000));
		if (test_state.failed)
			TEST_FAIL("round %u", i);
	}
}

TEST(exactly_the_limit_is_not_truncated)
{
	run(1000, 500, true, 999);
	run(1000, 500, true, 1000);
	run(1000, 500, true, 1001);
	run(1, 1, true, 2);
	run(1, 0, true, 2);
}

TEST(memory_stays_within_the_limit)
{
	static const char block[4096];
	struct capture c;

	CHECK_EQ(capture_init(&c, 10000, 5000), 0);
	for (unsigned i = 0; i < 10000; i++)
		CHECK(capture_add(&c, block, sizeof(block), true) >= 0);
	CHECK_EQ(c.total, 10000ULL * sizeof(block));
	CHECK_EQ(c.head.len + c.tail_len, 10000);
	CHECK(c.head.cap < 32768);
	capture_done(&c);
}

TEST(a_tail_that_fails_to_be_taken_stops)
{
	struct capture c;

	CHECK_EQ(capture_init(&c, 10, 0), 0);
	CHECK(capture_add(&c, "abcdefghijklm", 13, true) >= 0);
	CHECK_EQ(capture_tail(&c, collect, &(struct buf)BUF_INIT(3)), -E2BIG);
	capture_done(&c);
}
