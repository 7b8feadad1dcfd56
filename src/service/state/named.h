/*
 * Things that a tenant has by name: templates, pools, secrets. Each kind says here how it is found, listed, written and removed,
 * so that callers of the API need no code of their own for each.
 */
#pragma once
#include "base/json.h"
#include "service/service.h"

struct named {
	void *what;
	const struct tenant *tenant;
	const char *name; /* NULL: it is not to be seen */
};

struct named_kind {
	const char *plural; /* what a list of them is called: "templates" */
	/* NULL and ERR_NOT_FOUND. */
	void *(*find)(struct service *s, const struct tenant *t, const char *name, struct err *e);
	/* any of them; *at is 0 at first. Without ->what: that were all */
	struct named (*next)(const struct service *s, size_t *at);
	void (*write)(const void *x, struct json *j); /* the wire's shape, as one object */
	/* stored with the turn; @x may be gone afterwards */
	int (*remove)(void *x, const struct who *who, struct err *e);
};

/* Those of the tenant (NULL: all), by tenant and name; to be freed. */
int named_list(const struct service *s, const struct named_kind *k, const struct tenant *t, struct named **ret,
	       size_t *ret_n);
