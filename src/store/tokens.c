/* The table of tokens. */
#include "store/db.h"
#include "base/base.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN(struct token_row, id, COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct token_row, tenant, COLUMN_TEXT, COLUMN_FIXED),
	COLUMN(struct token_row, name, COLUMN_TEXT_OR_EMPTY, COLUMN_VALUE),
	COLUMN(struct token_row, hash, COLUMN_HASH, COLUMN_VALUE),
	COLUMN(struct token_row, old_hash, COLUMN_HASH, COLUMN_VALUE),
	COLUMN(struct token_row, old_until_ns, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct token_row, scope, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct token_row, created_ns, COLUMN_NUMBER, COLUMN_FIXED),
	COLUMN(struct token_row, expires_ns, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct token_row, rate_points, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct token_row, rate_window_ms, COLUMN_NUMBER, COLUMN_VALUE),
	COLUMN(struct token_row, rate_block_ms, COLUMN_NUMBER, COLUMN_VALUE),
};

const struct table tokens_table = {
	.id = TABLE_TOKENS,
	.name = "tokens",
	.order = "created_ns, id",
	.one = "a token",
	.all = "the tokens",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

DEFINE_PUT(tokens_put, struct token_row, tokens_table)

int tokens_delete(struct db *d, const char *id, struct err *e)
{
	return rows_drop(d, &tokens_table, &(struct token_row){ .id = id }, e);
}

DEFINE_EACH(tokens_each, struct token_row, tokens_table)
