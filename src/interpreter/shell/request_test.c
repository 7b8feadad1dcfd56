#include "interpreter/shell/request.h"

#include "base/base.h"
#include "base/test.h"

static int read_it(struct request *q, const char *text, struct err *e)
{
	return request_read(q, text, strlen(text), e);
}

TEST(members_are_read_and_unknown_ones_are_skipped)
{
	struct request q;
	struct err e = { 0 };

	CHECK(read_it(&q,
		      " {\"type\":\"execute\", \"id\" : [1, {\"a\": \"b\"}], \"x\": {\"y\": [true, null, -1.5e3]},"
		      "\"code\": \"a\\n\\u00e9\\ud83d\\ude00\\ud800z\", \"env\": {\"A\": \"1\", \"B\": null}, \"last\": 12} ",
		      &e) == 0);
	CHECK(!strcmp(q.type, "execute"));
	CHECK(!strcmp(q.id, "[1, {\"a\": \"b\"}]"));
	CHECK(!strcmp(q.code, "a\n\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbdz"));
	CHECK(q.env_count == 2 && !strcmp(q.env[0].value, "1") && !q.env[1].value);
	CHECK(q.last == 12 && q.cursor == UINT64_MAX && !q.restricted);
	request_done(&q);
}

TEST(a_nul_in_code_counts)
{
	struct request q;
	struct err e = { 0 };

	CHECK(read_it(&q, "{\"code\": \"a\\u0000b\"}", &e) == 0);
	CHECK(q.code_len == 3);
	request_done(&q);
}

TEST(what_is_no_object_is_refused)
{
	static const char *const wrong[] = { "",
					     "[]",
					     "5",
					     "{",
					     "{\"a\"}",
					     "{\"a\":}",
					     "{\"a\":1,}",
					     "{\"a\":1}x",
					     "{\"a\":\"\n\"}",
					     "{\"a\":\"\\x\"}",
					     "{\"a\":\"\\u12\"}",
					     "{\"a\":tru}",
					     "{\"env\":5}",
					     "{\"env\":{\"A=\":\"\"}}",
					     "{\"env\":{\"A\":5}}",
					     "{\"last\":-1}",
					     "{\"last\":1.5}",
					     "{\"a\":[1}",
					     "{\"a\":\"\xff\"}",
					     "{\"env\":{\"A\":\"\\u0000\"}}",
					     "{\"a\":-}" };
	struct request q;

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct err e = { 0 };
		CHECK(read_it(&q, wrong[i], &e) == -EINVAL);
		CHECK(e.msg[0]);
		request_done(&q);
	}
}

TEST(deep_nesting_is_refused)
{
	char text[400] = "{\"a\":";
	struct request q;
	struct err e = { 0 };

	memset(text + 5, '[', 200);
	CHECK(request_read(&q, text, 205, &e) == -EINVAL);
	request_done(&q);
}
