/*
 * The daemon's state in SQLite (WAL). While it runs, memory is what is asked; this is what is found after a crash. All
 * calls come from the loop's thread and are short: no fsync happens here, checkpoints run on a connection of their own
 * in a worker.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"

struct db;

/*
 * Makes the file (0600) when missing and brings an older schema up to date; a newer one is refused (-EPROTO), so is a
 * damaged one, or one that is not ours (-EBADMSG).
 */
int db_open(const char *path, struct db **ret, struct err *e);
/*
 * The same, as the one of a data folder: its marker (store/witness.h) and notes (store/note.h) are kept there. Refused, and
 * nothing is changed: one that is missing or empty although there was one (-ENODATA), one of another folder (-EXDEV), one that
 * is older than it was (-ESTALE).
 */
struct db_opts {
	const char *folder;
	bool beside; /* there are layers, notes or sandboxes that run: one that is empty is not a new one */
	bool recover; /* without a marker: it is rebuilt from the notes */
	bool sure; /* whatever is committed is in the log, which the caller syncs: no row is kept elsewhere meanwhile */
};
int db_open_known(const char *path, const struct db_opts *o, struct db **ret, struct err *e);
/* Whether that would be refused. 0: no. 1: no, and there is none yet. */
int db_check(const char *path, const struct db_opts *o, struct err *e);
void db_close(struct db *d);
DEFINE_AUTO(struct db, db_close)
/* Every write below opens the turn's transaction by itself; this ends it. 0 when there was none. */
int db_commit(struct db *d, struct err *e);
/* Whether the turn's changes are all still there: after a full disk they may have been undone, and then db_commit must not be tried again. */
bool db_whole(const struct db *d);
/* Rows of sandboxes_insert_pending go to where the others are, in the turn's transaction. 1: there were some, 0: none. */
int db_settle(struct db *d, struct err *e);
/* For a worker thread: moves the log into the file, without blocking writers. Takes the path, not the handle. */
int db_checkpoint(const char *path);
/* How large the log is after the last commit; past DB_LOG_MAX it is time for a checkpoint. */
#define DB_LOG_MAX (4 * MIB)
/*
 * Gives pages that nothing needs any more back to the disk, a few MiB at most: more of them follow with the next call. Never in
 * the middle of a turn. The file becomes smaller when its log is moved into it.
 */
int db_shrink(struct db *d, struct err *e);
uint64_t db_log_bytes(const struct db *d);
/*
 * The log's descriptor, or -1: of a database that was opened as that of a data folder. Once it was synced, by any thread, all
 * that was committed before outlives a crash of the machine.
 */
int db_log_fd(const struct db *d);

/*
 * Below: a change of a row that is not there is ERR_NOT_FOUND (-ENOENT), a deletion of one is fine. What breaks a rule
 * of the schema (a name taken, a tenant that does not exist) is ERR_CONFLICT (-EEXIST) and changes nothing. Each *_each
 * stops at the first callback that does not return 0, and returns what it said; what it hands out is good until the
 * callback returns.
 */

/* --- tenants: small; loaded whole --- */
struct tenant_row {
	const char *id; /* its name, [a-z0-9][a-z0-9_-]{0,31} */
	uint64_t number; /* never used twice; identifies the tenant to the warden */
	uint64_t sandboxes, cpu_milli, memory, disk, execs; /* quotas, 0 = none */
	uint64_t checkpoints, checkpoint_bytes, secrets, image_bytes, gpus;
	uint64_t rate_points, rate_window_ms, rate_block_ms; /* 0 points = none */
	uint64_t created_ns;
};
int tenants_put(struct db *d, const struct tenant_row *t, struct err *e); /* insert or replace */
/* its tokens and answers too; ERR_CONFLICT while it has sandboxes or checkpoints */
int tenants_delete(struct db *d, const char *id, struct err *e);
int tenants_next(struct db *d, uint64_t *ret_number, struct err *e); /* a number that no tenant ever had, from 1 */
/* by number */
int tenants_each(struct db *d, int (*fn)(void *arg, const struct tenant_row *t), void *arg, struct err *e);

/* --- tokens --- */
struct token_row {
	const char *id; /* of base/id.h */
	const char *tenant, *name;
	uint8_t hash[32]; /* SHA-256 of the token */
	uint8_t old_hash[32]; /* after a rotation, good until ->old_until_ns; zeros = none */
	uint64_t old_until_ns;
	uint32_t scope;
	uint64_t created_ns, expires_ns; /* wall clock; 0 = never */
	uint64_t rate_points, rate_window_ms, rate_block_ms;
};
int tokens_put(struct db *d, const struct token_row *t, struct err *e);
int tokens_delete(struct db *d, const char *id, struct err *e);
/* by created */
int tokens_each(struct db *d, int (*fn)(void *arg, const struct token_row *t), void *arg, struct err *e);

/* --- sandboxes --- */
#define SANDBOX_ROW_IDLE 3U
struct sandbox_row {
	const char *id, *tenant, *name, *key; /* key NULL = none */
	uint64_t handle;
	const char *state; /* running, paused, lost; pooled: ready, without an owner yet */
	const char *spec; /* JSON, as the service wrote it */
	uint64_t created_ns, expires_ns, used_ns; /* wall clock; expires 0 = never */
	uint32_t next_exec; /* below it, numbers of execs are used */
	const char *layers; /* ids it is based on, the oldest first, separated by spaces; "" = none */
	const char *checkpoint; /* that it came from, "" = none */
	const char *restored; /* JSON: what that did, "" = none */
	/* state hibernated: 1 its files are kept, 2 its memory, too; paused: SANDBOX_ROW_IDLE, by itself */
	uint32_t asleep;
	uint64_t tree; /* of forks, never changed; 0 = of a time before networks */
};
int sandboxes_insert(struct db *d, const struct sandbox_row *b, struct err *e);
/* As good, and cheaper for one that is deleted soon (store/pending_rows.h). The caller knows that it breaks no rule. */
int sandboxes_insert_pending(struct db *d, const struct sandbox_row *b, struct err *e);
/* all columns but id, tenant and tree */
int sandboxes_update(struct db *d, const struct sandbox_row *b, struct err *e);
int sandboxes_delete(struct db *d, const char *id, struct err *e); /* its execs too */
int sandboxes_each(struct db *d, int (*fn)(void *arg, const struct sandbox_row *b), void *arg,
		   struct err *e); /* by created */

/* --- checkpoints --- */
struct checkpoint_row {
	const char *id; /* also its layer's */
	const char *tenant, *sandbox, *sandbox_name; /* of the sandbox it is of, which may be gone */
	const char *name, *label; /* label "" = none */
	const char *metadata; /* JSON object of strings */
	const char *parent; /* the checkpoint its sandbox came from, "" = none */
	const char *layers; /* as a sandbox's, with its own as the last */
	const char *config; /* JSON: what a create takes */
	bool memory;
	const char *refused; /* why not, "" = memory was not requested */
	const char *execs; /* JSON: those that ran, "" = none */
	const char *names; /* behind its synthetic addresses, as the service wrote them, "" = none */
	const char *cut; /* JSON: connections to the outside that its processes do not have any more, "" = none */
	uint64_t size, memory_size, files, pause_ns;
	uint8_t sum[32];
	uint64_t created_ns;
};
int checkpoints_insert(struct db *d, const struct checkpoint_row *c, struct err *e);
int checkpoints_update(struct db *d, const struct checkpoint_row *c, struct err *e); /* name, label, metadata */
int checkpoints_delete(struct db *d, const char *id, struct err *e);
/* by created */
int checkpoints_each(struct db *d, int (*fn)(void *arg, const struct checkpoint_row *c), void *arg, struct err *e);

/* --- networks: what sandboxes and trees of forks have used, and the names they know --- */
struct net_row {
	const char *sandbox;
	const char *counts; /* as the service wrote them */
	const char *observed; /* rules, a newline between */
};
int nets_put(struct db *d, const struct net_row *n, struct err *e); /* insert or replace */
int nets_each(struct db *d, int (*fn)(void *arg, const struct net_row *n), void *arg, struct err *e);
struct net_name_row {
	const char *sandbox, *name;
	uint32_t number;
};
int net_names_put(struct db *d, const struct net_name_row *n, struct err *e); /* insert or replace */
int net_names_clear(struct db *d, const char *sandbox, struct err *e);
int net_names_each(struct db *d, int (*fn)(void *arg, const struct net_name_row *n), void *arg, struct err *e);
struct net_tree_row {
	uint64_t id; /* fits 63 bits */
	const char *counts;
};
int net_trees_put(struct db *d, const struct net_tree_row *t, struct err *e); /* insert or replace */
int net_trees_delete(struct db *d, uint64_t id, struct err *e);
int net_trees_each(struct db *d, int (*fn)(void *arg, const struct net_tree_row *t), void *arg, struct err *e);

/* --- execs --- */
struct exec_row {
	const char *id, *sandbox;
	uint32_t number; /* the frame's id */
	uint64_t group; /* the warden's group its processes are in, 0 = none yet */
	const char *spec; /* JSON: cmd, user, … as the service wrote it */
	const char *result; /* JSON, NULL while running */
	uint64_t started_ns, ended_ns;
};
int execs_insert(struct db *d, const struct exec_row *x, struct err *e);
int execs_group(struct db *d, const char *id, uint64_t group, struct err *e);
int execs_finish(struct db *d, const char *id, const char *result, uint64_t ended_ns, struct err *e);
int execs_delete(struct db *d, const char *id, struct err *e);
int execs_each(struct db *d, int (*fn)(void *arg, const struct exec_row *x), void *arg, struct err *e); /* by started */

/* --- answers to be given again --- */
struct idem_row {
	const char *tenant, *key;
	uint8_t body[32]; /* SHA-256 of method, path and body */
	int status; /* 0: under way */
	const char *answer;
	uint64_t created_ns;
};
/* 1 when found: *ret is good until the next call on @d. 0 when not. */
int idem_find(struct db *d, const char *tenant, const char *key, struct idem_row *ret, struct err *e);
int idem_put(struct db *d, const struct idem_row *i, struct err *e); /* insert or replace */
/* one that failed may be tried again */
int idem_delete(struct db *d, const char *tenant, const char *key, struct err *e);
int idem_prune(struct db *d, uint64_t before_ns, struct err *e);

/* --- templates: few; loaded whole --- */
struct template_row {
	const char *tenant, *name;
	uint64_t version;
	const char *spec; /* JSON, as the service wrote it */
	uint64_t created_ns, updated_ns;
};
int templates_put(struct db *d, const struct template_row *t, struct err *e); /* insert or replace */
int templates_delete(struct db *d, const char *tenant, const char *name, struct err *e); /* its pools too */
/* by tenant and name */
int templates_each(struct db *d, int (*fn)(void *arg, const struct template_row *t), void *arg, struct err *e);

/* --- pools: few; loaded whole --- */
struct pool_row {
	const char *id, *tenant, *name, *template;
	uint32_t min, max;
	uint64_t created_ns;
};
int pools_put(struct db *d, const struct pool_row *p, struct err *e); /* insert, or replace what may change */
int pools_delete(struct db *d, const char *id, struct err *e);
int pools_each(struct db *d, int (*fn)(void *arg, const struct pool_row *p), void *arg, struct err *e); /* by created */

/* --- ports of sandboxes that others may use; loaded whole --- */
struct port_row {
	const char *sandbox;
	uint16_t port;
	bool public;
	uint8_t token[32]; /* SHA-256 of its token; zeros = none */
	uint64_t created_ns;
};
int ports_put(struct db *d, const struct port_row *p, struct err *e); /* insert or replace */
int ports_delete(struct db *d, const char *sandbox, uint16_t port, struct err *e);
int ports_each(struct db *d, int (*fn)(void *arg, const struct port_row *p), void *arg, struct err *e);
/* --- secrets: few; loaded whole. Values are sealed by service/secret/vault.h, and never here otherwise --- */
struct secret_row {
	const char *tenant, *name, *description; /* description "" = none */
	uint64_t version; /* of its newest value */
	bool gone; /* deleted: its values are kept for masks alone */
	uint64_t created_ns, updated_ns;
};
int secrets_put(struct db *d, const struct secret_row *s, struct err *e); /* insert or replace */
int secrets_delete(struct db *d, const char *tenant, const char *name, struct err *e); /* its values too */
/* by tenant and name */
int secrets_each(struct db *d, int (*fn)(void *arg, const struct secret_row *s), void *arg, struct err *e);
struct secret_value_row {
	const char *tenant, *name;
	uint64_t version;
	const void *sealed;
	size_t len;
};
int secret_values_put(struct db *d, const struct secret_value_row *v, struct err *e);
/* One that is there, with another key. */
int secret_values_reseal(struct db *d, const struct secret_value_row *v, struct err *e);
int secret_values_delete(struct db *d, const char *tenant, const char *name, uint64_t version, struct err *e);
/* by tenant, name and version */
int secret_values_each(struct db *d, int (*fn)(void *arg, const struct secret_value_row *v), void *arg, struct err *e);

/* --- images: docs/design/0018-images.md --- */
struct image_layer_row {
	const char *chain; /* its chain id, shared by all tenants */
	const char *parent; /* the chain id below, "" = none */
	const char *layers; /* ids in the store of layers, the lowest first, a space between */
	/* digests: of the uncompressed archive, and of it as it came ("" = it did not come as one) */
	const char *diff, *blob;
	uint64_t blob_size, size, files, created_ns;
};
int image_layers_put(struct db *d, const struct image_layer_row *x, struct err *e);
int image_layers_delete(struct db *d, const char *chain, struct err *e);
int image_layers_each(struct db *d, int (*fn)(void *arg, const struct image_layer_row *x), void *arg, struct err *e);

struct image_row {
	const char *tenant, *name; /* the name in full */
	const char *digest; /* of its manifest */
	const char *config; /* JSON, as src/oci/config.h has it */
	const char *chain; /* "" = it has no layers */
	const char *user; /* "UID:GID" that its user is, "" = not known */
	const char *source; /* JSON: where it came from */
	bool public;
	uint64_t size, created_ns;
};
int images_put(struct db *d, const struct image_row *x, struct err *e); /* insert or replace */
int images_delete(struct db *d, const char *tenant, const char *name, struct err *e);
int images_each(struct db *d, int (*fn)(void *arg, const struct image_row *x), void *arg, struct err *e);

struct build_cache_row {
	const char *tenant, *key;
	const char *chain, *config;
	uint64_t size, used_ns;
};
int build_cache_put(struct db *d, const struct build_cache_row *x, struct err *e); /* insert or replace */
/* 1 with the chain of that step; 0: there is none. */
int build_cache_get(struct db *d, const char *tenant, const char *key, char *ret_chain, size_t room,
		    uint64_t *ret_used_ns);
int build_cache_delete(struct db *d, const char *tenant, const char *key, struct err *e);
int build_cache_each(struct db *d, int (*fn)(void *arg, const struct build_cache_row *x), void *arg, struct err *e);
