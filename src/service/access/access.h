/*
 * Who may: tenants, their quotas, tokens, rates. All in memory, written through to the store and the audit log.
 *
 * Whoever changes something says for whom: of @who the tenant, token and request_id go into the one audit record of the
 * change (NULL: the daemon itself). A token stays where it is until it is removed; what waits for longer than a turn
 * keeps its id, not its address. A tenant stays for good: one that was removed is ->gone and not found any more.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "audit/audit.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"
#include "service/access/rate.h"
#include "service/exec/spool.h"
#include "store/db.h"

enum scope { SCOPE_NONE, SCOPE_READ, SCOPE_EXEC, SCOPE_SANDBOX, SCOPE_ADMIN };
const char *scope_name(enum scope s);
int scope_parse(const char *text, enum scope *ret, struct err *e); /* not "none" */

#define TENANT_DEFAULT "default"
#define TENANT_NAME_MAX 32
#define TOKEN_PREFIX "cloche_"
#define TOKEN_NAME_MAX 64

struct tenant_quota { /* 0 = no limit */
	uint64_t sandboxes, cpu_milli, memory, disk, execs, checkpoints, checkpoint_bytes, secrets;
};

struct tenant {
	char id[TENANT_NAME_MAX + 1];
	uint64_t number;
	struct tenant_quota quota, used; /* ->used counts what lives now */
	struct rate_rule rate; /* of its tokens that have none */
	uint64_t created_ns;
	bool gone; /* removed: nothing can be taken any more */
	unsigned archives; /* under way */
	unsigned comparing, scratch_sandboxes,
		clones; /* likewise: service/checkpoint/compare.h, scratch_sandbox.h; those of them that are machines */
	unsigned conns; /* connections, and bytes of answers they have not taken yet */
	size_t unsent;
	struct spool_room spooled; /* output of its execs, in files */
	size_t pending, history, kept; /* bytes of its execs in memory: service/exec/kept.c; of their output: end.c */
	struct exec *history_first, **history_last;
	uint64_t loose, looser; /* bytes of layers that no checkpoint of its has; being counted anew: service/checkpoint/layer.h */
	/* the module's own below */
	struct tenant *next;
};

struct token;
struct exec;
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

/* By what a token was let in: the beginning of its text's hash. Zeros: by none. */
struct token_mark {
	uint8_t hash[16];
};

struct access;

/* Loads all. A new store gets tenant "default" and no token. */
int access_new(struct db *d, struct audit *a, struct access **ret, struct err *e);
void access_free(struct access *x);
DEFINE_AUTO(struct access, access_free)

struct tenant *tenant_find(struct access *x, const char *id);
struct tenant *tenant_first(struct access *x); /* then ->next; oldest first */
/* @quota and @rate may be NULL: none. ERR_CONFLICT when the name is taken, ERR_INVALID for a bad name or rate. */
int tenant_add(struct access *x, const char *id, const struct tenant_quota *quota, const struct rate_rule *rate,
	       const struct audit_rec *who, struct tenant **ret, struct err *e);
/* NULL: stays as it is. What is used already is not taken away by a smaller quota. */
int tenant_set(struct access *x, struct tenant *t, const struct tenant_quota *quota, const struct rate_rule *rate,
	       const struct audit_rec *who, struct err *e);
/* ERR_CONFLICT while it has sandboxes or checkpoints, and for "default". Its tokens go too, each with a record of its own. */
int tenant_remove(struct access *x, struct tenant *t, const struct audit_rec *who, struct err *e);

/*
 * ->used plus @want within ->quota: then it is counted. ERR_QUOTA names what is full, how much there is and what was
 * asked.
 */
int tenant_take(struct tenant *t, const struct tenant_quota *want, struct err *e);
/* Counts without asking: what is found again after a restart. */
void tenant_force(struct tenant *t, const struct tenant_quota *want);
void tenant_give(struct tenant *t, const struct tenant_quota *had);

#define TOKEN_TEXT_MAX 64
/* @prefix (20 bytes at most) and 43 characters that stand for 32 random bytes; and what is kept of such a text. */
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
/* The text until now goes on for @grace_ms; one from an earlier rotation ends at once. */
int token_rotate(struct access *x, struct token *k, uint64_t grace_ms, const struct audit_rec *who,
		 char text[TOKEN_TEXT_MAX], struct err *e);
int token_remove(struct access *x, struct token *k, const struct audit_rec *who, struct err *e);
struct token *token_find(struct access *x, const char *id);
struct token *token_first(struct access *x); /* then ->next; oldest first */
/*
 * The one whose text this is: by hash, compared in constant time. ERR_UNAUTHORIZED for unknown, expired, revoked. Then
 * its rate is charged one point: ERR_RATE with *ret_retry_s (and *ret, so that it can be noted who).
 */
int token_check(struct access *x, const char *text, struct token **ret, struct token_mark *ret_mark, unsigned *ret_retry_s, struct err *e);
/* Whether the text that was let in with this mark would be now: for what goes on for longer than a call. */
bool token_still(struct access *x, const struct token_mark *m);
