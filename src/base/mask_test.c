#include "base/mask.h"
#include "base/base.h"
#include "base/test.h"

static struct mask *mask_of(const char *a, const char *b)
{
	const struct mask_value v[] = { { a, strlen(a), false }, { b, b ? strlen(b) : 0, false } };
	struct mask *m = NULL;

	if (mask_new(v, b ? 2 : 1, &m) < 0)
		abort();
	return m;
}

static bool masks(struct mask *m, const char *text, const char *want)
{
	AUTO(buf_done) struct buf out = BUF_INIT(MIB);
	bool same = mask_text(m, text, strlen(text), &out) == 0 && !strcmp(buf_str(&out), want);

	if (!same)
		printf("# '%s', not '%s'\n", buf_str(&out), want);
	return same;
}

TEST(a_value_is_replaced_wherever_it_stands)
{
	struct mask *m = mask_of("hunter22", NULL);

	CHECK(masks(m, "hunter22", "***"));
	CHECK(masks(m, "a hunter22 b", "a *** b"));
	CHECK(masks(m, "hunter2", "hunter2"));
	CHECK(masks(m, "hunterhunter22hunter2", "hunter***hunter2"));
	CHECK(masks(m, "hunter22hunter22", "***"));
	CHECK(masks(m, "", ""));
	mask_unref(m);
}

TEST(values_that_overlap_are_replaced_as_one)
{
	struct mask *m = mask_of("abcdef", "defghi");

	CHECK(masks(m, "xabcdefghiy", "x***y"));
	CHECK(masks(m, "abcdefgh", "***gh"));
	CHECK(masks(m, "bcdefghi", "bc***"));
	mask_unref(m);
	m = mask_of("bcde", "abcdefgh");
	CHECK(masks(m, "abcdefgh", "***"));
	CHECK(masks(m, "abcdefgx", "a***fgx"));
	mask_unref(m);
}

/* Cut at every place, and byte by byte. */
TEST(a_value_is_found_however_the_stream_is_cut)
{
	static const char text[] =
		"start s3cr3t-value, czNjcjN0LXZhbHVl s3cr3t-valu s3cr3t-values3cr3t-value end s3cr3t-";
	static const char want[] = "start ***, *** s3cr3t-valu *** end s3cr3t-";
	struct mask *m = mask_of("s3cr3t-value", NULL);

	for (size_t cut = 0; cut <= sizeof(text) - 1; cut++) {
		AUTO(buf_done) struct buf out = BUF_INIT(MIB);
		struct mask_stream x;

		mask_stream_init(&x, m);
		CHECK_EQ(mask_feed(&x, text, cut, &out), 0);
		CHECK(out.len + mask_held(&x) <= cut);
		CHECK_EQ(mask_feed(&x, text + cut, sizeof(text) - 1 - cut, &out), 0);
		CHECK_EQ(mask_end(&x, &out), 0);
		CHECK_STR(buf_str(&out), want);
		mask_stream_done(&x);
	}
	{
		AUTO(buf_done) struct buf out = BUF_INIT(MIB);
		struct mask_stream x;

		mask_stream_init(&x, m);
		for (size_t i = 0; i < sizeof(text) - 1; i++)
			CHECK_EQ(mask_feed(&x, text + i, 1, &out), 0);
		CHECK_EQ(mask_end(&x, &out), 0);
		CHECK_STR(buf_str(&out), want);
		mask_stream_done(&x);
	}
	mask_unref(m);
}

TEST(what_can_not_be_a_value_is_told_at_once)
{
	struct mask *m = mask_of("s3cr3t-value", NULL);
	AUTO(buf_done) struct buf out = BUF_INIT(MIB);
	struct mask_stream x;

	mask_stream_init(&x, m);
	CHECK_EQ(mask_feed(&x, "prompt> ", 8, &out), 0);
	CHECK_STR(buf_str(&out), "prompt> ");
	CHECK_EQ(mask_feed(&x, "s3cr", 4, &out), 0);
	CHECK_EQ(mask_held(&x), 4);
	CHECK_STR(buf_str(&out), "prompt> ");
	CHECK_EQ(mask_feed(&x, "!", 1, &out), 0);
	CHECK_STR(buf_str(&out), "prompt> s3cr!");
	mask_stream_done(&x);
	mask_unref(m);
}

TEST(usual_encodings_are_found_too)
{
	struct mask *m = mask_of("p4ss w/rd+&\"x", NULL);

	CHECK(masks(m, "u=p4ss%20w%2Frd%2B%26%22x.", "u=***."));
	CHECK(masks(m, "u=p4ss%20w%2frd%2b%26%22x.", "u=***."));
	CHECK(masks(m, "u=p4ss%20w/rd%2B%26%22x.", "u=***."));
	CHECK(masks(m, "u=p4ss+w%2Frd%2B%26%22x.", "u=***."));
	CHECK(masks(m, "{\"u\":\"p4ss w/rd+&\\\"x\"}", "{\"u\":\"***\"}"));
	CHECK(masks(m, "70347373 7034737320772f72642b262278", "70347373 ***"));
	CHECK(masks(m, "cDRzcyB3L3JkKyYieA==", "***")); /* alone */
	CHECK(masks(m, "cDRzcyB3L3JkKyYieAo=", "***")); /* with a newline */
	mask_unref(m);
	m = mask_of("s3cr3t-value", NULL);
	CHECK(masks(m, "dXNlcjpzM2NyM3QtdmFsdWU=", "dXNlcjp***=")); /* "user:" before it */
	CHECK(masks(m, "eDpzM2NyM3QtdmFsdWU=", "eDp***=")); /* "x:" */
	CHECK(masks(m, "eHl6OnMzY3IzdC12YWx1ZQ==", "eHl6On***==")); /* "xyz:" */
	mask_unref(m);
}

TEST(lines_of_a_long_value_are_found_alone)
{
	struct mask *m = mask_of("-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nAnd4nother0neThatIsLong==\n"
				 "-----END KEY-----\n",
				 NULL);

	CHECK(masks(m, "-----BEGIN KEY-----\r\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\r\n",
		    "-----BEGIN KEY-----\r\n***\r\n"));
	CHECK(masks(m, "> And4nother0neThatIsLong==", "> ***"));
	mask_unref(m);
}

TEST(a_change_of_values_keeps_what_is_held)
{
	struct mask *a = mask_of("oldvalue1", NULL), *b = mask_of("oldvalue1", "oldnew-value");
	AUTO(buf_done) struct buf out = BUF_INIT(MIB);
	struct mask_stream x;

	mask_stream_init(&x, a);
	CHECK_EQ(mask_feed(&x, "= old", 5, &out), 0);
	CHECK_EQ(mask_stream_change(&x, b, &out), 0);
	mask_unref(a);
	CHECK_EQ(mask_feed(&x, "new-value oldvalue1", 19, &out), 0);
	CHECK_EQ(mask_end(&x, &out), 0);
	CHECK_STR(buf_str(&out), "= *** ***");
	mask_stream_done(&x);
	mask_unref(b);
}

TEST(what_was_shown_early_does_not_unmask_the_rest)
{
	struct mask *m = mask_of("s3cr3t-value", NULL);
	AUTO(buf_done) struct buf out = BUF_INIT(MIB);
	struct mask_stream x;

	mask_stream_init(&x, m);
	CHECK_EQ(mask_feed(&x, "s", 1, &out), 0);
	CHECK_EQ(mask_show(&x, &out), 0);
	CHECK_EQ(mask_feed(&x, "3", 1, &out), 0);
	CHECK_EQ(mask_show(&x, &out), 0);
	CHECK_STR(buf_str(&out), "s3");
	CHECK_EQ(mask_feed(&x, "cr3t-val", 8, &out), 0);
	CHECK_STR(buf_str(&out), "s3");
	CHECK_EQ(mask_feed(&x, "ue!", 3, &out), 0);
	CHECK_STR(buf_str(&out), "s3***!");
	CHECK_EQ(mask_feed(&x, "s3", 2, &out), 0);
	CHECK_EQ(mask_show(&x, &out), 0);
	CHECK_EQ(mask_feed(&x, "?", 1, &out), 0);
	CHECK_EQ(mask_end(&x, &out), 0);
	CHECK_STR(buf_str(&out), "s3***!s3?");
	mask_stream_done(&x);
	mask_unref(m);
}

/* One user may set the secret and another write the output: neither may slow down the other. */
TEST(a_repeating_value_of_full_length_takes_one_pass)
{
	AUTO_FREE char *value = malloc(65536), *text = malloc(4 * MIB);
	const struct mask_value v = { value, 65536, false };
	AUTO(buf_done) struct buf out = BUF_INIT(8 * MIB);
	struct mask *m = NULL;
	struct mask_stream x;

	memset(value, 'a', 65536);
	memset(text, 'a', 4 * MIB);
	CHECK_EQ(mask_new(&v, 1, &m), 0);
	CHECK(mask_bytes(m) < 32 * MIB);
	mask_stream_init(&x, m);
	for (size_t at = 0; at < 4 * MIB; at += 65536)
		CHECK_EQ(mask_feed(&x, text + at, 65536, &out), 0);
	CHECK_EQ(mask_end(&x, &out), 0);
	CHECK_STR(buf_str(&out), "***");
	mask_stream_done(&x);
	memset(value + 65535, 'b', 1);
	mask_unref(m);
	CHECK_EQ(mask_new(&v, 1, &m), 0);
	buf_clear(&out);
	CHECK_EQ(mask_text(m, text, 4 * MIB, &out), 0);
	CHECK_EQ(out.len, 4 * MIB);
	mask_unref(m);
}

TEST(the_end_of_what_was_cut_could_have_been_a_value)
{
	const struct mask_value v = { "hunter22-value", 14, false };
	struct mask *m = NULL;
	struct err e = { 0 };
	char field[24] = "curl -u me:hunter22-val", whole[24] = "curl -u me:hunter22-v";

	CHECK_EQ(mask_new(&v, 1, &m), 0);
	mask_field(m, field, sizeof(field));
	CHECK_STR(field, "curl -u me:***");
	mask_field(m, whole, sizeof(whole)); /* there was room for more: it is none */
	CHECK_STR(whole, "curl -u me:hunter22-v");
	mask_field(NULL, whole, sizeof(whole));
	CHECK_STR(whole, "curl -u me:hunter22-v");
	err_set(&e, ERR_INVALID, -EINVAL, "/bin/%s: run", v.data);
	mask_err(m, &e);
	CHECK_STR(e.msg, "/bin/***: run");
	mask_unref(m);
}

TEST(short_values_are_left_out)
{
	struct mask *m = mask_of("abc\n", NULL);

	CHECK(masks(m, "abc abc", "abc abc"));
	mask_unref(m);
}
