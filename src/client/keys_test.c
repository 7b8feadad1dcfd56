#include "client/keys.h"
#include "base/base.h"
#include "base/test.h"

static bool feed(struct keys *k, const char *data, struct buf *out)
{
	return keys_feed(k, data, strlen(data), out);
}

TEST(the_keys_are_found_in_one_piece_and_in_two)
{
	AUTO(buf_done) struct buf b = BUF_INIT(KIB);
	struct keys k;

	CHECK_EQ(keys_parse("ctrl-p,ctrl-q", &k, NULL), 0);
	CHECK(feed(&k, "ls\r\x10\x11gone", &b));
	CHECK_STR(buf_str(&b), "ls\r");
	buf_clear(&b);
	CHECK(!feed(&k, "\x10", &b));
	CHECK_EQ(b.len, 0);
	CHECK(feed(&k, "\x11", &b));
	CHECK_EQ(b.len, 0);
}

TEST(a_start_that_is_not_the_keys_is_sent)
{
	AUTO(buf_done) struct buf b = BUF_INIT(KIB);
	struct keys k;

	CHECK_EQ(keys_parse("ctrl-p,ctrl-q", &k, NULL), 0);
	CHECK(!feed(&k, "\x10", &b));
	CHECK(!feed(&k, "a\x10", &b));
	CHECK_STR(buf_str(&b), "\x10"
			       "a");
	CHECK(!feed(&k, "\x10", &b)); /* the first is sent, the second may be a start */
	CHECK_STR(buf_str(&b), "\x10"
			       "a\x10");
	CHECK(feed(&k, "\x11", &b));
}

TEST(keys_that_begin_like_themselves_are_found)
{
	AUTO(buf_done) struct buf b = BUF_INIT(KIB);
	struct keys k;

	CHECK_EQ(keys_parse("a,a,b", &k, NULL), 0);
	CHECK(feed(&k, "aaab", &b));
	CHECK_STR(buf_str(&b), "a");
	buf_clear(&b);
	CHECK_EQ(keys_parse("a,b,a,c", &k, NULL), 0);
	CHECK(feed(&k, "ababac", &b));
	CHECK_STR(buf_str(&b), "ab");
}

TEST(no_keys_hold_nothing_back)
{
	AUTO(buf_done) struct buf b = BUF_INIT(KIB);
	struct keys k;

	CHECK_EQ(keys_parse("", &k, NULL), 0);
	CHECK(!feed(&k, "\x10\x11", &b));
	CHECK_EQ(b.len, 2);
}

TEST(what_is_no_key_is_refused)
{
	struct keys k = { 0 };
	struct err e;

	CHECK_EQ(keys_parse("ctrl-", &k, &e), -EINVAL);
	CHECK_EQ(keys_parse("ctrl-1", &k, &e), -EINVAL);
	CHECK_EQ(keys_parse("shift-x", &k, &e), -EINVAL);
	CHECK_EQ(keys_parse("a,b,c,d,e,f,g,h,i", &k, &e), -EINVAL);
	CHECK_EQ(keys_parse("ctrl-],x", &k, &e), 0);
	CHECK_EQ(k.want[0], 0x1d);
}
