#include "client/line.h"
#include "base/base.h"
#include "base/test.h"

static enum line_event feed(struct line *l, const char *keys)
{
	enum line_event ev = LINE_MORE;

	for (; *keys; keys++)
		ev = line_feed(l, (unsigned char)*keys);
	return ev;
}

static const char *after(const char *keys)
{
	static struct line l;
	static bool used;

	if (used)
		line_done(&l);
	used = true;
	line_init(&l);
	line_remember(&l, "one");
	line_remember(&l, "two");
	feed(&l, keys);
	return buf_str(&l.text);
}

TEST(keys_edit_the_line)
{
	CHECK_STR(after("abc\x1b[D\x1b[DX"), "aXbc");
	CHECK_STR(after("abc\x01X\x05Y"), "XabcY");
	CHECK_STR(after("abc\x1b[D\x7f"), "ac");
	CHECK_STR(after("abc\x01\x04\x1b[3~"), "c");
	CHECK_STR(after("a b c\x17\x17"), "a ");
	CHECK_STR(after("abc\x02\x0b"), "ab");
	CHECK_STR(after("abc\x02\x15"), "c");
	CHECK_STR(after("\xc3\xa9\xc3\xa8\x1b[D\x7f"), "\xc3\xa8");
	CHECK_STR(after("a\x1b[99;5Zb\x1bqc\x1bOHd"), "dabc");
}

TEST(history_is_shown_and_left)
{
	CHECK_STR(after("own\x1b[A"), "two");
	CHECK_STR(after("own\x1b[A\x1b[A\x1b[A"), "one");
	CHECK_STR(after("own\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B"), "own");
	CHECK_STR(after("\x10\x10\x0e!"), "two!");
}

TEST(ends_and_pastes_are_told)
{
	struct line l;

	line_init(&l);
	CHECK_EQ(feed(&l, "a\r"), LINE_DONE);
	CHECK_EQ(feed(&l, "\n"), LINE_MORE); /* of one line end */
	CHECK_EQ(feed(&l, "\x1b[200~b\tc\r"), LINE_PASTED);
	CHECK_STR(buf_str(&l.text), "ab\tc");
	CHECK_EQ(feed(&l, "\x1b[201~\t"), LINE_TAB);
	CHECK_EQ(feed(&l, "\x03"), LINE_CANCEL);
	line_begin(&l, "    ");
	CHECK_EQ(feed(&l, "\x04"), LINE_MORE);
	line_begin(&l, "");
	CHECK_EQ(feed(&l, "\x04"), LINE_END);
	line_done(&l);
}

TEST(a_long_line_is_shown_around_its_cursor)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct line l;

	line_init(&l);
	feed(&l, "ab\x1b[D");
	line_draw(&l, "> ", 20, &b);
	CHECK_STR(buf_str(&b), "\r> ab\x1b[K\r\x1b[3C");
	buf_clear(&b);
	line_begin(&l, "0123456789abcdefghij\x1b");
	line_draw(&l, "> ", 12, &b);
	CHECK(strstr(buf_str(&b), "\\x1b") && !strstr(buf_str(&b), "0123"));
	for (int i = 0; i < 100000; i++)
		line_feed(&l, 'x');
	buf_clear(&b);
	line_draw(&l, "> ", 12, &b);
	CHECK(b.len < 100);
	line_done(&l);
}
