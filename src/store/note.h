/*
 * A copy of each row that cannot be made again, in a file of its own below "notes" in the data folder. When the database
 * is lost it is rebuilt from them (`cloche serve --recover`). They are written after the commit of the row, and compared
 * with all rows when the database is opened; short-lived sandboxes (store/pending_rows.h) and execs that have ended have none.
 *
 * A file is: "cloche note 1\n"; the table's name; of each column name, type and value; 16 bytes of the SHA-256 of all that.
 * Texts and values have their length before them. Its name is the table's and a hash of the row's key. Files that are
 * removed serve again (store/spare.h): one whose name is not its row's is not a note.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "store/spare.h"

#define NOTES_FOLDER "notes"
#define NOTE_KEPT "kept-" /* likewise: service/adopt.c */
#define NOTE_LOOSE "loose-" /* files of others in this folder: service/checkpoint/layer.h */

struct db;

/* The tables of the database. */
enum table_id {
	/* those with notes */
	TABLE_TENANTS,
	TABLE_TOKENS,
	TABLE_SANDBOXES,
	TABLE_CHECKPOINTS,
	TABLE_TEMPLATES,
	TABLE_POOLS,
	TABLE_SECRETS,
	TABLE_SECRET_VALUES,
	TABLE_PORTS,
	TABLE_EXECS, /* those that run */
	TABLE_IMAGES,
	TABLE_IMAGE_LAYERS,
	TABLES_NOTED,

	TABLE_IDEM = TABLES_NOTED,
	TABLE_NETS,
	TABLE_NET_NAMES,
	TABLE_NET_TREES,
	TABLE_BUILD_CACHE,
	TABLES
};

struct note; /* one that is to be written or removed */

struct notes {
	int dir; /* -1: none are kept */
	struct map have; /* names of files that are there */
	struct spares spares;
	struct note *pending;
	bool later; /* notes_later() */
	bool failed; /* a failure was logged; it is logged once */
};

/* Makes the folder. */
int notes_open(struct notes *n, const char *folder, struct err *e);
void notes_close(struct notes *n);

/* The row with this key has changed, in the turn's transaction. @number is the last part of a key that has one. */
void note_row(struct db *d, enum table_id t, const char *key, const char *key2, uint64_t number);
/* As note_row(), for one that mostly never had a note. */
void note_gone(struct db *d, enum table_id t, const char *key);
/*
 * From notes_later() to notes_usual(): rows that change get their note after the next commit instead of this one, since
 * they are about to change again. Before a caller learns of them, notes_now() must be called, followed by a commit.
 */
void notes_later(struct db *d);
void notes_usual(struct db *d);
void notes_now(struct db *d);
/* After the commit. What cannot be written now is tried again after the next. */
void notes_flush(struct db *d);
/* Once a second. */
void notes_ahead(struct db *d);
/* An empty file that is no note (NOTE_LOOSE) in the same folder. */
void notes_mark(struct db *d, const char *name);
void notes_unmark(struct db *d, const char *name);
/* Makes the files what the rows are. */
int notes_sync(struct db *d, struct err *e);

/* Replaces the rows of all these tables by what the files say. 0 when there are none: then nothing is changed. */
int notes_restore(struct db *d, unsigned ret_count[TABLES_NOTED], struct err *e);
