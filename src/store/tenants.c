/* The table of tenants. */
#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct tenant_row, id, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct tenant_row, number, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct tenant_row, sandboxes, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, cpu_milli, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, memory, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, disk, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, execs, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, rate_points, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, rate_window_ms, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, rate_block_ms, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, created_ns, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct tenant_row, checkpoints, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, checkpoint_bytes, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, secrets, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, image_bytes, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct tenant_row, gpus, COLUMN_NUMBER, COLUMN_VALUE),
};

const struct table tenants_table = {
	.id = TABLE_TENANTS,
	.name = "tenants",
	.order = "number",
	.one = "a tenant",
	.all = "the tenants",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

DEFINE_PUT(tenants_put, struct tenant_row, tenants_table)

int tenants_delete(struct db *d, const char *id, struct err *e)
{
	return rows_drop(d, &tenants_table, &(struct tenant_row){ .id = id }, e);
}

int tenants_next(struct db *d, uint64_t *ret_number, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_prepare(d, Q_TENANT_NEXT,
			  "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'tenants'), 0) + 1", &s, e);

	if (r < 0)
		return r;
	if (sqlite3_step(s) == SQLITE_ROW)
		*ret_number = q_get_u64(s, 0);
	else
		r = db_fail(d->sql, e, "number a tenant");
	sqlite3_reset(s);
	return r;
}

DEFINE_EACH(tenants_each, struct tenant_row, tenants_table)
