/*
 * Rows of sandboxes that SQLite does not have yet. Many sandboxes live for less than a second, and to insert a row, look
 * for all that may hang on it, and delete it again was a quarter of what the API process did for one. So a new row goes
 * into a file beside the database, "-late", with one write at the end of its turn. When the sandbox ends soon, a second
 * record removes it, and SQLite never gets it; otherwise it is settled, that is inserted, within UPKEEP_MS or as soon as
 * a row is stored that refers to it.
 *
 * A row counts as stored when it is in the file, as one in SQLite's log does: neither is synced, both outlive the
 * process, not a crash of the machine. What the file holds is inserted when it is opened the next time, unless the
 * machine was started anew in between: then it may be older than what SQLite has, and no sandbox of it runs. Where what is
 * answered is to outlive that (struct db_opts, sure), no row comes here.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct db;
struct sandbox_row;
struct pending_row;

struct pending_rows {
	int fd; /* -1: none, all rows go to SQLite */
	char *name;
	uint64_t size; /* of the file */
	struct pending_row *rows;
	unsigned n;
	struct buf gone; /* records of this turn */
	struct buf out;
};

/* @path: of the database, whose schema is up to date. */
int pending_rows_open(struct db *d, const char *path, struct err *e);
/* Whether all rows that count are in the file: -ESTALE when some are not. Changes nothing. */
int pending_rows_check(struct db *d, const char *path, struct err *e);
/* The file stays when there are rows in it. */
void pending_rows_close(struct db *d);

/* 1: kept. 0: too large, or there is no file. */
int pending_rows_insert(struct db *d, const struct sandbox_row *b, struct err *e);
/* 1: the row was only here, and is gone. 0: SQLite may have it. */
int pending_rows_delete(struct db *d, const char *id, struct err *e);
/* Inserts what is here, in the turn's transaction. */
int pending_rows_settle(struct db *d, struct err *e);
/* The turn's end, before SQLite's commit and after it. */
int pending_rows_write(struct db *d, struct err *e);
int pending_rows_committed(struct db *d, struct err *e);
