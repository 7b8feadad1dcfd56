/* The tables of secrets and of their values. */
#include "store/db.h"
#include "base/base.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct secret_row, tenant, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct secret_row, name, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct secret_row, version, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct secret_row, gone, COLUMN_FLAG, COLUMN_VALUE),
	COLUMN(struct secret_row, description, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct secret_row, created_ns, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct secret_row, updated_ns, COLUMN_NUMBER, COLUMN_VALUE),
};

const struct table secrets_table = {
	.id = TABLE_SECRETS,
	.name = "secrets",
	.order = "tenant, name",
	.one = "a secret",
	.all = "the secrets",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

DEFINE_PUT(secrets_put, struct secret_row, secrets_table)

int secrets_delete(struct db *d, const char *tenant, const char *name, struct err *e)
{
	return rows_drop(d, &secrets_table, &(struct secret_row){ .tenant = tenant, .name = name }, e);
}

DEFINE_EACH(secrets_each, struct secret_row, secrets_table)

/* --- their values --- */

static const struct column value_columns[] = {
	COLUMN(struct secret_value_row, tenant, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct secret_value_row, name, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct secret_value_row, version, COLUMN_NUMBER, COLUMN_KEY),
	{ "sealed", COLUMN_BLOB, COLUMN_VALUE, offsetof(struct secret_value_row, sealed), 0,
	  offsetof(struct secret_value_row, len) },
};

const struct table secret_values_table = {
	.id = TABLE_SECRET_VALUES,
	.name = "secret_values",
	.order = "tenant, name, version",
	.one = "a secret's value",
	.all = "the secrets' values",
	.columns = value_columns,
	.n = ARRAY_LEN(value_columns),
	.noted = true,
};

int secret_values_put(struct db *d, const struct secret_value_row *v, struct err *e)
{
	return rows_insert(d, &secret_values_table, v, e);
}

int secret_values_reseal(struct db *d, const struct secret_value_row *v, struct err *e)
{
	return rows_update(d, &secret_values_table, v, e);
}

int secret_values_delete(struct db *d, const char *tenant, const char *name, uint64_t version, struct err *e)
{
	return rows_drop(d, &secret_values_table,
			 &(struct secret_value_row){ .tenant = tenant, .name = name, .version = version }, e);
}

DEFINE_EACH(secret_values_each, struct secret_value_row, secret_values_table)
