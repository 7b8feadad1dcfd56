/* Counts the calls of a token or a tenant. */
#include "service/access/rate.h"
#include "base/base.h"

#include <inttypes.h>

#define NS_PER_MS 1000000ULL
#define NS_PER_S 1000000000ULL

int rate_check(const struct rate_rule *r, struct err *e)
{
	if (!r->points)
		return 0;
	if (r->points > RATE_POINTS_MAX)
		return err_set(e, ERR_INVALID, -ERANGE, "rate: %" PRIu64 " points are more than the limit of %llu",
			       r->points, RATE_POINTS_MAX);
	if (!r->window_ms)
		return err_set(e, ERR_INVALID, -EINVAL, "rate: points need a window");
	if (r->window_ms > RATE_MS_MAX || r->block_ms > RATE_MS_MAX)
		return err_set(e, ERR_INVALID, -ERANGE, "rate: window and block must be at most 31 days");
	return 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * The bucket is kept as the time at which it will be full: a point costs the time it takes to come back. Then there is
 * nothing to refill, and no rest to carry.
 */
unsigned rate_take(const struct rate_rule *r, struct rate_bucket *b, uint64_t now_ns)
{
	uint64_t window, each, full, free_ns;

	if (!r->points)
		return 0;
	window = r->window_ms * NS_PER_MS;
	each = later(window / r->points, 1);
	full = later(b->full_ns, now_ns);
	if (full - now_ns > window)
		full = now_ns + window; /* the rule has changed in the meantime */
	b->full_ns = full;
	if (b->blocked_until_ns > now_ns + later(r->block_ms * NS_PER_MS, each))
		b->blocked_until_ns = 0;
	if (b->blocked_until_ns <= now_ns) {
		if (full - now_ns + each <= window) {
			b->full_ns = full + each;
			return 0;
		}
		free_ns = full + each - window; /* when one point is back */
		b->blocked_until_ns = later(now_ns + r->block_ms * NS_PER_MS, free_ns);
	}
	return (unsigned)((b->blocked_until_ns - now_ns + NS_PER_S - 1) / NS_PER_S);
}
