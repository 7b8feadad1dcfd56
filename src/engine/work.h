/*
 * Work that takes long, done by threads of its own while the warden serves: what it needs it brings along, and it sees
 * nothing else. What is done comes back by workers_done() to who gave it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct tier_ops;

struct work {
	struct work *next;
	void (*run)(struct work *w); /* in a worker's thread */
	void (*end)(struct work *w); /* frees it, when nobody will ask for it any more */
	const struct tier_ops *tier; /* whose it is (engine/tier.h); NULL: a seal */
	bool quiet; /* ended by the worker: it does not come back */
	/*
	 * What may take minutes, each kind for reasons of its own: neither ever has all workers, both together leave one free, and
	 * less than half of them is the most either has, if there are so many. Work that waits leaves one of these to other tenants, too.
	 */
	bool waits; /* for an untrusted process */
	uint64_t tenant; /* whose that is */
	bool slow; /* there is much to do */
	int stop; /* atomic: set when it should give up soon */
};

struct workers;

int workers_new(unsigned count, struct workers **ret, struct err *e);
/* Tells all that is under way to give up, waits for it, and ends what is left. */
void workers_free(struct workers *s);
void workers_add(struct workers *s, struct work *w);
/* Readable when something is done. */
int workers_fd(const struct workers *s);
/* What is done, the caller's again, or NULL. */
struct work *workers_done(struct workers *s);
