#include "service/context/kernel_frame.h"

#include "base/base.h"
#include "base/test.h"

static int read_it(const char *text, char *room, struct kernel_frame *f)
{
	const size_t n = strlen(text);

	memcpy(room, text, n + 1);
	return kernel_frame_read(room, n, f);
}

static bool shows(struct json_span s, size_t most, const char *want)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4096);

	return json_span_text(s, most, &b) == 0 && !strcmp(buf_str(&b), want);
}

TEST(members_are_found_as_they_were_sent)
{
	char room[512];
	struct kernel_frame f;
	uint64_t n = 0;

	CHECK_EQ(
		read_it(" {\"type\" : \"stdout\", \"id\":7, \"a\":{\"b\":[1,-2.5e+3,true,null,{}],\"c\":[]},\"yes\":true} ",
			room, &f),
		0);
	CHECK(kernel_frame_is(&f, "type", "stdout") && !kernel_frame_is(&f, "type", "stdou"));
	CHECK(kernel_frame_u64(&f, "id", &n) && n == 7);
	CHECK(kernel_frame_true(&f, "yes") && !kernel_frame_true(&f, "id"));
	CHECK(kernel_frame_get(&f, "a").len == strlen("{\"b\":[1,-2.5e+3,true,null,{}],\"c\":[]}"));
	CHECK(!kernel_frame_get(&f, "none").p);
	CHECK_EQ(read_it("{}", room, &f), 0);
	CHECK_EQ(f.n, 0);
}

TEST(texts_are_decoded_and_cut_between_characters)
{
	char room[512];
	struct kernel_frame f;

	CHECK_EQ(read_it("{\"t\":\"a\\n\\u00e9\\ud83d\\ude00\\\"\\/\xc3\xa9\"}", room, &f), 0);
	CHECK(shows(kernel_frame_get(&f, "t"), SIZE_MAX, "a\n\xc3\xa9\xf0\x9f\x98\x80\"/\xc3\xa9"));
	CHECK_EQ(json_span_text_len(kernel_frame_get(&f, "t")), strlen("a\n\xc3\xa9\xf0\x9f\x98\x80\"/\xc3\xa9"));
	CHECK(shows(kernel_frame_get(&f, "t"), 7, "a\n\xc3\xa9"));
	CHECK_EQ(read_it("{\"t\":\"\xc3\xa9\xc3\xa9\"}", room, &f), 0);
	CHECK(shows(kernel_frame_get(&f, "t"), 3, "\xc3\xa9"));
}

TEST(half_of_a_pair_is_replaced_and_lines_are_joined)
{
	char room[512];
	struct kernel_frame f;

	CHECK_EQ(read_it("{\"t\":\"\\ud800x\",\n\"u\":\"\\udc00\\ud800\\u0041\"\r\n}", room, &f), 0);
	CHECK(!strcmp(room, "{\"t\":\"\\uFFFDx\", \"u\":\"\\uFFFD\\uFFFD\\u0041\"  }"));
}

TEST(what_is_no_object_is_refused)
{
	static const char *const wrong[] = { "",
					     " ",
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
					     "{\"a\":[1}",
					     "{\"a\":{\"b\"}}",
					     "{\"a\":\"\xff\"}",
					     "{\"a\":-}",
					     "{\"a\":1.}",
					     "{\"a\":01}",
					     "{\"a\":1e}",
					     "{a:1}",
					     "{\"a\":[1,]}",
					     "{\"a\":{\"b\":1,}}",
					     "{\"a\":[}",
					     "{\"a\":\"\\ud800\\u12\"}",
					     "{\"a\":\"\\" };
	char room[512];
	struct kernel_frame f;

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		CHECK_EQ(read_it(wrong[i], room, &f), -EBADMSG);
	memcpy(room, "{\"a\":\"\\\0\"}", 10);
	CHECK_EQ(kernel_frame_read(room, 10, &f), -EBADMSG);
}

TEST(depth_is_bounded)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct kernel_frame f;

	for (int more = 0; more < 2; more++) {
		const unsigned n = KERNEL_FRAME_DEPTH + more;

		buf_clear(&b);
		buf_adds(&b, "{\"a\":");
		for (unsigned i = 0; i < n; i++)
			buf_addc(&b, '[');
		for (unsigned i = 0; i < n; i++)
			buf_addc(&b, ']');
		buf_addc(&b, '}');
		CHECK_EQ(kernel_frame_read(b.data, b.len, &f), more ? -ELOOP : 0);
	}
}

TEST(members_beyond_the_bound_are_ignored)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	struct kernel_frame f;

	buf_addc(&b, '{');
	for (int i = 0; i < 100; i++)
		buf_addf(&b, "%s\"k%d\":%d", i ? "," : "", i, i);
	buf_addc(&b, '}');
	CHECK_EQ(kernel_frame_read(b.data, b.len, &f), 0);
	CHECK_EQ(f.n, KERNEL_FRAME_MEMBERS);
}

TEST(values_are_masked_in_texts_and_keys_at_any_depth)
{
	static const struct mask_value value = { .data = "se\"cret", .len = 7 };
	AUTO(buf_done) struct buf b = BUF_INIT(4096);
	struct kernel_frame f;
	struct mask *m;
	char room[512];

	CHECK_EQ(mask_new(&value, 1, &m), 0);
	CHECK_EQ(read_it("{\"a\":{\"x\":[\"one se\\u0022cret two\",1],\"se\\\"cret\":\"plain\\\\\"}}", room, &f), 0);
	CHECK_EQ(json_span_masked(kernel_frame_get(&f, "a"), m, &b), 0);
	CHECK(!strcmp(buf_str(&b), "{\"x\":[\"one *** two\",1],\"***\":\"plain\\\\\"}"));
	mask_unref(m);
}
