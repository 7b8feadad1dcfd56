/* What tenants and tokens share. */
#pragma once
#include "service/access/struct.h"
#include "store/db.h"

/* A hash by which a token is found: a token has two while a rotation's grace lasts. The module's own. */
struct token_key {
	struct token_key *next;
	struct token *token; /* NULL: not in the table */
	uint8_t hash[32];
};

struct token {
	char id[ID_SIZE];
	struct tenant *tenant;
	char name[TOKEN_NAME_MAX + 1];
	enum scope scope;
	uint64_t created_ns, expires_ns; /* wall clock; 0 = never */
	struct rate_rule rate;
	/* the module's own below */
	struct token_key key, old_key;
	uint64_t old_until_ns;
	struct rate_bucket bucket;
	struct token *next;
};

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
