/*
 * Shells made ahead, and sandboxes cleaned up behind, each by a thread of its own, so that neither is ever on a
 * request's path. A shell leaves the pool once and never comes back.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "warden/env.h"
#include "warden/root.h"
#include "warden/shell.h"

struct pool;

struct pool_item {
	struct shell shell;
	int upper; /* prepared with default options, or -1 */
};

struct pool_counts {
	unsigned ready, cleaning;
	uint64_t retries, failures;
};

int pool_new(struct env *v, unsigned target, struct pool **ret, struct err *e);
/* Ends every ready shell and waits for the cleaning. */
void pool_free(struct pool *p);
/* Waits for one if none is ready. A shell that died waiting is never handed out. */
int pool_take(struct pool *p, struct pool_item *ret, struct err *e);
/* Takes both over; -ENOMEM leaves them with the caller. */
int pool_clean(struct pool *p, struct shell *s, struct root *r);
void pool_counts(struct pool *p, struct pool_counts *ret);
void pool_wait(struct pool *p, unsigned ready);
