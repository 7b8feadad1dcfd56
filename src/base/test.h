/*
 * Unit tests: one program per *_test.c, output in TAP. A test's name is a sentence.
 *
 *	TEST(add_past_limit_fails_and_keeps_content)
 *	{
 *		CHECK_EQ(buf_add(&b, "x", 1), -E2BIG);
 *	}
 *
 * A failed CHECK prints the place and the expression, and returns from the function that contains it (the caller of a
 * helper continues). SKIP says what this machine lacks; the runner counts it as a failure when skips are forbidden.
 */
#pragma once
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct test {
	const char *name;
	void (*fn)(void);
	struct test *next;
};

static struct {
	struct test *first, **last;
	unsigned failed; /* checks of the running test */
	const char *skip;
} test_state = { .last = &test_state.first };

#define TEST(name_)                                                                                                    \
	static void test_##name_(void);                                                                                \
	__attribute__((constructor)) static void test_add_##name_(void)                                                \
	{                                                                                                              \
		static struct test t = { .name = #name_, .fn = test_##name_ };                                         \
                                                                                                                       \
		*test_state.last = &t;                                                                                 \
		test_state.last = &t.next;                                                                             \
	}                                                                                                              \
	static void test_##name_(void)

#define TEST_FAIL(...)                                                                                                 \
	do {                                                                                                           \
		printf("# %s:%d: ", __FILE__, __LINE__);                                                               \
		printf(__VA_ARGS__);                                                                                   \
		putchar('\n');                                                                                         \
		test_state.failed++;                                                                                   \
		return;                                                                                                \
	} while (0)

#define CHECK(cond)                                                                                                    \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			TEST_FAIL("%s", #cond);                                                                        \
	} while (0)

/* Integers of any type up to 64 bits. */
#define CHECK_EQ(got, want)                                                                                            \
	do {                                                                                                           \
		long long test_got_ = (long long)(got), test_want_ = (long long)(want);                                \
		if (test_got_ != test_want_)                                                                           \
			TEST_FAIL("%s is %lld, not %lld", #got, test_got_, test_want_);                                \
	} while (0)

#define CHECK_STR(got, want)                                                                                           \
	do {                                                                                                           \
		const char *test_got_ = (got), *test_want_ = (want);                                                   \
		if (strcmp(test_got_, test_want_))                                                                     \
			TEST_FAIL("%s is '%s', not '%s'", #got, test_got_, test_want_);                                \
	} while (0)

#define CHECK_CONTAINS(got, part)                                                                                      \
	do {                                                                                                           \
		const char *test_got_ = (got), *test_part_ = (part);                                                   \
		if (!strstr(test_got_, test_part_))                                                                    \
			TEST_FAIL("%s is '%s', without '%s'", #got, test_got_, test_part_);                            \
	} while (0)

#define SKIP(reason)                                                                                                   \
	do {                                                                                                           \
		test_state.skip = (reason);                                                                            \
		return;                                                                                                \
	} while (0)

static inline void test_print_name(const char *name)
{
	for (; *name; name++)
		putchar(*name == '_' ? ' ' : *name);
}

int main(void)
{
	unsigned n = 0, bad = 0;

	/* A child that a test forks must not print what its parent had buffered. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (const struct test *t = test_state.first; t; t = t->next)
		n++;
	printf("1..%u\n", n);
	n = 0;
	for (const struct test *t = test_state.first; t; t = t->next) {
		test_state.failed = 0;
		test_state.skip = NULL;
		t->fn();
		printf("%s %u - ", test_state.failed ? "not ok" : "ok", ++n);
		test_print_name(t->name);
		if (test_state.skip)
			printf(" # SKIP %s", test_state.skip);
		putchar('\n');
		bad += test_state.failed > 0;
	}
	return bad ? 1 : 0;
}
