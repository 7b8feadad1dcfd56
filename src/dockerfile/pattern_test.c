#include "dockerfile/pattern.h"
#include "base/base.h"
#include "base/test.h"

TEST(stars_of_paths_stop_at_slashes)
{
	CHECK(path_match("*.c", "main.c"));
	CHECK(!path_match("*.c", "src/main.c"));
	CHECK(path_match("src/*/x", "src/a/x"));
	CHECK(!path_match("src/*/x", "src/a/b/x"));
	CHECK(path_match("a?c", "abc"));
	CHECK(!path_match("a?c", "a/c"));
	CHECK(path_match("a?c", "aéc"));
	CHECK(!path_match("a?c", "aéec"));
	CHECK(path_match("*", ""));
	CHECK(!path_match("?", ""));
}

TEST(double_stars_are_any_number_of_folders)
{
	CHECK(path_match("**/x", "x"));
	CHECK(path_match("**/x", "a/b/x"));
	CHECK(!path_match("**/x", "a/bx"));
	CHECK(path_match("a/**/x", "a/x"));
	CHECK(path_match("a/**/x", "a/b/c/x"));
	CHECK(!path_match("a/**/x", "ab/x"));
	CHECK(path_match("a/**", "a/b/c"));
	CHECK(!path_match("a/**", "a"));
	CHECK(path_match("**", "a/b"));
	CHECK(path_match("**.c", "a/b.c"));
	CHECK(!path_match("a**b", "axb"));
	CHECK(path_match("a**b", "ax/b"));
}

TEST(sets_have_ranges_and_may_be_negated)
{
	CHECK(path_match("[a-c]x", "bx"));
	CHECK(!path_match("[a-c]x", "dx"));
	CHECK(path_match("[^a-c]x", "dx"));
	CHECK(!path_match("[^/]x", "/x"));
	CHECK(path_match("[\\]]", "]"));
	CHECK(path_match("\\*", "*"));
	CHECK(!path_match("\\*", "x"));
}

TEST(patterns_without_an_end_are_refused)
{
	static const char *const bad[] = { "[", "[a", "[a-", "[]", "[a-]", "[-a]", "x\\", "[\\" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (path_pattern_ok(bad[i]))
			TEST_FAIL("'%s' was taken", bad[i]);
		CHECK(!path_match(bad[i], "a"));
	}
	CHECK(path_pattern_ok("a/**/[^b-d]*?\\["));
}

TEST(many_stars_do_not_take_long)
{
	char pattern[401], path[2001];

	for (size_t i = 0; i < 400; i++)
		pattern[i] = i % 2 ? 'a' : '*';
	pattern[400] = '\0';
	memset(path, 'a', 2000);
	path[1999] = 'b';
	path[2000] = '\0';
	CHECK(!path_match(pattern, path));
	path[1999] = 'a';
	CHECK(path_match(pattern, path));
}

TEST(prefixes_and_suffixes_have_a_shortest_and_a_longest)
{
	size_t a, b;

	CHECK_EQ(shell_prefix("*a", "xaya", &a, &b), 1);
	CHECK_EQ(a, 2);
	CHECK_EQ(b, 4);
	CHECK_EQ(shell_suffix("a*", "xaya", &a, &b), 1);
	CHECK_EQ(a, 3);
	CHECK_EQ(b, 1);
	CHECK_EQ(shell_suffix("é?", "aéü", &a, &b), 1);
	CHECK_EQ(a, 1);
	CHECK_EQ(shell_prefix("b", "xaya", &a, &b), 0);
	CHECK_EQ(shell_prefix("\\*", "*x", &a, &b), 1);
	CHECK_EQ(b, 1);
	CHECK_EQ(shell_suffix("\\*x", "a*x", &a, &b), 1);
	CHECK_EQ(a, 1);
	CHECK_EQ(shell_prefix("\\a", "a", &a, &b), -EINVAL);
	CHECK_EQ(shell_prefix("[", "[", &a, &b), 1);
}
