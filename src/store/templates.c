/* The table of templates. */
#include "store/db.h"
#include "base/base.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct template_row, tenant, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct template_row, name, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct template_row, version, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct template_row, spec, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct template_row, created_ns, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct template_row, updated_ns, COLUMN_NUMBER, COLUMN_VALUE),
};

const struct table templates_table = {
	.id = TABLE_TEMPLATES,
	.name = "templates",
	.order = "tenant, name",
	.one = "a template",
	.all = "the templates",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

DEFINE_PUT(templates_put, struct template_row, templates_table)

int templates_delete(struct db *d, const char *tenant, const char *name, struct err *e)
{
	return rows_drop(d, &templates_table, &(struct template_row){ .tenant = tenant, .name = name }, e);
}

DEFINE_EACH(templates_each, struct template_row, templates_table)
