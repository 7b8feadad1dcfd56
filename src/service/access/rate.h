/*
 * How often a token or a tenant may call: a bucket of ->points that fills up evenly, all of it once per window. A call
 * that finds it empty is refused; so are further ones for ->block_ms, and at least until there is a point again.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"

struct rate_rule {
	uint64_t points, window_ms, block_ms; /* 0 points = no limit */
};
#define RATE_POINTS_MAX 1000000000ULL
#define RATE_MS_MAX (31ULL * 24 * 3600 * 1000)

/* All zeros: full. Times are of the monotonic clock. */
struct rate_bucket {
	uint64_t full_ns; /* when it will be full again, without further calls */
	uint64_t blocked_until_ns;
};

/* ERR_INVALID for a rule that makes no sense: points without a window, or beyond the maxima above. */
int rate_check(const struct rate_rule *r, struct err *e);
/* Takes one point. 0, or how many seconds to stay away, rounded up. */
unsigned rate_take(const struct rate_rule *r, struct rate_bucket *b, uint64_t now_ns);
