#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS                                                                                                        \
	"id, number, sandboxes, cpu_milli, memory, disk, execs, rate_points, rate_window_ms, rate_block_ms, "          \
	"created_ns, checkpoints, checkpoint_bytes, secrets"

int tenants_put(struct db *d, const struct tenant_row *t, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_TENANT_PUT,
			"INSERT INTO tenants (" COLUMNS
			") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14) ON CONFLICT (id) DO UPDATE SET "
			"sandboxes=?3, cpu_milli=?4, memory=?5, disk=?6, execs=?7, rate_points=?8, rate_window_ms=?9, "
			"rate_block_ms=?10, checkpoints=?12, checkpoint_bytes=?13, secrets=?14",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, t->id);
	q_u64(s, 2, t->number);
	q_u64(s, 3, t->sandboxes);
	q_u64(s, 4, t->cpu_milli);
	q_u64(s, 5, t->memory);
	q_u64(s, 6, t->disk);
	q_u64(s, 7, t->execs);
	q_u64(s, 8, t->rate_points);
	q_u64(s, 9, t->rate_window_ms);
	q_u64(s, 10, t->rate_block_ms);
	q_u64(s, 11, t->created_ns);
	q_u64(s, 12, t->checkpoints);
	q_u64(s, 13, t->checkpoint_bytes);
	q_u64(s, 14, t->secrets);
	note_row(d, NOTE_TENANTS, t->id, NULL, 0);
	r = q_run(d, s, "store a tenant", e);
	return r < 0 ? r : 0;
}

int tenants_delete(struct db *d, const char *id, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_TENANT_DELETE, "DELETE FROM tenants WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	note_row(d, NOTE_TENANTS, id, NULL, 0);
	r = q_run(d, s, "delete a tenant", e);
	return r < 0 ? r : 0;
}

int tenants_next(struct db *d, uint64_t *ret_number, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_prepare(d, Q_TENANT_NEXT,
			  "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tenants'), 0) + 1", &s, e);

	if (r < 0)
		return r;
	if (sqlite3_step(s) == SQLITE_ROW)
		*ret_number = q_get_u64(s, 0);
	else
		r = db_fail(d->sql, e, "number a tenant");
	sqlite3_reset(s);
	return r;
}

struct each {
	int (*fn)(void *arg, const struct tenant_row *t);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	const struct tenant_row t = {
		.id = q_get_text(s, 0),
		.number = q_get_u64(s, 1),
		.sandboxes = q_get_u64(s, 2),
		.cpu_milli = q_get_u64(s, 3),
		.memory = q_get_u64(s, 4),
		.disk = q_get_u64(s, 5),
		.execs = q_get_u64(s, 6),
		.rate_points = q_get_u64(s, 7),
		.rate_window_ms = q_get_u64(s, 8),
		.rate_block_ms = q_get_u64(s, 9),
		.created_ns = q_get_u64(s, 10),
		.checkpoints = q_get_u64(s, 11),
		.checkpoint_bytes = q_get_u64(s, 12),
		.secrets = q_get_u64(s, 13),
	};

	return x->fn(x->arg, &t);
}

int tenants_each(struct db *d, int (*fn)(void *arg, const struct tenant_row *t), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM tenants ORDER BY number", row, &(struct each){ fn, arg },
		      "load the tenants", e);
}
