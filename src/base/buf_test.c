#include "base/buf.h"
#include "base/base.h"
#include "base/test.h"

TEST(empty_is_an_empty_string)
{
	AUTO(buf_done) struct buf b = BUF_INIT(8);

	CHECK_STR(buf_str(&b), "");
	CHECK_EQ(b.len, 0);
}

TEST(adds_join)
{
	AUTO(buf_done) struct buf b = BUF_INIT(100);

	CHECK_EQ(buf_adds(&b, "ab"), 0);
	CHECK_EQ(buf_addc(&b, 'c'), 0);
	CHECK_EQ(buf_addf(&b, "-%d-%s", 12, "x"), 0);
	CHECK_EQ(buf_add(&b, "\0z", 2), 0);
	CHECK_EQ(b.len, 10);
	CHECK(!memcmp(b.data, "abc-12-x\0z", 11));
}

TEST(exactly_the_limit_fits)
{
	AUTO(buf_done) struct buf b = BUF_INIT(3);

	CHECK_EQ(buf_adds(&b, "abc"), 0);
	CHECK_STR(buf_str(&b), "abc");
	CHECK_EQ(buf_add(&b, "", 0), 0);
}

TEST(add_past_limit_fails_and_keeps_content)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4);

	CHECK_EQ(buf_adds(&b, "abc"), 0);
	CHECK_EQ(buf_adds(&b, "de"), -E2BIG);
	CHECK_EQ(buf_addf(&b, "%d", 12), -E2BIG);
	CHECK_EQ(buf_add(&b, "", SIZE_MAX), -E2BIG);
	CHECK(!buf_room(&b, 2));
	CHECK_EQ(b.len, 3);
	CHECK_STR(buf_str(&b), "abc");
	CHECK_EQ(buf_addc(&b, 'd'), 0);
	CHECK_STR(buf_str(&b), "abcd");
}

TEST(a_limit_of_all_memory_does_not_wrap)
{
	AUTO(buf_done) struct buf b = BUF_INIT(SIZE_MAX);

	CHECK_EQ(buf_add(&b, NULL, SIZE_MAX), -E2BIG);
	CHECK_EQ(buf_adds(&b, "x"), 0);
	CHECK_STR(buf_str(&b), "x");
}

TEST(memory_stays_near_the_limit)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1000);

	for (unsigned i = 0; i < 1000; i++)
		CHECK_EQ(buf_addc(&b, 'x'), 0);
	CHECK_EQ(buf_addc(&b, 'x'), -E2BIG);
	CHECK(b.cap <= 1001);
}

TEST(room_is_counted_only_when_told)
{
	AUTO(buf_done) struct buf b = BUF_INIT(10);
	char *p = buf_room(&b, 10);

	CHECK(p);
	memcpy(p, "hello12345", 10);
	CHECK_EQ(b.len, 0);
	buf_added(&b, 5);
	CHECK_STR(buf_str(&b), "hello");
}

TEST(drop_takes_from_the_front_and_cut_from_the_end)
{
	AUTO(buf_done) struct buf b = BUF_INIT(10);

	buf_drop(&b, 0);
	CHECK_EQ(buf_adds(&b, "abcdef"), 0);
	buf_drop(&b, 2);
	CHECK_STR(buf_str(&b), "cdef");
	buf_cut(&b, 1);
	CHECK_STR(buf_str(&b), "c");
	buf_drop(&b, 1);
	CHECK_STR(buf_str(&b), "");
}

TEST(clear_keeps_memory_and_done_gives_it_back)
{
	struct buf b = BUF_INIT(10);

	CHECK_EQ(buf_adds(&b, "abc"), 0);
	buf_clear(&b);
	CHECK_STR(buf_str(&b), "");
	CHECK(b.cap > 0);
	buf_done(&b);
	CHECK_EQ(b.cap, 0);
	CHECK_EQ(buf_adds(&b, "again"), 0);
	CHECK_STR(buf_str(&b), "again");
	buf_done(&b);
	buf_done(&b);
}

TEST(take_hands_over_and_leaves_empty)
{
	struct buf b = BUF_INIT(10);
	AUTO_FREE char *one = NULL, *none = NULL;

	CHECK_EQ(buf_adds(&b, "abc"), 0);
	one = buf_take(&b);
	CHECK_STR(one, "abc");
	CHECK_EQ(b.len, 0);
	none = buf_take(&b);
	CHECK_STR(none, "");
}
