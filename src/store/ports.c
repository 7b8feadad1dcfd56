/* The table of ports. */
#include "store/db.h"
#include "base/base.h"
#include "store/rows.h"

static const struct column columns[] = {
	COLUMN_AS(struct port_row, sandbox, "box", COLUMN_TEXT, COLUMN_KEY),
	COLUMN(struct port_row, port, COLUMN_NUMBER, COLUMN_KEY),
	COLUMN(struct port_row, public, COLUMN_FLAG, COLUMN_VALUE),
	COLUMN(struct port_row, token, COLUMN_HASH, COLUMN_VALUE),
	COLUMN(struct port_row, created_ns, COLUMN_NUMBER, COLUMN_FIXED),
};

const struct table ports_table = {
	.id = TABLE_PORTS,
	.name = "ports",
	.order = "box, port",
	.one = "a port",
	.all = "the ports",
	.columns = columns,
	.n = ARRAY_LEN(columns),
	.noted = true,
};

DEFINE_PUT(ports_put, struct port_row, ports_table)

int ports_delete(struct db *d, const char *sandbox, uint16_t port, struct err *e)
{
	return rows_drop(d, &ports_table, &(struct port_row){ .sandbox = sandbox, .port = port }, e);
}

DEFINE_EACH(ports_each, struct port_row, ports_table)
