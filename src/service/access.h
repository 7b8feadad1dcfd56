/* Who may: tenants, their quotas, tokens, rates. All in memory, written through to the store and the audit log. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "audit/audit.h"
#include "base/err.h"
#include "base/id.h"
#include "store/db.h"

enum scope { SCOPE_NONE, SCOPE_READ, SCOPE_EXEC, SCOPE_SANDBOX, SCOPE_ADMIN };
const char *scope_name(enum scope s);
int scope_parse(const char *text, enum scope *ret, struct err *e);

#define TENANT_NAME_MAX 32
#define TOKEN_PREFIX "cloche_"

struct rate_rule {
	uint64_t points, window_ms, block_ms; /* 0 points = no limit */
};

struct tenant_quota { /* 0 = no limit */
	uint64_t sandboxes, cpu_milli, memory, disk, execs;
};

struct tenant {
	char id[TENANT_NAME_MAX + 1];
	uint64_t number;
	struct tenant_quota quota, used; /* ->used counts what lives now */
	struct rate_rule rate; /* default for its tokens */
	uint64_t created_ns;
	/* the module's own below */
	struct tenant *next;
};

struct token {
	char id[ID_SIZE];
	struct tenant *tenant;
	char name[65];
	enum scope scope;
	uint64_t created_ns, expires_ns;
	struct rate_rule rate;
	/* the module's own below */
	uint8_t hash[32], old_hash[32];
	uint64_t old_until_ns;
	uint64_t tokens_milli, refilled_ns, blocked_until_ns; /* the bucket */
	struct token *next;
};

struct access;

/* Loads all. A new store gets tenant "default" and no token. */
int access_new(struct db *d, struct audit *a, struct access **ret, struct err *e);
void access_free(struct access *x);

struct tenant *tenant_find(struct access *x, const char *id);
struct tenant *tenant_first(struct access *x); /* then ->next */
int tenant_add(struct access *x, const char *id, struct tenant **ret, struct err *e); /* ERR_CONFLICT */
int tenant_save(struct access *x, const struct tenant *t, struct err *e); /* after a change of quota or rate */
int tenant_remove(struct access *x, struct tenant *t, struct err *e); /* ERR_CONFLICT while it has sandboxes; its tokens go too */

/* ->used plus @want within ->quota: then it is counted. ERR_QUOTA names what is full, how much there is and what was asked. */
int tenant_take(struct tenant *t, const struct tenant_quota *want, struct err *e);
void tenant_give(struct tenant *t, const struct tenant_quota *had);

#define TOKEN_TEXT_MAX 64
/* The secret's text is written to @text once, and nowhere else. */
int token_add(struct access *x, struct tenant *t, const char *name, enum scope scope, uint64_t expires_ns, const struct rate_rule *rate,
	      char text[TOKEN_TEXT_MAX], struct token **ret, struct err *e);
/* A token whose text is known beforehand (from a file of the admin's). Adding the same twice is fine. */
int token_add_known(struct access *x, struct tenant *t, const char *name, enum scope scope, const char *text, struct err *e);
int token_rotate(struct access *x, struct token *k, uint64_t grace_ms, char text[TOKEN_TEXT_MAX], struct err *e);
int token_remove(struct access *x, struct token *k, struct err *e);
struct token *token_find(struct access *x, const char *id);
struct token *token_first(struct access *x); /* then ->next */
/*
 * The one whose text this is: by hash, compared in constant time. ERR_UNAUTHORIZED for unknown, expired, revoked. Then its rate is charged
 * one point: ERR_RATE with *ret_retry_s.
 */
int token_check(struct access *x, const char *text, struct token **ret, unsigned *ret_retry_s, struct err *e);
