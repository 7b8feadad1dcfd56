#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS                                                                                                        \
	"id, tenant, name, key, handle, state, spec, created_ns, expires_ns, used_ns, next_exec, layers, checkpoint, " \
	"restored, asleep, tree"

static void put_origin(sqlite3_stmt *s, int at, const struct sandbox_row *b)
{
	q_text(s, at, b->layers ? b->layers : "");
	q_text(s, at + 1, b->checkpoint ? b->checkpoint : "");
	q_text(s, at + 2, b->restored ? b->restored : "");
	q_u64(s, at + 3, b->asleep);
}

int sandboxes_insert(struct db *d, const struct sandbox_row *b, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_SANDBOX_INSERT,
			"INSERT INTO boxes (" COLUMNS
			") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, b->id);
	q_text(s, 2, b->tenant);
	q_text(s, 3, b->name);
	q_text(s, 4, b->key);
	q_u64(s, 5, b->handle);
	q_text(s, 6, b->state);
	q_text(s, 7, b->spec);
	q_u64(s, 8, b->created_ns);
	q_u64(s, 9, b->expires_ns);
	q_u64(s, 10, b->used_ns);
	q_u64(s, 11, b->next_exec);
	put_origin(s, 12, b);
	q_u64(s, 16, b->tree);
	note_row(d, NOTE_SANDBOXES, b->id, NULL, 0);
	r = q_run(d, s, "store a sandbox", e);
	return r < 0 ? r : 0;
}

int sandboxes_insert_pending(struct db *d, const struct sandbox_row *b, struct err *e)
{
	int r = pending_rows_insert(d, b, e);

	return r == 0 ? sandboxes_insert(d, b, e) : r < 0 ? r : 0;
}

int sandboxes_update(struct db *d, const struct sandbox_row *b, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(
		d, Q_SANDBOX_UPDATE,
		"UPDATE boxes SET name=?2, state=?3, spec=?4, expires_ns=?5, used_ns=?6, next_exec=?7, handle=?8, "
		"layers=?9, checkpoint=?10, restored=?11, asleep=?12, key=?13, created_ns=?14 WHERE id = ?1",
		&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, b->id);
	q_text(s, 2, b->name);
	q_text(s, 3, b->state);
	q_text(s, 4, b->spec);
	q_u64(s, 5, b->expires_ns);
	q_u64(s, 6, b->used_ns);
	q_u64(s, 7, b->next_exec);
	q_u64(s, 8, b->handle);
	put_origin(s, 9, b);
	q_text(s, 13, b->key);
	q_u64(s, 14, b->created_ns);
	note_row(d, NOTE_SANDBOXES, b->id, NULL, 0);
	r = q_run(d, s, "store a sandbox", e);
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "state: no sandbox '%s'", b->id);
	return r < 0 ? r : 0;
}

int sandboxes_delete(struct db *d, const char *id, struct err *e)
{
	sqlite3_stmt *s;
	int r = pending_rows_delete(d, id, e);

	if (r != 0)
		return r < 0 ? r : 0;
	r = q_begin(d, Q_SANDBOX_DELETE, "DELETE FROM boxes WHERE id = ?1", &s, e);
	if (r < 0)
		return r;
	q_text(s, 1, id);
	note_row(d, NOTE_SANDBOXES, id, NULL, 0);
	r = q_run(d, s, "delete a sandbox", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct sandbox_row *b);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	const struct sandbox_row b = {
		.id = q_get_text(s, 0),
		.tenant = q_get_text(s, 1),
		.name = q_get_text(s, 2),
		.key = q_get_text(s, 3),
		.handle = q_get_u64(s, 4),
		.state = q_get_text(s, 5),
		.spec = q_get_text(s, 6),
		.created_ns = q_get_u64(s, 7),
		.expires_ns = q_get_u64(s, 8),
		.used_ns = q_get_u64(s, 9),
		.next_exec = (uint32_t)q_get_u64(s, 10),
		.layers = q_get_text(s, 11),
		.checkpoint = q_get_text(s, 12),
		.restored = q_get_text(s, 13),
		.asleep = (uint32_t)q_get_u64(s, 14),
		.tree = q_get_u64(s, 15),
	};

	return x->fn(x->arg, &b);
}

int sandboxes_each(struct db *d, int (*fn)(void *arg, const struct sandbox_row *b), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM boxes ORDER BY created_ns, id", row, &(struct each){ fn, arg },
		      "load the sandboxes", e);
}
