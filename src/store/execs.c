#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS "id, box, number, spec, result, started_ns, ended_ns, grp"

int execs_insert(struct db *d, const struct exec_row *x, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_EXEC_INSERT, "INSERT INTO execs (" COLUMNS ") VALUES (?1,?2,?3,?4,?5,?6,?7,?8)", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, x->id);
	q_text(s, 2, x->sandbox);
	q_u64(s, 3, x->number);
	q_text(s, 4, x->spec);
	q_text(s, 5, x->result);
	q_u64(s, 6, x->started_ns);
	q_u64(s, 7, x->ended_ns);
	q_u64(s, 8, x->group);
	if (!x->result) {
		d->counts = true;
		note_row(d, NOTE_EXECS, x->id, NULL, 0);
	}
	r = q_run(d, s, "store an exec", e);
	return r < 0 ? r : 0;
}

int execs_group(struct db *d, const char *id, uint64_t group, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_EXEC_GROUP, "UPDATE execs SET grp=?2 WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	q_u64(s, 2, group);
	note_row(d, NOTE_EXECS, id, NULL, 0);
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
	note_gone(d, NOTE_EXECS, id);
	r = q_run(d, s, "store an exec's end", e);
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "state: no exec '%s'", id);
	return r < 0 ? r : 0;
}

int execs_delete(struct db *d, const char *id, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_EXEC_DELETE, "DELETE FROM execs WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	note_gone(d, NOTE_EXECS, id);
	r = q_run(d, s, "delete an exec", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct exec_row *x);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	const struct exec_row w = {
		.id = q_get_text(s, 0),
		.sandbox = q_get_text(s, 1),
		.number = (uint32_t)q_get_u64(s, 2),
		.spec = q_get_text(s, 3),
		.result = q_get_text(s, 4),
		.started_ns = q_get_u64(s, 5),
		.ended_ns = q_get_u64(s, 6),
		.group = q_get_u64(s, 7),
	};

	return x->fn(x->arg, &w);
}

int execs_each(struct db *d, int (*fn)(void *arg, const struct exec_row *x), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM execs ORDER BY started_ns, number, id", row,
		      &(struct each){ fn, arg }, "load the execs", e);
}
