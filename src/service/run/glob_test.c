#include "service/run/glob.h"

#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

static bool matches(const char *pattern, const char *text)
{
	uint64_t left = 10000;

	return glob_match(pattern, text, &left);
}

TEST(stars_marks_and_sets_match)
{
	CHECK(matches("*.png", "a.png"));
	CHECK(matches("*.png", "out/b.png"));
	CHECK(matches("out/*", "out/deep/c"));
	CHECK(matches("a*b*c", "a-b-b-c"));
	CHECK(matches("?.txt", "a.txt"));
	CHECK(matches("*", ""));
	CHECK(matches("[a-c]x[!0-9]", "bx-"));
	CHECK(matches("[]-]*", "]"));
	CHECK(matches("[\\]]", "]"));
	CHECK(matches("\\*", "*"));
	CHECK(matches("a[", "a["));
	CHECK(matches("[a-", "[a-"));
	CHECK(matches("a\\", "a\\"));
}

TEST(what_differs_does_not_match)
{
	CHECK(!matches("*.png", "a.png.txt"));
	CHECK(!matches("?", ""));
	CHECK(!matches("a", "ab"));
	CHECK(!matches("ab", "a"));
	CHECK(!matches("[a-c]", "d"));
	CHECK(!matches("[!a-c]", "b"));
	CHECK(!matches("\\*", "x"));
	CHECK(!matches("a*b*c", "a-b-b-"));
}

TEST(a_pattern_that_needs_many_steps_matches_nothing_when_they_are_used_up)
{
	static char pattern[1024] = "*", text[4096];
	uint64_t left = 1000000, since = clock_mono_ns();

	memset(text, 'a', sizeof(text) - 1);
	for (unsigned i = 0; i < 200; i++)
		memcpy(pattern + 1 + 5 * i, "[x/a]", 5);
	pattern[1001] = 'y'; /* the text has none */
	CHECK(!glob_match(pattern, text, &left));
	CHECK_EQ(left, 0);
	CHECK(!glob_match("*", text, &left));
	CHECK(clock_mono_ns() - since < 1000000000ULL);
}
