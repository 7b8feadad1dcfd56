/* A sandbox that nobody sees: neither named, listed nor stored, for as long as its files are needed. */
#pragma once
#include "service/sandbox/sandbox.h"

struct hidden;

/* Once: it stands, or @b is NULL and *e says why not. Not from within hidden_make. May free it. */
typedef void hidden_fn(void *arg, struct sandbox *b, const struct err *e);

/*
 * As @want says, which is taken over on success; but without network, secrets and end of its own. One that is a machine
 * and had a network has one that leads nowhere: nothing in it has to be changed for that. At most a few at once: ERR_EXHAUSTED;
 * and beyond what one promotion takes their memory and disks are in the tenant's quota: ERR_QUOTA.
 */
int hidden_make(struct service *s, struct tenant *t, struct sandbox_want *want, hidden_fn *fn, void *arg,
		struct hidden **ret, struct err *e);
struct sandbox *hidden_sandbox(const struct hidden *h); /* NULL: not yet, or it is gone */
void hidden_free(struct hidden *h); /* ends it */
