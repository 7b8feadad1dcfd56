#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

#define COLUMNS                                                                                                        \
	"id, tenant, box, box_name, name, label, metadata, parent, layers, config, memory, refused, size, "            \
	"memory_size, files, pause_ns, sum, created_ns, execs, names, cut"

int checkpoints_insert(struct db *d, const struct checkpoint_row *c, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_CHECKPOINT_INSERT,
			"INSERT INTO checkpoints (" COLUMNS
			") VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21)",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, c->id);
	q_text(s, 2, c->tenant);
	q_text(s, 3, c->sandbox);
	q_text(s, 4, c->sandbox_name);
	q_text(s, 5, c->name);
	q_text(s, 6, c->label);
	q_text(s, 7, c->metadata);
	q_text(s, 8, c->parent);
	q_text(s, 9, c->layers);
	q_text(s, 10, c->config);
	q_u64(s, 11, c->memory);
	q_text(s, 12, c->refused);
	q_u64(s, 13, c->size);
	q_u64(s, 14, c->memory_size);
	q_u64(s, 15, c->files);
	q_u64(s, 16, c->pause_ns);
	sqlite3_bind_blob(s, 17, c->sum, sizeof(c->sum), SQLITE_STATIC);
	q_u64(s, 18, c->created_ns);
	q_text(s, 19, c->execs ? c->execs : "");
	q_text(s, 20, c->names ? c->names : "");
	q_text(s, 21, c->cut ? c->cut : "");
	note_row(d, NOTE_CHECKPOINTS, c->id, NULL, 0);
	r = q_run(d, s, "store a checkpoint", e);
	return r < 0 ? r : 0;
}

int checkpoints_update(struct db *d, const struct checkpoint_row *c, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_CHECKPOINT_UPDATE,
			"UPDATE checkpoints SET name=?2, label=?3, metadata=?4 WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, c->id);
	q_text(s, 2, c->name);
	q_text(s, 3, c->label);
	q_text(s, 4, c->metadata);
	note_row(d, NOTE_CHECKPOINTS, c->id, NULL, 0);
	r = q_run(d, s, "store a checkpoint", e);
	if (r == 0)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "state: no checkpoint '%s'", c->id);
	return r < 0 ? r : 0;
}

int checkpoints_delete(struct db *d, const char *id, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_CHECKPOINT_DELETE, "DELETE FROM checkpoints WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, id);
	note_row(d, NOTE_CHECKPOINTS, id, NULL, 0);
	r = q_run(d, s, "delete a checkpoint", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct checkpoint_row *c);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	struct checkpoint_row c = {
		.id = q_get_text(s, 0),
		.tenant = q_get_text(s, 1),
		.sandbox = q_get_text(s, 2),
		.sandbox_name = q_get_text(s, 3),
		.name = q_get_text(s, 4),
		.label = q_get_text(s, 5),
		.metadata = q_get_text(s, 6),
		.parent = q_get_text(s, 7),
		.layers = q_get_text(s, 8),
		.config = q_get_text(s, 9),
		.memory = q_get_u64(s, 10) != 0,
		.refused = q_get_text(s, 11),
		.size = q_get_u64(s, 12),
		.memory_size = q_get_u64(s, 13),
		.files = q_get_u64(s, 14),
		.pause_ns = q_get_u64(s, 15),
		.created_ns = q_get_u64(s, 17),
		.execs = q_get_text(s, 18),
		.names = q_get_text(s, 19),
		.cut = q_get_text(s, 20),
	};

	q_get_hash(s, 16, c.sum);
	return x->fn(x->arg, &c);
}

int checkpoints_each(struct db *d, int (*fn)(void *arg, const struct checkpoint_row *c), void *arg, struct err *e)
{
	return q_each(d, "SELECT " COLUMNS " FROM checkpoints ORDER BY created_ns, id", row, &(struct each){ fn, arg },
		      "load the checkpoints", e);
}
