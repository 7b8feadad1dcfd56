#include "store/db.h"
#include "base/base.h"
#include "store/impl.h"

int nets_put(struct db *d, const struct net_row *n, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_NET_PUT,
			"INSERT INTO nets (box, counts, observed) VALUES (?1,?2,?3)"
			" ON CONFLICT (box) DO UPDATE SET counts=?2, observed=?3",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, n->sandbox);
	q_text(s, 2, n->counts);
	q_text(s, 3, n->observed ? n->observed : "");
	r = q_run(d, s, "store what a network has used", e);
	return r < 0 ? r : 0;
}

int net_names_put(struct db *d, const struct net_name_row *n, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_NET_NAME_PUT,
			"INSERT INTO net_names (box, number, name) VALUES (?1,?2,?3)"
			" ON CONFLICT (box, number) DO UPDATE SET name=?3",
			&s, e);

	if (r < 0)
		return r;
	q_text(s, 1, n->sandbox);
	q_u64(s, 2, n->number);
	q_text(s, 3, n->name);
	r = q_run(d, s, "store a name", e);
	return r < 0 ? r : 0;
}

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

int net_trees_put(struct db *d, const struct net_tree_row *t, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_NET_TREE_PUT,
			"INSERT INTO net_trees (id, counts) VALUES (?1,?2) ON CONFLICT (id) DO UPDATE SET counts=?2", &s, e);

	if (r < 0)
		return r;
	q_u64(s, 1, t->id);
	q_text(s, 2, t->counts);
	r = q_run(d, s, "store what a tree of forks has used", e);
	return r < 0 ? r : 0;
}

int net_trees_delete(struct db *d, uint64_t id, struct err *e)
{
	sqlite3_stmt *s;
	int r = q_begin(d, Q_NET_TREE_DELETE, "DELETE FROM net_trees WHERE id = ?1", &s, e);

	if (r < 0)
		return r;
	q_u64(s, 1, id);
	r = q_run(d, s, "remove a tree of forks", e);
	return r < 0 ? r : 0;
}

/* --- all of them --- */

struct nets {
	int (*fn)(void *arg, const struct net_row *n);
	void *arg;
};

static int net_row(void *ctx, sqlite3_stmt *s)
{
	const struct nets *x = ctx;
	const struct net_row n = { q_get_text(s, 0), q_get_text(s, 1), q_get_text(s, 2) };

	return x->fn(x->arg, &n);
}

int nets_each(struct db *d, int (*fn)(void *arg, const struct net_row *n), void *arg, struct err *e)
{
	return q_each(d, "SELECT box, counts, observed FROM nets", net_row, &(struct nets){ fn, arg }, "load networks", e);
}

struct names {
	int (*fn)(void *arg, const struct net_name_row *n);
	void *arg;
};

static int name_row(void *ctx, sqlite3_stmt *s)
{
	const struct names *x = ctx;
	const struct net_name_row n = { .sandbox = q_get_text(s, 0),
					.number = (uint32_t)q_get_u64(s, 1),
					.name = q_get_text(s, 2) };

	return x->fn(x->arg, &n);
}

int net_names_each(struct db *d, int (*fn)(void *arg, const struct net_name_row *n), void *arg, struct err *e)
{
	return q_each(d, "SELECT box, number, name FROM net_names ORDER BY box, number", name_row, &(struct names){ fn, arg },
		      "load names", e);
}

struct trees {
	int (*fn)(void *arg, const struct net_tree_row *t);
	void *arg;
};

static int tree_row(void *ctx, sqlite3_stmt *s)
{
	const struct trees *x = ctx;
	const struct net_tree_row t = { q_get_u64(s, 0), q_get_text(s, 1) };

	return x->fn(x->arg, &t);
}

int net_trees_each(struct db *d, int (*fn)(void *arg, const struct net_tree_row *t), void *arg, struct err *e)
{
	return q_each(d, "SELECT id, counts FROM net_trees", tree_row, &(struct trees){ fn, arg }, "load trees of forks", e);
}
