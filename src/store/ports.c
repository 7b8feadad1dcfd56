#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

int ports_put(struct db *d, const struct port_row *p, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_PORT_PUT,
			"INSERT INTO ports (box, port, public, token, created_ns) VALUES (?1,?2,?3,?4,?5) "
			"ON CONFLICT (box, port) DO UPDATE SET public=?3, token=?4",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, p->sandbox);
	q_u64(s, 2, p->port);
	q_u64(s, 3, p->public);
	q_hash(s, 4, p->token);
	q_u64(s, 5, p->created_ns);
	note_row(d, NOTE_PORTS, p->sandbox, NULL, p->port);
	r = q_run(d, s, "store a port", e);
	return r < 0 ? r : 0;
}

int ports_delete(struct db *d, const char *sandbox, uint16_t port, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_PORT_DELETE, "DELETE FROM ports WHERE box = ?1 AND port = ?2", &s, e);

	if (r < 0)
		return r;
	q_text(s, 1, sandbox);
	q_u64(s, 2, port);
	note_row(d, NOTE_PORTS, sandbox, NULL, port);
	r = q_run(d, s, "delete a port", e);
	return r < 0 ? r : 0;
}

struct each {
	int (*fn)(void *arg, const struct port_row *p);
	void *arg;
};

static int row(void *ctx, sqlite3_stmt *s)
{
	const struct each *x = ctx;
	struct port_row p = {
		.sandbox = q_get_text(s, 0),
		.port = (uint16_t)q_get_u64(s, 1),
		.public = q_get_u64(s, 2),
		.created_ns = q_get_u64(s, 4),
	};

	q_get_hash(s, 3, p.token);
	return x->fn(x->arg, &p);
}

int ports_each(struct db *d, int (*fn)(void *arg, const struct port_row *p), void *arg, struct err *e)
{
	return q_each(d, "SELECT box, port, public, token, created_ns FROM ports ORDER BY box, port", row,
		      &(struct each){ fn, arg }, "load the ports", e);
}
