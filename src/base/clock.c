/* Reads clocks, and writes times as text. */
#include "base/clock.h"
#include "base/base.h"

#include <time.h>

static uint64_t now(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
	return now(CLOCK_MONOTONIC);
}

uint64_t clock_real_ns(void)
{
	return now(CLOCK_REALTIME);
}

uint64_t clock_booted_s(void)
{
	uint64_t real = now(CLOCK_REALTIME), up = now(CLOCK_BOOTTIME);

	return real > up ? (real - up) / 1000000000ULL : 0; /* a clock that starts in 1970, before it is set */
}

int64_t clock_ahead_ns(void)
{
	const uint64_t up = now(CLOCK_BOOTTIME);

	return (int64_t)(now(CLOCK_REALTIME) - up);
}

void clock_iso(uint64_t real_ns, char *buf)
{
	time_t s = (time_t)(real_ns / 1000000000ULL);
	struct tm tm;
	size_t n;

	gmtime_r(&s, &tm);
	n = strftime(buf, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(buf + n, 32 - n, ".%03uZ", (unsigned)(real_ns / 1000000ULL % 1000));
}
