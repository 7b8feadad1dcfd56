/*
 * Room that the database's files have before they need it, so that what ends or is deleted can be stored on a disk that is
 * full, also where a reserve of the file system is root's alone: a part of the log, of the file, of the log's index and
 * of the file of pending rows. Taken at the start and after each commit, as far as the disk has it.
 */
#pragma once
#include <stdint.h>

struct db;

struct ahead_part {
	uint64_t used, end; /* of the file; so far it has room */
};

struct ahead {
	/* -1: none. Of the last two, closing one would end SQLite's locks: they stay open as long as it */
	int wal, file, shm;
	struct ahead_part wal_part, file_part, pending_part;
	char *path; /* of the database */
};

void ahead_init(struct ahead *a);
/* After the first commit: then all files are there. Without a file, or without room, there is just less of it. */
void ahead_open(struct db *d, const char *path);
/* After a commit: takes what was used up again. Where there is none left to take, moves the log into the file, so that it starts over. */
void ahead_keep(struct db *d);
/* After SQLite has closed its own. */
void ahead_close(struct ahead *a);
