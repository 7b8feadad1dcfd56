#include "base/json.h"
#include "base/base.h"
#include "base/test.h"

TEST(values_nest_with_commas)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1000);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_str(&j, "name", "x");
	jout_array(&j, "list");
	jout_u64(&j, NULL, UINT64_MAX);
	jout_i64(&j, NULL, INT64_MIN);
	jout_object(&j, NULL);
	jout_end(&j);
	jout_array(&j, NULL);
	jout_end(&j);
	jout_end(&j);
	jout_bool(&j, "yes", true);
	jout_bool(&j, "no", false);
	jout_null(&j, "none");
	jout_str(&j, "nothing", NULL);
	jout_end(&j);
	CHECK_EQ(jout_done(&j), 0);
	CHECK_STR(buf_str(&b), "{\"name\":\"x\",\"list\":[18446744073709551615,-9223372036854775808,{},[]],"
			       "\"yes\":true,\"no\":false,\"none\":null,\"nothing\":null}");
}

static void check_string(const void *bytes, size_t len, const char *want)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1000);
	struct json j = JSON_INIT(&b);

	jout_strn(&j, NULL, bytes, len);
	CHECK_EQ(jout_done(&j), 0);
	CHECK_STR(buf_str(&b), want);
}

#define CHECK_JSON(bytes, want) check_string(bytes, sizeof(bytes) - 1, want)
#define FFFD "\xef\xbf\xbd"

TEST(control_characters_and_quotes_are_escaped)
{
	CHECK_JSON("", "\"\"");
	CHECK_JSON("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
	CHECK_JSON("\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\"");
	CHECK_JSON("\0\x01\x1b[31m\x7f", "\"\\u0000\\u0001\\u001b[31m\\u007f\"");
	CHECK_JSON("\xc2\x9b", "\"\\u009b\""); /* C1: a terminal takes it for ESC [ */
	CHECK_JSON("\xc2\xa0", "\"\xc2\xa0\"");
}

TEST(utf8_passes_unchanged)
{
	CHECK_JSON("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\x94", "\"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\x94\"");
	CHECK_JSON("\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"");
}

TEST(broken_utf8_becomes_the_replacement_character)
{
	CHECK_JSON("a\xff"
		   "b",
		   "\"a" FFFD "b\"");
	CHECK_JSON("\xc0\xaf", "\"" FFFD FFFD "\""); /* overlong / */
	CHECK_JSON("\xe0\x80\xaf", "\"" FFFD FFFD FFFD "\"");
	CHECK_JSON("\xed\xa0\x80", "\"" FFFD FFFD FFFD "\""); /* a surrogate */
	CHECK_JSON("\xf4\x90\x80\x80", "\"" FFFD FFFD FFFD FFFD "\""); /* past U+10FFFF */
	CHECK_JSON("\x80", "\"" FFFD "\"");
	/* One torn character is one replacement, at the end and in the middle. */
	CHECK_JSON("\xf0\x9f\x94", "\"" FFFD "\"");
	CHECK_JSON("\xe2\x82", "\"" FFFD "\"");
	CHECK_JSON("\xc3", "\"" FFFD "\"");
	CHECK_JSON("\xe2\x82\"", "\"" FFFD "\\\"\"");
	CHECK_JSON("\xf0\x9f\xc3\xa9", "\"" FFFD "\xc3\xa9\"");
}

TEST(keys_are_escaped_too)
{
	AUTO(buf_done) struct buf b = BUF_INIT(100);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_bool(&j, "a\"\n", true);
	jout_end(&j);
	CHECK_EQ(jout_done(&j), 0);
	CHECK_STR(buf_str(&b), "{\"a\\\"\\n\":true}");
}

TEST(a_full_buffer_sticks)
{
	AUTO(buf_done) struct buf b = BUF_INIT(6);
	struct json j = JSON_INIT(&b);

	jout_array(&j, NULL);
	jout_str(&j, NULL, "0123456789");
	jout_end(&j);
	CHECK_EQ(jout_done(&j), -E2BIG);
}

TEST(too_deep_is_an_error)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1000);
	struct json j = JSON_INIT(&b);

	for (unsigned i = 0; i < JSON_DEPTH_MAX + 5; i++)
		jout_array(&j, NULL);
	CHECK_EQ(jout_done(&j), -E2BIG);
}

TEST(misuse_is_told)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1000);
	struct json key_in_array = JSON_INIT(&b), no_key = JSON_INIT(&b), open = JSON_INIT(&b), two = JSON_INIT(&b),
		    close = JSON_INIT(&b), none = JSON_INIT(&b);

	jout_array(&key_in_array, NULL);
	jout_null(&key_in_array, "k");
	CHECK_EQ(jout_done(&key_in_array), -EINVAL);
	jout_object(&no_key, NULL);
	jout_null(&no_key, NULL);
	CHECK_EQ(jout_done(&no_key), -EINVAL);
	jout_object(&open, NULL);
	CHECK_EQ(jout_done(&open), -EINVAL);
	jout_null(&two, NULL);
	jout_null(&two, NULL);
	CHECK_EQ(jout_done(&two), -EINVAL);
	jout_end(&close);
	CHECK_EQ(jout_done(&close), -EINVAL);
	CHECK_EQ(jout_done(&none), -EINVAL);
}

TEST(text_that_would_turn_the_line_around_is_escaped)
{
	AUTO(buf_done) struct buf b = BUF_INIT(256);
	struct json j = JSON_INIT(&b);

	jout_str(&j, NULL,
		 "a\xe2\x80\xae"
		 "b\xe2\x81\xa6"
		 "c\xe2\x80\xa8"
		 "d\xe2\x80\xa6");
	CHECK(jout_done(&j) == 0);
	CHECK_STR(b.data, "\"a\\u202eb\\u2066c\\u2028d\xe2\x80\xa6\"");
}

TEST(raw_json_goes_in_as_it_is)
{
	AUTO(buf_done) struct buf b = BUF_INIT(256);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	jout_raw(&j, "a", "[1,2]", 5);
	jout_raw(&j, "b", "1.5", 3);
	jout_end(&j);
	CHECK(jout_done(&j) == 0);
	CHECK_STR(b.data, "{\"a\":[1,2],\"b\":1.5}");
}
