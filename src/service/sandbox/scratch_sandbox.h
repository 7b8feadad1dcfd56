/* A hidden sandbox: neither named, listed nor stored, for as long as its files are needed. */
#pragma once
#include "service/sandbox/sandbox.h"

struct scratch_sandbox;

/* Called once: it is ready, or @b is NULL and *e says why not. Not from within scratch_sandbox_make. May free it. */
typedef void scratch_sandbox_fn(void *arg, struct sandbox *b, const struct err *e);

/*
 * As @request says, which is taken over on success; but without network, secrets and end of its own. One that is a machine
 * and had a network has one that leads nowhere: nothing in it has to be changed for that. At most a few at once: ERR_EXHAUSTED;
 * and beyond what one promotion takes their memory and disks are in the tenant's quota: ERR_QUOTA.
 */
int scratch_sandbox_make(struct service *s, struct tenant *t, struct sandbox_request *request, scratch_sandbox_fn *fn,
			 void *arg, struct scratch_sandbox **ret, struct err *e);
struct sandbox *scratch_sandbox_get(const struct scratch_sandbox *h); /* NULL: not yet, or it is gone */
void scratch_sandbox_free(struct scratch_sandbox *h); /* ends it */
