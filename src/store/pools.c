/* The table of pools. */
#include "store/db.h"
#include "base/base.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct pool_row, id, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct pool_row, tenant, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct pool_row, name, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct pool_row, template, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct pool_row, min, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct pool_row, max, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct pool_row, created_ns, COLUMN_NUMBER, COLUMN_FIXED),
};

const struct table pools_table = {
	.id = TABLE_POOLS,
	.name = "pools",
	.order = "created_ns, id",
	.one = "a pool",
	.all = "the pools",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

DEFINE_PUT(pools_put, struct pool_row, pools_table)

int pools_delete(struct db *d, const char *id, struct err *e)
{
	return rows_drop(d, &pools_table, &(struct pool_row){ .id = id }, e);
}

DEFINE_EACH(pools_each, struct pool_row, pools_table)
