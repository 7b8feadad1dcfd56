/*
 * What a fork has changed since it was forked is done again in the sandbox it came from. docs/design/0008-diff.md says
 * what a conflict is, and what is left when it fails on the way.
 */
#pragma once
#include "service/sandbox/sandbox.h"

struct promote_result {
	uint64_t added, changed, removed; /* by the fork */
	const char *conflicts; /* a JSON array of paths that both changed differently, the first CONFLICTS_TOLD */
	uint64_t nconflicts;
};

/* @x with an error: there were conflicts, and nothing was done. NULL: *e says what went wrong. */
typedef void promote_fn(void *arg, const struct promote_result *x, const struct err *e);

#define CONFLICTS_TOLD 1000U

struct promote_request {
	struct sandbox *into, *from;
	bool force; /* conflicts: the fork's way */
};

/* -errno: not begun, and @fn is not called. */
int promote_start(const struct promote_request *w, const struct who *who, promote_fn *fn, void *arg, struct err *e);
