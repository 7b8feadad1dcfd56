/*
 * Checks that the database belongs to the data folder, before any process is started that would act on its content. A
 * process of the API's user does it: root must not parse what that user may have written.
 */
#pragma once
#include "base/err.h"
#include "daemon/places.h"

#define STATE_QUARANTINE "quarantine"

struct manifest;

struct state_found {
	bool beside; /* there are layers, notes, or sandboxes that run */
	bool recover; /* the API process is to rebuild the database */
	struct manifest *layers; /* without notes that is all there is to rebuild it from: for as long as we live */
	unsigned nlayers;
};

/*
 * An error when the database is missing, empty, damaged, older than it was or another folder's, and there is something
 * beside it. With @recover what is there of it is moved to the quarantine instead.
 */
int state_check(const struct places *p, bool recover, struct state_found *ret, struct err *e);
