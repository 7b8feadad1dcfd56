#include "service/state/json_long.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/test.h"

#define FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)

static void fill(struct buf *b, const char *before, const char *part, const char *after)
{
	buf_clear(b);
	buf_adds(b, before);
	for (size_t n = 0; n <= JSON_SMALL; n += strlen(part))
		buf_adds(b, part);
	buf_adds(b, after);
}

/* Both say the same of it. */
static void check(const struct buf *b, bool valid)
{
	struct err e = { 0 };
	AUTO(json_decref)
	json_t *want = json_loadb(b->data, b->len, FLAGS, NULL), *got = json_long_load(b->data, b->len, FLAGS, &e);

	CHECK_EQ(want != NULL, valid);
	CHECK_EQ(got != NULL, valid);
	CHECK(!valid || json_equal(want, got));
	CHECK(valid || e.msg[0]);
}

TEST(long_strings_are_what_the_library_reads)
{
	static const char *const part[] = { "x",
					    "\\n",
					    "\\u0041",
					    "\\u00e4",
					    "\\ud83d\\ude00",
					    "\\u20AC",
					    "\\u0000",
					    "\\\"\\\\\\/\\b\\f\\r\\t",
					    "\xc3\xa4",
					    "\\\\",
					    "{[,:]}",
					    "\\\\\\\"" };
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);

	for (size_t i = 0; i < ARRAY_LEN(part); i++) {
		fill(&b, "{\"a\": \"", part[i], "\", \"b\": [1, \"y\"]}");
		check(&b, true);
		fill(&b, "{\"a\": [{\"x\": [\"", part[i], "\" ]}], \"b\": \"\"}");
		check(&b, true);
		fill(&b, "{\"", part[i], "\" : 1}");
		check(&b, strcmp(part[i], "\\u0000") != 0); /* names have no NUL */
	}
	fill(&b, "{\"a\":\"", "x", "\",\"b\":\"");
	for (size_t n = 0; n <= JSON_SMALL; n++)
		buf_adds(&b, "y");
	buf_adds(&b, "\"}");
	check(&b, true);
}

TEST(long_strings_that_are_wrong_are_refused)
{
	static const char *const part[] = { "\n",      "\x01",		 "\\x",	 "\\u12", "\\ud800",
					    "\\udc00", "\\ud800\\u0041", "\xff", "\xc3" };
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);

	for (size_t i = 0; i < ARRAY_LEN(part); i++) {
		fill(&b, "{\"a\": \"", part[i], "\"}");
		check(&b, false);
	}
	fill(&b, "{\"a\": \"", "x", "");
	check(&b, false);
	fill(&b, "{\"a\": \"", "x", "\\");
	check(&b, false);
	fill(&b, "{\"a\": \"", "x", "\\\"");
	check(&b, false);
	fill(&b, "{\"a\": \"", "x", "\" 1}");
	check(&b, false);
	fill(&b, "{\"a\": 1, \"a\": \"", "x", "\"}");
	check(&b, false);
}

TEST(many_strings_and_names)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * MIB);

	buf_adds(&b, "{\"a\": [\"\"");
	for (int i = 0; i < 2000; i++)
		buf_addf(&b, ",\"%0*d\", {\"%0200d\" : \"%0130d\\n\"}", i % 300 + 1, i, i, i);
	buf_adds(&b, "]}");
	check(&b, true);
	buf_clear(&b);
	buf_adds(&b, "{\"");
	for (int i = 0; i < 2048; i++)
		buf_addf(&b, "%01024d", i);
	buf_adds(&b, "x\": 1}");
	CHECK(!json_long_load(b.data, b.len, FLAGS, &(struct err){ 0 }));
}
