/* Prepares, binds and runs statements. */
#include "store/impl.h"
#include "base/base.h"

int q_keep(struct db *d, sqlite3_stmt **kept, const char *sql, sqlite3_stmt **ret, struct err *e)
{
	if (!*kept && sqlite3_prepare_v3(d->sql, sql, -1, SQLITE_PREPARE_PERSISTENT, kept, NULL) != SQLITE_OK)
		return db_fail(d->sql, e, "prepare");
	*ret = *kept;
	return 0;
}

int q_prepare(struct db *d, enum question q, const char *sql, sqlite3_stmt **ret, struct err *e)
{
	return q_keep(d, &d->q[q], sql, ret, e);
}

static int begin(struct db *d, struct err *e)
{
	sqlite3_stmt *s = NULL;
	int r;

	if (d->begun)
		return 0;
	r = q_prepare(d, Q_BEGIN, "BEGIN IMMEDIATE", &s, e);
	if (r == 0)
		r = q_run(d, s, "begin", e);
	if (r < 0)
		return r;
	d->begun = true;
	return 0;
}

int q_turn(struct db *d, bool alone, bool counts, struct err *e)
{
	int r = begin(d, e);

	if (r == 0 && !alone)
		r = pending_rows_settle(d, e);
	if (r < 0)
		return r;
	if (sqlite3_get_autocommit(d->sql))
		return db_undone(d, e);
	d->counts = d->counts || counts;
	return 0;
}

int q_begin(struct db *d, enum question q, const char *sql, sqlite3_stmt **ret, struct err *e)
{
	const int r = q_turn(d, false, q != Q_IDEM_PRUNE && q != Q_NET_NAME_CLEAR, e);

	return r < 0 ? r : q_prepare(d, q, sql, ret, e);
}

int q_run(struct db *d, sqlite3_stmt *s, const char *what, struct err *e)
{
	int r = sqlite3_step(s);

	r = r == SQLITE_DONE || r == SQLITE_ROW ? sqlite3_changes(d->sql) : db_fail(d->sql, e, what);
	d->full = d->full || r == -ENOSPC;
	sqlite3_reset(s);
	sqlite3_clear_bindings(s);
	return r;
}

void q_text(sqlite3_stmt *s, int at, const char *text)
{
	if (text)
		sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
	else
		sqlite3_bind_null(s, at);
}

void q_u64(sqlite3_stmt *s, int at, uint64_t v)
{
	sqlite3_bind_int64(s, at, (sqlite3_int64)v); /* all bits come back as they were */
}

void q_hash(sqlite3_stmt *s, int at, const uint8_t hash[32])
{
	static const uint8_t none[32];

	if (memcmp(hash, none, sizeof(none)))
		sqlite3_bind_blob(s, at, hash, 32, SQLITE_STATIC);
	else
		sqlite3_bind_null(s, at);
}

const char *q_get_text(sqlite3_stmt *s, int at)
{
	return (const char *)sqlite3_column_text(s, at);
}

uint64_t q_get_u64(sqlite3_stmt *s, int at)
{
	return (uint64_t)sqlite3_column_int64(s, at);
}

void q_get_hash(sqlite3_stmt *s, int at, uint8_t ret[32])
{
	const void *p = sqlite3_column_blob(s, at);

	memset(ret, 0, 32);
	if (p && sqlite3_column_bytes(s, at) == 32)
		memcpy(ret, p, 32);
}

int q_each(struct db *d, const char *sql, int (*row)(void *ctx, sqlite3_stmt *s), void *ctx, const char *what,
	   struct err *e)
{
	sqlite3_stmt *s = NULL;
	int r = pending_rows_settle(d, e), step;

	if (r < 0)
		return r;
	if (sqlite3_prepare_v2(d->sql, sql, -1, &s, NULL) != SQLITE_OK)
		return db_fail(d->sql, e, what);
	for (r = 0; r == 0;) {
		step = sqlite3_step(s);
		if (step == SQLITE_DONE)
			break;
		r = step == SQLITE_ROW ? row(ctx, s) : db_fail(d->sql, e, what);
	}
	sqlite3_finalize(s);
	return r;
}
