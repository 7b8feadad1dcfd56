/*
 * Which requests sandboxes are prebuilt for. Most clients send the same request again and again. A prebuilt sandbox has
 * everything that request needs, image included, so a create only hands it out; other requests cannot use it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/spec.h"

#define PREBUILT_LAYERED 4U /* on layers: as many requests */
#define PREBUILT_KNOWN 8U /* those, and specs that were asked for once */
#define PREBUILT_RECENT 64U /* requests in which one has to come again to have more than one sandbox */

/* Requests on layers (images, templates) come in turns. */
struct prebuilt_layered {
	struct sandbox_spec spec; /* the tenant's own */
	uint64_t number; /* 0 = asked for once */
	unsigned times; /* requests since it has its number */
	uint64_t asked; /* the larger, the later; 0 = not in use */
	uint64_t at; /* by the monotonic clock, in ns */
};

struct prebuilt {
	uint64_t number; /* of ->spec, never used twice; 0 = none */
	uint64_t last_number;
	struct sandbox_spec spec, last; /* ->last: what was asked for last, if it can be made ahead */
	bool had;
	unsigned most; /* of ->layered that have a number, PREBUILT_LAYERED at most */
	uint64_t asked, host_asked; /* the last request of all, and for ->spec */
	struct prebuilt_layered layered[PREBUILT_KNOWN];
};

/* Whether sandboxes are prebuilt for @spec, of any tenant. */
bool prebuilt_same(const struct prebuilt *t, const struct sandbox_spec *spec);
/* The number of what is prebuilt for @spec, on layers or not; 0 = nothing is. */
uint64_t prebuilt_number(const struct prebuilt *t, const struct sandbox_spec *spec);
/* Whether anything that has @number is still of use. */
bool prebuilt_current(const struct prebuilt *t, uint64_t number);
/* A request that sandboxes are prebuilt for: how many, at most. */
struct prebuilt_wish {
	const struct sandbox_spec *spec; /* valid as long as nothing is learned or forgotten */
	uint64_t number;
	unsigned most;
};
#define PREBUILT_WISHES (PREBUILT_KNOWN + 1)
/*
 * Shares @places out among the requests that came lately; others have one, and so has one with memory, whose processes take
 * much more than mounts do. One on layers has one, and one more for each time it came again. Returns how many there are.
 */
unsigned prebuilt_wishes(const struct prebuilt *t, unsigned places, struct prebuilt_wish ret[PREBUILT_WISHES]);
/*
 * Counts a request for @spec. Returns whether that changed what is prebuilt: two equal requests in a row do; on layers, a
 * second one does when not many others came in between.
 */
bool prebuilt_learn(struct prebuilt *t, const struct sandbox_spec *spec);
/* Nothing is prebuilt until there are two equal requests in a row again. */
void prebuilt_forget(struct prebuilt *t);
/* Nothing is prebuilt for that request on layers. */
void prebuilt_forget_layered(struct prebuilt *t, uint64_t number);
/* Nothing is prebuilt for requests on layers whose last one was before @time (of the monotonic clock, in ns). */
void prebuilt_expire(struct prebuilt *t, uint64_t time);
/* Forgets the spec on @layer, which is being removed. Returns whether there was one. */
bool prebuilt_forget_layer(struct prebuilt *t, const char *layer);
