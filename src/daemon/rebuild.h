/*
 * Checkpoints from the manifests of layers alone, when the database and the notes of its rows are gone. What a manifest does not
 * say is lost: names, limits, environment, which processes ran. Tenants are known by their numbers.
 */
#pragma once
#include "layers/manifest.h"
#include "store/db.h"

/* Does nothing with a database that is not new. */
int rebuild(struct db *d, const struct manifest *layers, unsigned n, struct err *e);
