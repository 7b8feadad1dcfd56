/*
 * Which requests sandboxes are prebuilt for. Most clients send the same request again and again. A prebuilt sandbox has
 * everything that request needs, image included, so a create only hands it out; other requests cannot use it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/spec.h"

#define PREBUILT_LAYERED 4U /* requests on layers that sandboxes are prebuilt for, at most */
#define PREBUILT_KNOWN 8U /* specs on layers that are remembered, including those that were requested once */
#define PREBUILT_RECENT 64U /* a request counts as repeated if it comes again within so many */

/* Requests on layers (images, templates) come in turns. */
struct prebuilt_layered {
	struct sandbox_spec spec; /* with the tenant */
	uint64_t number; /* 0: requested once */
	unsigned times; /* how often it was requested since it has its number */
	uint64_t asked; /* position in the order of requests, the latest is the largest; 0: not in use */
	uint64_t at; /* time of the last request, by the monotonic clock, in ns */
};

struct prebuilt {
	uint64_t number; /* number of ->spec; a number is never used twice. 0: none */
	uint64_t last_number;
	struct sandbox_spec spec, last; /* ->last: the spec that was requested last, if it can be prebuilt */
	bool had;
	unsigned most; /* how many of ->layered may have a number, PREBUILT_LAYERED at most */
	uint64_t asked, host_asked; /* positions of the last request, and of the last one for ->spec */
	struct prebuilt_layered layered[PREBUILT_KNOWN];
};

/* Whether sandboxes are prebuilt for @spec, of any tenant. */
bool prebuilt_same(const struct prebuilt *t, const struct sandbox_spec *spec);
/* The number of what is prebuilt for @spec, on layers or not; 0 = nothing is. */
uint64_t prebuilt_number(const struct prebuilt *t, const struct sandbox_spec *spec);
/* Whether sandboxes that were prebuilt under @number are still needed. */
bool prebuilt_current(const struct prebuilt *t, uint64_t number);
/* A request that sandboxes are prebuilt for, and how many at most. */
struct prebuilt_wish {
	const struct sandbox_spec *spec; /* valid as long as nothing is learned or forgotten */
	uint64_t number;
	unsigned most;
	uint64_t asked;
};
#define PREBUILT_WISHES (PREBUILT_KNOWN + 1)
/*
 * Distributes @places among the requests that came lately. A request that did not come lately gets one, and so does one
 * with memory, since processes take much more than mounts. A request on layers gets one, and one more for each time it
 * was repeated. Returns the number of wishes; the one that was requested longest ago is the first.
 */
unsigned prebuilt_wishes(const struct prebuilt *t, unsigned places, struct prebuilt_wish ret[PREBUILT_WISHES]);
/*
 * Counts a request for @spec. Returns whether that changed what is prebuilt: two equal requests in a row do; on layers, a
 * second one does when not many others came in between.
 */
bool prebuilt_learn(struct prebuilt *t, const struct sandbox_spec *spec);
/* Forgets the request that has @number: nothing is prebuilt for it until it comes twice again. */
void prebuilt_forget(struct prebuilt *t, uint64_t number);
/* Forgets requests on layers that did not come since @time (of the monotonic clock, in ns). */
void prebuilt_expire(struct prebuilt *t, uint64_t time);
/* Forgets the spec on @layer, which is being removed. Returns whether there was one. */
bool prebuilt_forget_layer(struct prebuilt *t, const char *layer);
