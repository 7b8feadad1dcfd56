#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS "tenant, name, version, spec, created_ns, updated_ns"

int templates_put(struct db *d, const struct template_row *t, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_TEMPLATE_PUT,
			"INSERT INTO templates (" COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6) ON CONFLICT (tenant, name) "
			"DO UPDATE SET version=?3, spec=?4, updated_ns=?6",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, t->tenant);
	q_text(s, 2, t->name);
	q_u64(s, 3, t->version);
	q_text(s, 4, t->spec);
	q_u64(s, 5, t->created_ns);
	q_u64(s, 6, t->updated_ns);
	note_row(d, NOTE_TEMPLATES, t->tenant, t->name, 0);
	r = q_run(d, s, "store a template", e);
	return r < 0 ? r : 0;
}

int templates_delete(struct db *d, const char *tenant, const char *name, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_TEMPLATE_DELETE, "DELETE FROM templates WHERE tenant = ?1 AND name = ?2", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, tenant);
	q_text(s, 2, name);
	note_row(d, NOTE_TEMPLATES, tenant, name, 0);
	r = q_run(d, s, "delete a template", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct template_row *t);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	const struct template_row t = {
		.tenant = q_get_text(s, 0),
		.name = q_get_text(s, 1),
		.version = q_get_u64(s, 2),
		.spec = q_get_text(s, 3),
		.created_ns = q_get_u64(s, 4),
		.updated_ns = q_get_u64(s, 5),
	};

	return x->fn(x->arg, &t);
}

int templates_each(struct db *d, int (*fn)(void *arg, const struct template_row *t), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM templates ORDER BY tenant, name", row, &(struct each){ fn, arg },
		      "load the templates", e);
}
