/* The table of idempotency keys. */
#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct idem_row, tenant, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct idem_row, key, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct idem_row, body, COLUMN_SUM, COLUMN_VALUE),
	COLUMN(struct idem_row, status, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct idem_row, answer, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct idem_row, created_ns, COLUMN_NUMBER, COLUMN_VALUE),
};

static const struct table idem_table = {
	.id = TABLE_IDEM,
	.name = "idem",
	.one = "an answer",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.slight = true,
};

/* A copy, so that the statement does not stay open and hold back the log. */
static int keep(struct db *d, sqlite3_stmt *s, struct idem_row *ret, struct err *e)
{
	const char *tenant = q_get_text(s, 0), *key = q_get_text(s, 1), *answer = q_get_text(s, 4);
	size_t nt = strlen(tenant) + 1, nk = strlen(key) + 1, na = answer ? strlen(answer) + 1 : 0;
	char *p = malloc(nt + nk + na);

	if (!p)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "state: find an answer");
	free(d->found);
	d->found = p;
	memcpy(p, tenant, nt);
	memcpy(p + nt, key, nk);
	if (answer)
		memcpy(p + nt + nk, answer, na);
	*ret = (struct idem_row){
		.tenant = p,
		.key = p + nt,
		.status = sqlite3_column_int(s, 3),
		.answer = answer ? p + nt + nk : NULL,
		.created_ns = q_get_u64(s, 5),
	};
	q_get_hash(s, 2, ret->body);
	return 1;
}

int idem_find(struct db *d, const char *tenant, const char *key, struct idem_row *ret, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_prepare(
		d, Q_IDEM_FIND,
		"SELECT tenant, key, body, status, answer, created_ns FROM idem WHERE tenant = ?1 AND key = ?2", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, tenant);
	q_text(s, 2, key);
	r = sqlite3_step(s);
	if (r == SQLITE_ROW)
		r = keep(d, s, ret, e);
	else
		r = r == SQLITE_DONE ? 0 : db_fail(d->sql, e, "find an answer");
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	return r;
}

DEFINE_PUT(idem_put, struct idem_row, idem_table)

int idem_delete(struct db *d, const char *tenant, const char *key, struct err *e)
{
	return rows_drop(d, &idem_table, &(struct idem_row){ .tenant = tenant, .key = key }, e);
}

int idem_prune(struct db *d, uint64_t before_ns, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_IDEM_PRUNE, "DELETE FROM idem WHERE created_ns < ?1", &s, e);

	if (r < 0)
		return r;
	q_u64(s, 1, before_ns);
	r = q_run(d, s, "remove old answers", e);
	return r < 0 ? r : 0;
}
