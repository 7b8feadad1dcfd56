/* What the files of the store share. */
#pragma once
#include <sqlite3.h>

#include "store/ahead.h"
#include "store/db.h"
#include "store/pending_rows.h"
#include "store/note.h"
#include "store/question.h"
#include "store/rows.h"
#include "store/witness.h"

struct db {
	sqlite3 *sql;
	sqlite3_stmt *q[Q_COUNT];
	sqlite3_stmt *row[TABLES][ROW_CALLS];
	bool begun; /* the turn's transaction */
	bool undone; /* a turn was, as a whole */
	bool full; /* the disk was, once: what undid it */
	uint64_t frame, log_bytes; /* a page in the log, all of it */
	char *found; /* idem_find's texts */
	struct pending_rows pending;
	bool sure; /* see struct db_opts */
	bool counts; /* the turn's transaction changes what must not be lost unnoticed */
	struct witness seen;
	struct ahead ahead;
	struct notes notes;
	sqlite3_stmt *note_row[TABLES_NOTED];
};

/* Whether the file is ours and not from the future; changes nothing. */
int schema_check(sqlite3 *sql, size_t *ret_version, struct err *e);
int schema_update(sqlite3 *sql, size_t version, struct err *e);

/* Sets @e from what SQLite said last; the errno that fits. */
int db_fail(sqlite3 *sql, struct err *e, const char *what);
/* SQLite has undone the turn's transaction by itself. */
int db_undone(const struct db *d, struct err *e);

/*
 * A write: q_begin gives the statement, with the turn's transaction open; values are bound by place; q_run runs it and
 * makes it ready for the next time. Binding to places that exist fails only without memory, which q_run then returns.
 */
int q_begin(struct db *d, enum question q, const char *sql, sqlite3_stmt **ret, struct err *e);
int q_run(struct db *d, sqlite3_stmt *s, const char *what, struct err *e); /* how many rows were changed */
/*
 * Opens the turn's transaction. @alone: what follows does not refer to rows that may still be pending. @counts: it changes what
 * must not be lost unnoticed.
 */
int q_turn(struct db *d, bool alone, bool counts, struct err *e);
/* The statement in @kept, which is prepared now if it was not yet. */
int q_keep(struct db *d, sqlite3_stmt **kept, const char *sql, sqlite3_stmt **ret, struct err *e);
/* Only asks: no transaction. */
int q_prepare(struct db *d, enum question q, const char *sql, sqlite3_stmt **ret, struct err *e);

void q_text(sqlite3_stmt *s, int at, const char *text); /* NULL is NULL; stays the caller's until q_run */
void q_u64(sqlite3_stmt *s, int at, uint64_t v);
void q_hash(sqlite3_stmt *s, int at, const uint8_t hash[32]); /* zeros are NULL */

const char *q_get_text(sqlite3_stmt *s, int at); /* NULL when it is */
uint64_t q_get_u64(sqlite3_stmt *s, int at);
void q_get_hash(sqlite3_stmt *s, int at, uint8_t ret[32]); /* zeros when it is NULL */

/* Runs @sql and calls @row for each row until it returns something else than 0. */
int q_each(struct db *d, const char *sql, int (*row)(void *ctx, sqlite3_stmt *s), void *ctx, const char *what,
	   struct err *e);
