/* What tenants and tokens share. */
#pragma once
#include "service/access/access.h"

struct access {
	struct db *db;
	struct audit *audit;
	struct tenant *tenants, **last_tenant;
	struct tenant *gone; /* removed; kept, since calls under way may still name them */
	struct token *tokens, **last_token;
	struct token_key **table; /* by the first bytes of the hash; its size is a power of two */
	size_t size, keys;
};

/* A record of kind @kind for @who (may be NULL). */
struct json *access_note(struct access *x, const char *kind, const struct audit_rec *who);
void access_note_rate(struct json *j, const struct rate_rule *r);

int tenant_load(struct access *x, struct err *e);
int token_load(struct access *x, struct err *e);
/* of a tenant that is gone from the store */
void token_drop_all(struct access *x, const struct tenant *t, const struct audit_rec *who);
void token_free_all(struct access *x);
