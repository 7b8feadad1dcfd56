/* The tables of networks: what they have used, the names they know, trees of forks. */
#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN_AS(struct net_row, sandbox, "box", COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct net_row, counts, COLUMN_TEXT, COLUMN_VALUE),
	COLUMN(struct net_row, observed, COLUMN_TEXT_OR_EMPTY, COLUMN_VALUE),
};

static const struct table nets_table = {
	.id = TABLE_NETS,
	.name = "nets",
	.order = "box",
	.one = "what a network has used",
	.all = "what networks have used",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.slight = true,
};

static const struct column name_columns[] = {
	COLUMN_AS(struct net_name_row, sandbox, "box", COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct net_name_row, number, COLUMN_NUMBER, COLUMN_KEY),
	COLUMN(struct net_name_row, name, COLUMN_TEXT, COLUMN_VALUE),
};

static const struct table net_names_table = {
	.id = TABLE_NET_NAMES,
	.name = "net_names",
	.order = "box, number",
	.one = "a name",
	.all = "the names",
	.columns = name_columns,
	.n = ARRAY_LEN(name_columns),
	.slight = true,
};

static const struct column tree_columns[] = {
	COLUMN(struct net_tree_row, id, COLUMN_NUMBER, COLUMN_KEY),
	COLUMN(struct net_tree_row, counts, COLUMN_TEXT, COLUMN_VALUE),
};

static const struct table net_trees_table = {
	.id = TABLE_NET_TREES,
	.name = "net_trees",
	.order = "id",
	.one = "a tree of forks",
	.all = "the trees of forks",
	.columns = tree_columns,
	.n = ARRAY_LEN(tree_columns),
	.slight = true,
};

DEFINE_PUT(nets_put, struct net_row, nets_table)

DEFINE_EACH(nets_each, struct net_row, nets_table)

DEFINE_PUT(net_names_put, struct net_name_row, net_names_table)

int net_names_clear(struct db *d, const char *sandbox, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_NET_NAME_CLEAR, "DELETE FROM net_names WHERE box = ?1", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, sandbox);
	r = q_run(d, s, "remove old names", e);
	return r < 0 ? r : 0;
}

DEFINE_EACH(net_names_each, struct net_name_row, net_names_table)

DEFINE_PUT(net_trees_put, struct net_tree_row, net_trees_table)

int net_trees_delete(struct db *d, uint64_t id, struct err *e)
{
	return rows_drop(d, &net_trees_table, &(struct net_tree_row){ .id = id }, e);
}

DEFINE_EACH(net_trees_each, struct net_tree_row, net_trees_table)
