#include "base/clock.h"
#include "base/base.h"
#include "base/test.h"

#include <time.h>

TEST(monotonic_time_moves_forward)
{
	uint64_t a = clock_mono_ns(), b;

	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	b = clock_mono_ns();
	CHECK(b - a >= 2000000);
	CHECK(b - a < 10000000000ULL);
}

TEST(real_time_is_the_wall_clock)
{
	uint64_t ns = clock_real_ns();
	time_t s = time(NULL);

	CHECK((uint64_t)s * 1000000000ULL + 2000000000ULL > ns);
	CHECK(ns + 2000000000ULL > (uint64_t)s * 1000000000ULL);
}

TEST(iso_is_utc_with_milliseconds)
{
	char b[32];

	clock_iso(0, b);
	CHECK_STR(b, "1970-01-01T00:00:00.000Z");
	clock_iso(1709209845987654321ULL, b);
	CHECK_STR(b, "2024-02-29T12:30:45.987Z");
	setenv("TZ", "Asia/Tokyo", 1);
	tzset();
	clock_iso(1709209845007000000ULL, b);
	CHECK_STR(b, "2024-02-29T12:30:45.007Z");
}
