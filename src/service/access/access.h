/*
 * Access: tenants, their quotas, tokens, rates. All in memory, written through to the store and the audit log.
 *
 * Functions that change something take @who: its tenant, token and request_id go into the one audit record of the
 * change (NULL: the daemon itself). A token stays at its address until it is removed; a callback that comes later than
 * this turn keeps its id, not its address. A tenant's address stays valid for ever: a removed one is tenant_gone() and not
 * found any more.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "audit/audit.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"
#include "service/access/rate.h"

enum scope { SCOPE_NONE, SCOPE_READ, SCOPE_EXEC, SCOPE_SANDBOX, SCOPE_ADMIN };
const char *scope_name(enum scope s);
int scope_parse(const char *text, enum scope *ret, struct err *e); /* not "none" */

#define TENANT_DEFAULT "default"
#define TENANT_NAME_MAX 32
#define TOKEN_PREFIX "cloche_"
#define TOKEN_NAME_MAX 64

struct tenant_quota { /* 0 = no limit */
	uint64_t sandboxes, cpu_milli, memory, disk, execs, checkpoints, checkpoint_bytes, secrets, image_bytes, gpus;
};

struct db;
struct tenant;
struct token;

/* What callers of a tenant keep busy: counted by those who serve them. */
struct tenant_calls {
	unsigned conns; /* connections, and bytes of answers they have not taken yet */
	size_t unsent;
	size_t bodies; /* bytes of large bodies of requests, as far as they have come */
	unsigned archives, builds, exports; /* under way; exports: of images */
};

/* By what a token was let in: the beginning of its text's hash. Zeros: by none. */
struct token_mark {
	uint8_t hash[16];
};

/* The caller of a request. A copy is valid as long as the tenant has a sandbox, or one in the making. */
struct who {
	struct tenant *tenant;
	char token[ID_SIZE]; /* "" = by the unix socket's credentials */
	enum scope scope;
	char request_id[65]; /* "" = the daemon itself */
	struct token_mark mark; /* of the text that let it in */
};

/* The common fields of an audit record; refers to @w. */
struct audit_rec who_rec(const struct who *w, const char *kind);

struct access;

/* Loads all. A new store gets tenant "default" and no token. */
int access_new(struct db *d, struct audit *a, struct access **ret, struct err *e);
void access_free(struct access *x);
DEFINE_AUTO(struct access, access_free)

struct tenant *tenant_find(struct access *x, const char *id);
struct tenant *tenant_first(struct access *x); /* oldest first */
struct tenant *tenant_next(const struct tenant *t);
const char *tenant_id(const struct tenant *t);
struct tenant_calls *tenant_calls(struct tenant *t);
/* Bytes in memory of what its contexts have said: of frames that are not whole, and of answers that are not complete. */
size_t *tenant_events(struct tenant *t);
bool tenant_gone(const struct tenant *t); /* removed: nothing can be taken any more */
struct tenant_view {
	const char *id;
	struct tenant_quota quota, used;
	struct rate_rule rate; /* of its tokens that have none */
	uint64_t created_ns;
};
struct tenant_view tenant_view(const struct tenant *t);
/* @quota and @rate may be NULL: none. ERR_CONFLICT when the name is taken, ERR_INVALID for a bad name or rate. */
int tenant_add(struct access *x, const char *id, const struct tenant_quota *quota, const struct rate_rule *rate,
	       const struct audit_rec *who, struct tenant **ret, struct err *e);
/* NULL: stays as it is. What is used already is not taken away by a smaller quota. */
int tenant_set(struct access *x, struct tenant *t, const struct tenant_quota *quota, const struct rate_rule *rate,
	       const struct audit_rec *who, struct err *e);
/* ERR_CONFLICT while it has sandboxes or checkpoints, and for "default". Its tokens go too, each with a record of its own. */
int tenant_remove(struct access *x, struct tenant *t, const struct audit_rec *who, struct err *e);

/*
 * If ->used plus @want is within ->quota, it is counted. Otherwise ERR_QUOTA names the quota, its use and the
 * request.
 */
int tenant_take(struct tenant *t, const struct tenant_quota *want, struct err *e);
/* Counts without asking: what is found again after a restart. */
void tenant_force(struct tenant *t, const struct tenant_quota *want);
void tenant_give(struct tenant *t, const struct tenant_quota *had);

#define TOKEN_TEXT_MAX 64
/*
 * @prefix (20 bytes at most) and 43 characters that encode 32 random bytes; and the hash that is stored of such a
 * text.
 */
int token_text_new(const char *prefix, char text[TOKEN_TEXT_MAX], struct err *e);
void token_text_hash(const char *text, uint8_t ret[32]);
/* The secret's text is written to @text once, and nowhere else. @name and @rate may be NULL. */
int token_add(struct access *x, struct tenant *t, const char *name, enum scope scope, uint64_t expires_ns,
	      const struct rate_rule *rate, const struct audit_rec *who, char text[TOKEN_TEXT_MAX], struct token **ret,
	      struct err *e);
/*
 * A token whose text is known beforehand (from a file of the admin's): 16 to 128 printable ASCII characters without
 * spaces. Adding the same twice is fine and noted once; the same text for another tenant or scope is ERR_CONFLICT.
 */
int token_add_known(struct access *x, struct tenant *t, const char *name, enum scope scope, const char *text,
		    const struct audit_rec *who, struct err *e);
/* The present text stays valid for @grace_ms; one from an earlier rotation ends at once. */
int token_rotate(struct access *x, struct token *k, uint64_t grace_ms, const struct audit_rec *who,
		 char text[TOKEN_TEXT_MAX], struct err *e);
int token_remove(struct access *x, struct token *k, const struct audit_rec *who, struct err *e);
struct token *token_find(struct access *x, const char *id);
struct token *token_first(struct access *x); /* oldest first */
struct token *token_next(const struct token *k);
struct token_view {
	const char *id, *name;
	struct tenant *tenant;
	enum scope scope;
	uint64_t created_ns, expires_ns; /* wall clock; 0 = never */
	uint64_t old_until_ns; /* until when the text before the last rotation is valid; it may be over */
	struct rate_rule rate;
};
struct token_view token_view(const struct token *k);
/*
 * Finds the token of a text: by hash, compared in constant time. ERR_UNAUTHORIZED for unknown, expired, revoked. Then
 * its rate is charged one point: ERR_RATE with *ret_retry_s (and *ret, so that the refusal can be logged with the
 * token).
 */
int token_check(struct access *x, const char *text, struct token **ret, struct token_mark *ret_mark,
		unsigned *ret_retry_s, struct err *e);
/* The same for a further call on a connection that the text with this mark opened. */
int token_more(struct access *x, const struct token_mark *m, unsigned *ret_retry_s, struct err *e);
/* Whether the text with this mark would be accepted now: for connections that last longer than a call. */
bool token_still(struct access *x, const struct token_mark *m);
