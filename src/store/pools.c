#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS "id, tenant, name, template, min, max, created_ns"

int pools_put(struct db *d, const struct pool_row *p, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_POOL_PUT,
			"INSERT INTO pools (" COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7) ON CONFLICT (id) "
			"DO UPDATE SET template=?4, min=?5, max=?6",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, p->id);
	q_text(s, 2, p->tenant);
	q_text(s, 3, p->name);
	q_text(s, 4, p->template);
	q_u64(s, 5, p->min);
	q_u64(s, 6, p->max);
	q_u64(s, 7, p->created_ns);
	note_row(d, NOTE_POOLS, p->id, NULL, 0);
	r = q_run(d, s, "store a pool", e);
	return r < 0 ? r : 0;
}

int pools_delete(struct db *d, const char *id, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_POOL_DELETE, "DELETE FROM pools WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	note_row(d, NOTE_POOLS, id, NULL, 0);
	r = q_run(d, s, "delete a pool", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct pool_row *p);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	const struct pool_row p = {
		.id = q_get_text(s, 0),
		.tenant = q_get_text(s, 1),
		.name = q_get_text(s, 2),
		.template = q_get_text(s, 3),
		.min = (uint32_t)q_get_u64(s, 4),
		.max = (uint32_t)q_get_u64(s, 5),
		.created_ns = q_get_u64(s, 6),
	};

	return x->fn(x->arg, &p);
}

int pools_each(struct db *d, int (*fn)(void *arg, const struct pool_row *p), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM pools ORDER BY created_ns, id", row, &(struct each){ fn, arg },
		      "load the pools", e);
}
