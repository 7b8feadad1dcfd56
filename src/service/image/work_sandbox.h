/*
 * A hidden sandbox, in which commands run on behalf of a tenant: skopeo, which talks to registries, and the steps of a
 * build. It counts for the tenant's quotas, and has neither a name nor an entry in lists. It has a row, so that a
 * daemon that restarts ends it.
 */
#pragma once
#include "service/sandbox/sandbox.h"

struct work_sandbox;

/* Called once: it is ready, or @b is NULL and *e has the reason. Not from within work_sandbox_make. It may free @w. */
typedef void work_sandbox_fn(void *arg, struct sandbox *b, const struct err *e);

/* Makes it as in @request, which is taken over. */
struct work_sandbox *work_sandbox_make(struct service *s, const struct who *who, struct sandbox_request *request,
				       work_sandbox_fn *fn, void *arg);
struct sandbox *work_sandbox_get(const struct work_sandbox *w); /* NULL: not ready yet, or gone */
void work_sandbox_free(struct work_sandbox *w); /* ends it; NULL is allowed */
