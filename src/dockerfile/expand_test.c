#include "dockerfile/expand.h"
#include "base/base.h"
#include "base/test.h"

static const char *get(void *data, const char *name, size_t len)
{
	static const char *const vars[][2] = { { "HOME", "/root" },	{ "EMPTY", "" }, { "TWO", "a b" },
					       { "F", "dir/x.tar.gz" }, { "1", "one" },	 { "Ü", "u" } };

	(void)data;
	for (size_t i = 0; i < ARRAY_LEN(vars); i++)
		if (strlen(vars[i][0]) == len && memcmp(vars[i][0], name, len) == 0)
			return vars[i][1];
	return NULL;
}

static const struct {
	const char *text, *want; /* NULL: an error is expected */
} words[] = {
	{ "plain", "plain" },
	{ "$HOME/x", "/root/x" },
	{ "${HOME}x", "/rootx" },
	{ "'$HOME'", "$HOME" },
	{ "\"$HOME\"", "/root" },
	{ "\\$HOME", "$HOME" },
	{ "\"\\$HOME \\n\"", "$HOME \\n" },
	{ "a\\nb", "anb" },
	{ "end\\", "end" },
	{ "$", "$" },
	{ "$.", "$." },
	{ "$NONE.", "." },
	{ "$1x", "onex" },
	{ "$Ü", "u" },
	{ "${NONE:-x}", "x" },
	{ "${NONE-x}", "x" },
	{ "${EMPTY-x}", "" },
	{ "${EMPTY:-x}", "x" },
	{ "${HOME:+x}", "x" },
	{ "${EMPTY:+x}", "" },
	{ "${EMPTY+x}", "x" },
	{ "${NONE:-${HOME:-y}}z", "/rootz" },
	{ "${NONE:-'a}b'}", "a}b" },
	{ "${NONE:-\\}}", "}" },
	{ "${HOME?}", "/root" },
	{ "${NONE?}", NULL },
	{ "${EMPTY:?is empty}", NULL },
	{ "${F##*/}", "x.tar.gz" },
	{ "${F#*/}", "x.tar.gz" },
	{ "${F%.*}", "dir/x.tar" },
	{ "${F%%.*}", "dir/x" },
	{ "${F#nothing}", "dir/x.tar.gz" },
	{ "${F/tar/zip}", "dir/x.zip.gz" },
	{ "${F//[/x}", "dir/x.tar.gz" },
	{ "${F//./-}", "dir/x-tar-gz" },
	{ "${F/\\//:}", "dir:x.tar.gz" },
	{ "${F/*./}", "gz" },
	{ "${HOME", NULL },
	{ "${}", NULL },
	{ "${:-x}", NULL },
	{ "${HOME=x}", NULL },
	{ "${HOME:=x}", NULL },
	{ "${HOME:#x}", NULL },
	{ "${F/a", NULL },
	{ "${F#\\a}", NULL },
	{ "'open", NULL },
	{ "\"open", NULL },
	{ "a  'b  c'  d", "a  b  c  d" },
};

TEST(words_expand_as_in_a_shell)
{
	const struct expand x = { .get = get, .escape = '\\' };

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		AUTO(buf_done) struct buf b = BUF_INIT(EXPAND_MAX);
		struct err e = { 0 };
		int r = expand_word(&x, words[i].text, &b, &e);

		if (words[i].want && (r < 0 || strcmp(buf_str(&b), words[i].want) != 0))
			TEST_FAIL("%s is '%s' (%s), not '%s'", words[i].text, buf_str(&b), e.msg, words[i].want);
		if (!words[i].want && (r != -EINVAL || !strstr(e.msg, words[i].text)))
			TEST_FAIL("%s: %d, %s", words[i].text, r, e.msg);
	}
}

TEST(values_are_split_unless_quoted)
{
	const struct expand x = { .get = get, .escape = '`' };
	AUTO(words_done) struct words w = { 0 };

	CHECK_EQ(expand_words(&x, " $TWO \"$TWO\" c` d\\e '' f", &w, NULL), 0);
	CHECK_EQ(w.n, 5);
	CHECK_STR(w.at[0], "a");
	CHECK_STR(w.at[1], "b");
	CHECK_STR(w.at[2], "a b");
	CHECK_STR(w.at[3], "c d\\e");
	CHECK_STR(w.at[4], "f");
}

TEST(unset_variables_can_stay)
{
	const struct expand x = { .get = get, .escape = '\\', .keep_unset = true };
	AUTO(buf_done) struct buf b = BUF_INIT(EXPAND_MAX);

	CHECK_EQ(expand_word(&x, "$HOME $NONE ${NONE} ${NONE:-x}", &b, NULL), 0);
	CHECK_STR(buf_str(&b), "/root $NONE ${NONE} ${NONE:-x}");
}

TEST(nesting_and_growth_have_limits)
{
	const struct expand x = { .get = get, .escape = '\\' };
	AUTO(buf_done) struct buf b = BUF_INIT(100), deep = BUF_INIT(4096);
	struct err e = { 0 };

	for (unsigned i = 0; i < 40; i++)
		CHECK_EQ(buf_adds(&deep, "${N:-"), 0);
	CHECK_EQ(expand_word(&x, buf_str(&deep), &b, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, "nested");
	buf_clear(&b);
	buf_clear(&deep);
	for (unsigned i = 0; i < 50; i++)
		CHECK_EQ(buf_adds(&deep, "$HOME"), 0);
	CHECK_EQ(expand_word(&x, buf_str(&deep), &b, &e), -E2BIG);
	CHECK_EQ(e.kind, ERR_TOO_LARGE);
}
