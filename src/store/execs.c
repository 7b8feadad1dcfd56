/* The table of execs. */
#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct exec_row, id, COLUMN_TEXT, COLUMN_KEY),
	COLUMN_AS(struct exec_row, sandbox, "box", COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct exec_row, number, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct exec_row, spec, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct exec_row, result, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct exec_row, started_ns, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct exec_row, ended_ns, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN_AS(struct exec_row, group, "grp", COLUMN_NUMBER, COLUMN_VALUE),
};

const struct table execs_table = {
	.id = TABLE_EXECS,
	.name = "execs",
	.order = "started_ns, number, id",
	.one = "an exec",
	.all = "the execs",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted_rows = "result IS NULL",
	.slight = true,
};

int execs_insert(struct db *d, const struct exec_row *x, struct err *e)
{
	int r = rows_insert(d, &execs_table, x, e);

	if (r == 0 && !x->result) {
		d->counts = true;
		note_row(d, TABLE_EXECS, x->id, NULL, 0);
	}
	return r;
}

int execs_group(struct db *d, const char *id, uint64_t group, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_EXEC_GROUP, "UPDATE execs SET grp=?2 WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	q_u64(s, 2, group);
	note_row(d, TABLE_EXECS, id, NULL, 0);
	r = q_run(d, s, "store an exec's group", e);
	return r < 0 ? r : 0;
}

int execs_finish(struct db *d, const char *id, const char *result, uint64_t ended_ns, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_EXEC_FINISH, "UPDATE execs SET result=?2, ended_ns=?3 WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	q_text(s, 2, result);
	q_u64(s, 3, ended_ns);
	note_gone(d, TABLE_EXECS, id);
	r = q_run(d, s, "store an exec's end", e);
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "state: no exec '%s'", id);
	return r < 0 ? r : 0;
}

int execs_delete(struct db *d, const char *id, struct err *e)
{
	note_gone(d, TABLE_EXECS, id);
	return rows_drop(d, &execs_table, &(struct exec_row){ .id = id }, e);
}

DEFINE_EACH(execs_each, struct exec_row, execs_table)
