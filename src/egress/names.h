/*
 * The names of one sandbox that have a synthetic address: index i is 198.18.1.0 + i and fd63:6c6f:6368:65::1:0 + i.
 * Programs keep addresses for long, so a place is given to another name only when all are taken, it is the least
 * recently used one, no stream uses it, and NAMES_REST has passed since.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "egress/msg.h"
#include "proto/net_rule.h"

#define NAMES_REST 120U /* seconds; twice what the DNS answers say */

#define WINDOW_STEP 5U /* seconds */
#define WINDOW_STEPS 13U /* a minute, and the step that has begun */

struct window { /* what was of late */
	uint32_t step; /* the current one, since the clock began */
	uint32_t n[WINDOW_STEPS]; /* by step modulo that */
};

struct name {
	uint32_t streams; /* that use it now */
	uint32_t used; /* seconds */
	struct window *window; /* budget "requests"; NULL: none was counted yet */
	uint16_t index;
	bool told; /* was reported to the owner */
	char text[];
};

struct names {
	struct name **at; /* NULL: a hole */
	uint32_t *hash;
	uint32_t n, room;
	uint32_t untold;
};

void names_done(struct names *s);
/* Finds or makes. NULL: none is free, or no memory. Marks it as used. */
struct name *names_get(struct names *s, const char *text, uint32_t now_sec);
struct name *names_at(const struct names *s, uint32_t index); /* NULL: the index is free */
/* Restores a name at its index, as reported. -EINVAL: not a name, -EBUSY: another name uses the index, -ENOMEM. */
int names_set(struct names *s, uint32_t index, const char *text, uint32_t now_sec);
/* Fills in up to EGRESS_BATCH names that were not reported yet, and marks them as reported. Returns their number. */
uint32_t names_tell(struct names *s, struct egress_names *ret);

void names_v4(uint32_t index, uint8_t ret[4]);
void names_v6(uint32_t index, uint8_t ret[16]);
/* Whether that is one of ours: the index, else -1. -2: ours, but no name's (198.18.0.x, ...::1, beyond the last). */
int names_index(const struct net_addr *a);
