/*
 * For whom sandboxes are set up before they are asked for. Most clients ask for the same again and again: then all of
 * it can be there, image included, and a create only hands it out. For anybody else such a sandbox is of no use.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "engine/spec.h"

#define PREBUILT_LAYERED 4U /* on layers: as many requests, and one sandbox for each */
#define PREBUILT_KNOWN 8U /* those, and who was there once */

/* What stands on layers (a warm template) is asked for in turns with others, and one is enough: it is made anew at once. */
struct prebuilt_layered {
	struct sandbox_spec spec; /* the tenant's own */
	uint64_t number; /* 0 = asked for once */
	uint64_t asked; /* the larger, the later; 0 = not in use */
	uint64_t at; /* by the monotonic clock, in ns */
};

struct prebuilt {
	uint64_t number; /* of ->spec, never used twice; 0 = for nobody */
	uint64_t last_number;
	struct sandbox_spec spec, last; /* ->last: what was asked for last, if it can be made ahead */
	bool had;
	unsigned most; /* of ->layered that have a number, PREBUILT_LAYERED at most */
	uint64_t asked;
	struct prebuilt_layered layered[PREBUILT_KNOWN];
};

/* Whether @spec is what they stand for, whoever asks. */
bool prebuilt_same(const struct prebuilt *t, const struct sandbox_spec *spec);
/* The number of what stands for @spec, on layers or not; 0 = nothing does. */
uint64_t prebuilt_number(const struct prebuilt *t, const struct sandbox_spec *spec);
/* Whether anything that has @number is still of use. */
bool prebuilt_current(const struct prebuilt *t, uint64_t number);
/*
 * Somebody asked for @spec. Returns whether that changed for whom they stand: two in a row do; on layers, who comes a
 * second time, while not many others came in between.
 */
bool prebuilt_learn(struct prebuilt *t, const struct sandbox_spec *spec);
/* For nobody, until two in a row ask again. */
void prebuilt_forget(struct prebuilt *t);
/* No more for that one of the layered. */
void prebuilt_forget_layered(struct prebuilt *t, uint64_t number);
/* No more for those of the layered that nobody has asked for since @time (of the monotonic clock, in ns). */
void prebuilt_expire(struct prebuilt *t, uint64_t time);
/* No more for who is on @layer, which is going. Returns whether there was one. */
bool prebuilt_forget_layer(struct prebuilt *t, const char *layer);
