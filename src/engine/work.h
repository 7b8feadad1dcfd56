/*
 * Work that takes long, done by threads of its own while the warden serves. A struct work contains all that its
 * function needs, and the function accesses nothing else. Finished work is returned by workers_done() to the thread
 * that gave it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct tier_ops;

struct work {
	struct work *next;
	void (*run)(struct work *w); /* in a worker's thread */
	void (*end)(struct work *w); /* frees it, when its result is not needed any more */
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
/* Makes all running work give up, waits for it, and ends what is left. */
void workers_free(struct workers *s);
void workers_add(struct workers *s, struct work *w);
/* Readable when something is done. */
int workers_fd(const struct workers *s);
/* What is done, the caller's again, or NULL. */
struct work *workers_done(struct workers *s);
