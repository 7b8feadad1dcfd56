/*
 * For whom sandboxes are set up before they are asked for. Most clients ask for the same again and again: then all of
 * it can be there, image included, and a create only hands it out. For anybody else such a sandbox is of no use.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "warden/spec.h"

struct stand {
	uint64_t number; /* of ->spec, never used twice; 0 = for nobody */
	uint64_t last_number;
	struct sandbox_spec spec, last; /* ->last: what was asked for last, if it can be made ahead */
	bool had;
};

/* Whether @spec is what they stand for, whoever asks. */
bool stand_same(const struct stand *t, const struct sandbox_spec *spec);
/* Somebody asked for @spec. Returns whether that changed for whom they stand: two in a row do. */
bool stand_learn(struct stand *t, const struct sandbox_spec *spec);
/* For nobody, until two in a row ask again. */
void stand_forget(struct stand *t);
