#include "base/str.h"
#include "base/base.h"
#include "base/test.h"

#define UNTOUCHED 424242

static const struct {
	const char *text;
	uint64_t want;
} sizes[] = {
	{ "0", 0 },
	{ "4096", 4096 },
	{ "100k", 100 * KIB },
	{ "100K", 100 * KIB },
	{ "512M", 512 * MIB },
	{ "512m", 512 * MIB },
	{ "1G", GIB },
	{ "1GiB", GIB },
	{ "2T", 2048 * GIB },
	{ "007k", 7 * KIB },
	{ "18446744073709551615", UINT64_MAX },
	{ "16777215T", 16777215ULL << 40 },
};

TEST(sizes_have_binary_units)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint64_t v = UNTOUCHED;

		CHECK_EQ(parse_size(sizes[i].text, &v, NULL), 0);
		CHECK_EQ(v, sizes[i].want);
	}
}

TEST(odd_sizes_are_refused_and_quoted)
{
	static const char *const bad[] = { "",	   " ",	    "M",    "-1",  "+1",  " 1", "1 ",	"1 M",
					   "1.5G", "1e3",   "0x10", "1MB", "1KB", "1B", "1iB",	"1MM",
					   "1Mi",  "1miB2", "1P",   "\n",  "1\n", "٣",	"1,000" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		uint64_t v = UNTOUCHED;
		struct err e = { 0 };

		if (parse_size(bad[i], &v, &e) != -EINVAL)
			TEST_FAIL("'%s' was taken", bad[i]);
		CHECK_EQ(v, UNTOUCHED);
		CHECK_EQ(e.kind, ERR_INVALID);
		CHECK_CONTAINS(e.msg, bad[i]);
	}
}

TEST(sizes_past_64_bits_are_too_large)
{
	static const char *const bad[] = { "18446744073709551616", "99999999999999999999999", "16777216T",
					   "18014398509481984k" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		uint64_t v = UNTOUCHED;
		struct err e = { 0 };

		CHECK_EQ(parse_size(bad[i], &v, &e), -ERANGE);
		CHECK_EQ(v, UNTOUCHED);
		CHECK_CONTAINS(e.msg, "too large");
	}
}

TEST(durations_are_milliseconds)
{
	static const struct {
		const char *text;
		uint64_t want;
	} good[] = { { "0", 0 },	{ "30", 30000 },     { "30s", 30000 },	 { "250ms", 250 },
		     { "1.5s", 1500 },	{ "0.25", 250 },     { "5m", 300000 },	 { "0.5m", 30000 },
		     { "1h", 3600000 }, { "2d", 172800000 }, { "1.001s", 1001 }, { "3.0ms", 3 } };

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		uint64_t v = UNTOUCHED;

		CHECK_EQ(parse_duration(good[i].text, &v, NULL), 0);
		CHECK_EQ(v, good[i].want);
	}
}

TEST(odd_durations_are_refused)
{
	static const char *const bad[] = { "",	  "s",	 "-5s",	    "5 s",   "5min", "1h30m",
					   ".5s", "1.s", "1.0001s", "0.5ms", "1e2",  "5S" };
	static const char *const large[] = { "18446744073709551616", "18446744073709552s", "213503982335d",
					     "9223372037s", "106752d" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		uint64_t v = UNTOUCHED;
		struct err e = { 0 };

		if (parse_duration(bad[i], &v, &e) != -EINVAL)
			TEST_FAIL("'%s' was taken", bad[i]);
		CHECK_EQ(v, UNTOUCHED);
		CHECK_CONTAINS(e.msg, "invalid duration");
	}
	for (size_t i = 0; i < ARRAY_LEN(large); i++) {
		uint64_t v = UNTOUCHED;

		if (parse_duration(large[i], &v, NULL) != -ERANGE)
			TEST_FAIL("'%s' was taken", large[i]);
		CHECK_EQ(v, UNTOUCHED);
	}
}

TEST(cpus_are_thousandths)
{
	static const struct {
		const char *text;
		uint32_t want;
	} good[] = { { "0", 0 },       { "2", 2000 },  { "0.5", 500 },
		     { "1.25", 1250 }, { "0.001", 1 }, { "4294967", 4294967000 } };
	static const char *const bad[] = { "", ".", ".5", "1.", "1.2345", "-1", "1c", "500m", "1,5", "inf", "nan" };

	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		uint32_t v = UNTOUCHED;

		CHECK_EQ(parse_cpus(good[i].text, &v, NULL), 0);
		CHECK_EQ(v, good[i].want);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		uint32_t v = UNTOUCHED;
		struct err e = { 0 };

		if (parse_cpus(bad[i], &v, &e) != -EINVAL)
			TEST_FAIL("'%s' was taken", bad[i]);
		CHECK_EQ(v, UNTOUCHED);
		CHECK_CONTAINS(e.msg, "CPUs");
	}
	{
		uint32_t v = UNTOUCHED;

		CHECK_EQ(parse_cpus("4294968", &v, NULL), -ERANGE);
		CHECK_EQ(parse_cpus("99999999999999999999", &v, NULL), -ERANGE);
		CHECK_EQ(v, UNTOUCHED);
	}
}

TEST(plain_numbers_are_digits_only)
{
	uint64_t v = UNTOUCHED;
	struct err e = { 0 };

	CHECK_EQ(parse_u64("18446744073709551616", &v, &e), -ERANGE);
	CHECK_EQ(parse_u64("12x", &v, &e), -EINVAL);
	CHECK_EQ(parse_u64("", &v, &e), -EINVAL);
	CHECK_EQ(parse_u64("-0", &v, &e), -EINVAL);
	CHECK_EQ(v, UNTOUCHED);
	CHECK_EQ(parse_u64("18446744073709551615", &v, &e), 0);
	CHECK(v == UINT64_MAX);
}

TEST(long_text_is_cut_in_the_message)
{
	char text[2000];
	struct err e = { 0 };
	uint64_t v;

	memset(text, 'z', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	CHECK_EQ(parse_size(text, &v, &e), -EINVAL);
	CHECK_CONTAINS(e.msg, "like 512M");
}
