#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS                                                                                                        \
	"id, tenant, name, hash, old_hash, old_until_ns, scope, created_ns, expires_ns, rate_points, rate_window_ms, " \
	"rate_block_ms"

int tokens_put(struct db *d, const struct token_row *t, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_TOKEN_PUT,
			"INSERT INTO tokens (" COLUMNS
			") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12) ON CONFLICT (id) DO UPDATE SET "
			"name=?3, hash=?4, old_hash=?5, old_until_ns=?6, scope=?7, expires_ns=?9, rate_points=?10, "
			"rate_window_ms=?11, "
			"rate_block_ms=?12",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, t->id);
	q_text(s, 2, t->tenant);
	q_text(s, 3, t->name ? t->name : "");
	q_hash(s, 4, t->hash);
	q_hash(s, 5, t->old_hash);
	q_u64(s, 6, t->old_until_ns);
	q_u64(s, 7, t->scope);
	q_u64(s, 8, t->created_ns);
	q_u64(s, 9, t->expires_ns);
	q_u64(s, 10, t->rate_points);
	q_u64(s, 11, t->rate_window_ms);
	q_u64(s, 12, t->rate_block_ms);
	note_row(d, NOTE_TOKENS, t->id, NULL, 0);
	r = q_run(d, s, "store a token", e);
	return r < 0 ? r : 0;
}

int tokens_delete(struct db *d, const char *id, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_TOKEN_DELETE, "DELETE FROM tokens WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	note_row(d, NOTE_TOKENS, id, NULL, 0);
	r = q_run(d, s, "delete a token", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct token_row *t);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	struct token_row t = {
		.id = q_get_text(s, 0),
		.tenant = q_get_text(s, 1),
		.name = q_get_text(s, 2),
		.old_until_ns = q_get_u64(s, 5),
		.scope = (uint32_t)q_get_u64(s, 6),
		.created_ns = q_get_u64(s, 7),
		.expires_ns = q_get_u64(s, 8),
		.rate_points = q_get_u64(s, 9),
		.rate_window_ms = q_get_u64(s, 10),
		.rate_block_ms = q_get_u64(s, 11),
	};

	q_get_hash(s, 3, t.hash);
	q_get_hash(s, 4, t.old_hash);
	return x->fn(x->arg, &t);
}

int tokens_each(struct db *d, int (*fn)(void *arg, const struct token_row *t), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM tokens ORDER BY created_ns, id", row, &(struct each){ fn, arg },
		      "load the tokens", e);
}
