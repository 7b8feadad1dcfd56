/* The table of checkpoints. */
#include "store/db.h"
#include "base/base.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct checkpoint_row, id, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct checkpoint_row, tenant, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN_AS(struct checkpoint_row, sandbox, "box", COLUMN_TEXT, COLUMN_FIXED),
	COLUMN_AS(struct checkpoint_row, sandbox_name, "box_name", COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, name, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct checkpoint_row, label, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct checkpoint_row, metadata, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct checkpoint_row, parent, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, layers, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, config, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, memory, COLUMN_FLAG, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, refused, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, size, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, memory_size, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, files, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, pause_ns, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, sum, COLUMN_SUM, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, created_ns, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, execs, COLUMN_TEXT_OR_EMPTY, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, names, COLUMN_TEXT_OR_EMPTY, COLUMN_FIXED),
	COLUMN(struct checkpoint_row, cut, COLUMN_TEXT_OR_EMPTY, COLUMN_FIXED),
};

const struct table checkpoints_table = {
	.id = TABLE_CHECKPOINTS,
	.name = "checkpoints",
	.order = "created_ns, id",
	.one = "a checkpoint",
	.all = "the checkpoints",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

int checkpoints_insert(struct db *d, const struct checkpoint_row *c, struct err *e)
{
	return rows_insert(d, &checkpoints_table, c, e);
}

int checkpoints_update(struct db *d, const struct checkpoint_row *c, struct err *e)
{
	return rows_update(d, &checkpoints_table, c, e);
}

int checkpoints_delete(struct db *d, const char *id, struct err *e)
{
	return rows_drop(d, &checkpoints_table, &(struct checkpoint_row){ .id = id }, e);
}

DEFINE_EACH(checkpoints_each, struct checkpoint_row, checkpoints_table)
