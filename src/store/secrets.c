#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS "tenant, name, version, gone, description, created_ns, updated_ns"

int secrets_put(struct db *d, const struct secret_row *t, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_SECRET_PUT,
			"INSERT INTO secrets (" COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7) ON CONFLICT (tenant, name) "
			"DO UPDATE SET version=?3, gone=?4, description=?5, created_ns=?6, updated_ns=?7",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, t->tenant);
	q_text(s, 2, t->name);
	q_u64(s, 3, t->version);
	q_u64(s, 4, t->gone);
	q_text(s, 5, t->description);
	q_u64(s, 6, t->created_ns);
	q_u64(s, 7, t->updated_ns);
	note_row(d, NOTE_SECRETS, t->tenant, t->name, 0);
	r = q_run(d, s, "store a secret", e);
	return r < 0 ? r : 0;
}

int secrets_delete(struct db *d, const char *tenant, const char *name, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_SECRET_DELETE, "DELETE FROM secrets WHERE tenant = ?1 AND name = ?2", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, tenant);
	q_text(s, 2, name);
	note_row(d, NOTE_SECRETS, tenant, name, 0);
	r = q_run(d, s, "delete a secret", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct secret_row *t);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	const struct secret_row t = {
		.tenant = q_get_text(s, 0),
		.name = q_get_text(s, 1),
		.version = q_get_u64(s, 2),
		.gone = q_get_u64(s, 3) != 0,
		.description = q_get_text(s, 4),
		.created_ns = q_get_u64(s, 5),
		.updated_ns = q_get_u64(s, 6),
	};

	return x->fn(x->arg, &t);
}

int secrets_each(struct db *d, int (*fn)(void *arg, const struct secret_row *t), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM secrets ORDER BY tenant, name", row, &(struct each){ fn, arg },
		      "load the secrets", e);
}

/* --- their values --- */

int secret_values_put(struct db *d, const struct secret_value_row *v, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_SECRET_VALUE_PUT,
			"INSERT INTO secret_values (tenant, name, version, sealed) VALUES (?1,?2,?3,?4)", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, v->tenant);
	q_text(s, 2, v->name);
	q_u64(s, 3, v->version);
	sqlite3_bind_blob64(s, 4, v->sealed, v->len, SQLITE_STATIC); /* a failure is returned by q_run: the column must not be NULL */
	note_row(d, NOTE_SECRET_VALUES, v->tenant, v->name, v->version);
	r = q_run(d, s, "store a secret's value", e);
	return r < 0 ? r : 0;
}

int secret_values_reseal(struct db *d, const struct secret_value_row *v, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_SECRET_VALUE_RESEAL,
			"UPDATE secret_values SET sealed = ?4 WHERE tenant = ?1 AND name = ?2 AND version = ?3", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, v->tenant);
	q_text(s, 2, v->name);
	q_u64(s, 3, v->version);
	sqlite3_bind_blob64(s, 4, v->sealed, v->len, SQLITE_STATIC);
	note_row(d, NOTE_SECRET_VALUES, v->tenant, v->name, v->version);
	r = q_run(d, s, "store a secret's value", e);
	return r < 0 ? r : 0;
}

int secret_values_delete(struct db *d, const char *tenant, const char *name, uint64_t version, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_SECRET_VALUE_DELETE,
			"DELETE FROM secret_values WHERE tenant = ?1 AND name = ?2 AND version = ?3", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, tenant);
	q_text(s, 2, name);
	q_u64(s, 3, version);
	note_row(d, NOTE_SECRET_VALUES, tenant, name, version);
	r = q_run(d, s, "delete a secret's value", e);
	return r < 0 ? r : 0;
}

struct each_value {
	int (*fn)(void *arg, const struct secret_value_row *v);
	void *arg;
};

static int value_row(void *ctx, sqlite3_stmt *s)
{
	const struct each_value *x = ctx;
	const struct secret_value_row v = {
		.tenant = q_get_text(s, 0),
		.name = q_get_text(s, 1),
		.version = q_get_u64(s, 2),
		.sealed = sqlite3_column_blob(s, 3),
		.len = (size_t)sqlite3_column_bytes(s, 3),
	};

	return x->fn(x->arg, &v);
}

int secret_values_each(struct db *d, int (*fn)(void *arg, const struct secret_value_row *v), void *arg, struct err *e)
{
	return q_each(d, "SELECT tenant, name, version, sealed FROM secret_values ORDER BY tenant, name, version",
		      value_row, &(struct each_value){ fn, arg }, "load the secrets' values", e);
}
