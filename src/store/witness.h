/*
 * Ties the database to its data folder: the file "state.id" there names the database and says how far it was. A database
 * of another folder, one that was put back from an older copy and one that lost its log are noticed by it.
 *
 * The database has a table "stamp" with the same name and a number that grows with each commit that counts. The file is
 * written after each such commit, so it is never ahead of what SQLite has, unless something was taken away. Neither is synced:
 * after a crash of the machine the file may be newer than the database, so numbers are compared within one boot only.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

#define WITNESS_FILE "state.id"

struct witness {
	int fd; /* -1: none */
	char id[ID_SIZE]; /* of the database, "" = not known */
	bool now; /* of this boot: the numbers count */
	uint64_t turn; /* commits that counted */
	uint64_t pending; /* bytes of the file of pending rows (store/pending_rows.h) that count */
};

/* 1: read, and open to be written. 0: there is none. -EBADMSG: it is not one. */
int witness_open(const char *folder, struct witness *ret, struct err *e);
/* Makes it anew, for good. ->id, ->turn and ->late are set. */
int witness_make(const char *folder, struct witness *w, struct err *e);
/* What counts now. A failure leaves an older truth, which is one as well. */
void witness_write(const struct witness *w);
void witness_done(struct witness *w);
