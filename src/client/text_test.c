#include "client/text.h"
#include "base/base.h"
#include "base/test.h"
#include "client/table.h"

#include <locale.h>

static const char *escaped(struct buf *b, const char *text)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	buf_clear(b);
	text_escape(b, text, strlen(text));
	return buf_str(b);
}

TEST(what_moves_the_cursor_is_shown_not_done)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);

	CHECK_STR(escaped(&b, "a\x1b[2Jb"), "a\\x1b[2Jb");
	CHECK_STR(escaped(&b, "a\r\n\tb"), "a\\x0d\\n\\tb");
	CHECK_STR(escaped(&b, "\x7f"), "\\x7f");
	CHECK_STR(escaped(&b, "\xc2\x9b"
			      "31m"),
		  "\\u009b31m"); /* C1's form of ESC [ */
}

TEST(what_turns_the_direction_or_hides_is_shown)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);

	CHECK_STR(escaped(&b, "a\xe2\x80\xae"
			      "b"),
		  "a\\u202eb");
	CHECK_STR(escaped(&b, "a\xe2\x80\x8b"
			      "b"),
		  "a\\u200bb");
}

TEST(bytes_that_are_no_text_are_shown_as_bytes)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);

	CHECK_STR(escaped(&b, "\xff\xfe ok \xc3"), "\\xff\\xfe ok \\xc3");
	CHECK_STR(escaped(&b, "größe"), "größe");
}

TEST(a_nul_byte_ends_nothing)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);

	CHECK_EQ(text_escape(&b, "a\0b", 3), 0);
	CHECK_STR(buf_str(&b), "a\\x00b");
}

TEST(widths_are_columns_not_bytes)
{
	setlocale(LC_CTYPE, "C.UTF-8");
	CHECK_EQ(text_width("größe"), 5);
	CHECK_EQ(text_width("日本"), 4);
	CHECK_EQ(text_cut("größe", 3), 4);
	CHECK_EQ(text_cut("日本", 3), 3); /* half a character is none */
}

TEST(sizes_and_times_are_short)
{
	char tmp[32];

	CHECK_STR(text_size(17, tmp, sizeof(tmp)), "17");
	CHECK_STR(text_size(1024, tmp, sizeof(tmp)), "1K");
	CHECK_STR(text_size(512 * MIB, tmp, sizeof(tmp)), "512M");
	CHECK_STR(text_size(1536 * MIB, tmp, sizeof(tmp)), "1.4G");
	CHECK_STR(text_size(UINT64_MAX, tmp, sizeof(tmp)), "15E");
	CHECK_STR(text_span(0, tmp, sizeof(tmp)), "0s");
	CHECK_STR(text_span(119, tmp, sizeof(tmp)), "119s");
	CHECK_STR(text_span(7200, tmp, sizeof(tmp)), "2h");
}

TEST(tables_align_without_tabs_and_are_cut)
{
	static const char *const titles[] = { "NAME", "N", "REST" };
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);
	AUTO(table_done) struct table t;

	setlocale(LC_CTYPE, "C.UTF-8");
	table_init(&t, titles, 3, 2);
	table_add(&t, "größe");
	table_add(&t, "7");
	table_add(&t, "x\x1b[31m");
	table_add(&t, NULL);
	table_add(&t, "1000");
	table_add(&t, "long long long");
	CHECK_EQ(table_write(&t, 0, 0, &b), 0);
	CHECK_STR(buf_str(&b), "NAME      N  REST\n"
			       "größe     7  x\\x1b[31m\n"
			       "-      1000  long long long\n");
	buf_clear(&b);
	CHECK_EQ(table_write(&t, 15, 2, &b), 0);
	CHECK_STR(buf_str(&b), "NAME      N  RE\n"
			       "größe     7  x\\\n");
}
