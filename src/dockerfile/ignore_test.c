#include "dockerfile/ignore.h"
#include "base/base.h"
#include "base/test.h"

static bool out(const char *patterns, const char *path)
{
	AUTO(ignore_done) struct ignore ig = { 0 };

	return ignore_parse(patterns, strlen(patterns), &ig, NULL) == 0 && ignore_has(&ig, path);
}

TEST(patterns_leave_out_files_and_all_in_folders)
{
	CHECK(out("*.o\n", "a.o"));
	CHECK(!out("*.o\n", "b/a.o"));
	CHECK(out("**/*.o", "b/c/a.o"));
	CHECK(out("/build/", "build/x/y"));
	CHECK(out("./a/../b", "b"));
	CHECK(out("# c\n  b  \r\n", "b"));
	CHECK(!out("# c\n", "# c"));
	CHECK(!out("build", "builder"));
	CHECK(!out("", "x"));
}

TEST(the_last_match_decides)
{
	CHECK(out("*\n!src", "x"));
	CHECK(!out("*\n!src", "src/x"));
	CHECK(out("*\n!src\nsrc/x", "src/x"));
	CHECK(!out("!src", "src"));
	CHECK(!out("*\n!src/keep", "src/keep/a"));
	CHECK(out("*\n!src/keep", "src/other"));
}

TEST(folders_are_skipped_only_when_nothing_in_them_comes_back)
{
	AUTO(ignore_done) struct ignore ig = { 0 };

	CHECK_EQ(ignore_parse("a\nb\n!b/c/d\n", 11, &ig, NULL), 0);
	CHECK(ignore_prunes(&ig, "a"));
	CHECK(!ignore_prunes(&ig, "b"));
	CHECK(ignore_prunes(&ig, "b/x"));
	CHECK(!ignore_prunes(&ig, "b/c"));
	CHECK(!ignore_prunes(&ig, "x"));
	CHECK_EQ(ignore_add(&ig, "!**/z", NULL), 0);
	CHECK(!ignore_prunes(&ig, "a"));
}

TEST(bad_patterns_name_their_line)
{
	struct ignore ig = { 0 };
	struct err e = { 0 };

	CHECK_EQ(ignore_parse("a\n\n[b\n", 6, &ig, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, "line 3: invalid pattern '[b'");
	CHECK_EQ(ignore_parse("!\n", 2, &ig, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, "line 1: '!'");
}
