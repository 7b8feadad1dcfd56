/* The table of sandboxes. */
#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct sandbox_row, id, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct sandbox_row, tenant, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct sandbox_row, name, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct sandbox_row, key, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct sandbox_row, handle, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct sandbox_row, state, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct sandbox_row, spec, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct sandbox_row, created_ns, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct sandbox_row, expires_ns, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct sandbox_row, used_ns, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct sandbox_row, next_exec, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct sandbox_row, layers, COLUMN_TEXT_OR_EMPTY, COLUMN_VALUE),
	COLUMN(struct sandbox_row, checkpoint, COLUMN_TEXT_OR_EMPTY, COLUMN_VALUE),
	COLUMN(struct sandbox_row, restored, COLUMN_TEXT_OR_EMPTY, COLUMN_VALUE),
	COLUMN(struct sandbox_row, asleep, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct sandbox_row, tree, COLUMN_NUMBER, COLUMN_FIXED),
};

const struct table sandboxes_table = {
	.id = TABLE_SANDBOXES,
	.name = "boxes",
	.order = "created_ns, id",
	.one = "a sandbox",
	.all = "the sandboxes",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

int sandboxes_insert(struct db *d, const struct sandbox_row *b, struct err *e)
{
	return rows_insert(d, &sandboxes_table, b, e);
}

int sandboxes_insert_pending(struct db *d, const struct sandbox_row *b, struct err *e)
{
	int r = pending_rows_insert(d, b, e);

	return r == 0 ? sandboxes_insert(d, b, e) : r < 0 ? r : 0;
}

int sandboxes_update(struct db *d, const struct sandbox_row *b, struct err *e)
{
	return rows_update(d, &sandboxes_table, b, e);
}

int sandboxes_delete(struct db *d, const char *id, struct err *e)
{
	int r = pending_rows_delete(d, id, e);

	if (r == 0)
		r = rows_drop(d, &sandboxes_table, &(struct sandbox_row){ .id = id }, e);
	return r < 0 ? r : 0;
}

DEFINE_EACH(sandboxes_each, struct sandbox_row, sandboxes_table)
