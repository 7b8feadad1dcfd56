/*
 * The kept output of an exec's stream: all of it up to a bound, then its beginning and its end. Small output stays in
 * memory; more goes to a file, written by a worker thread, one piece at a time. The next piece waits for it, so that
 * memory stays bounded and a slow disk slows the command, not the daemon.
 *
 * A byte's offset in the file is its offset in the stream, and beyond the bound the middle becomes a hole: so the
 * file's size is the length of the stream, also after a crash.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"

/* Bytes in files, of many spools. */
struct spool_room {
	uint64_t used, max;
};

struct spool {
	uv_loop_t *loop;
	struct spool_room *all, *share; /* of the daemon, and of the tenant */
	uint64_t half; /* of the bound: so much of the beginning, and of the end */
	uint64_t total; /* bytes that came */
	uint64_t base; /* what came before was passed on and not kept */
	uint64_t file_len; /* bytes of the file that take room, those that are being written too */
	uint64_t holed; /* where the hole in the file's middle ends. The worker's, while there is one */
	struct buf mem; /* while there is no file */
	int fd; /* -1 = none */
	char *piece; /* being written */
	size_t piece_len;
	uint64_t piece_at;
	bool writing, pulling;
	bool failed; /* nothing more is kept */
	uint64_t lost_at; /* of what was in the file: everything from here on is gone */
	bool copy, short_of; /* of a pull: it is no pipe; the file took less than there was */
	int write_r; /* of a write */
	uv_work_t work;
	int pipe; /* ours, while something is pulled out of it */
	size_t pull_max;
	uint64_t was_len; /* file_len before */
	ssize_t pulled;
	bool show; /* the caller needs the bytes that are pulled */
	const char *seen; /* that, while @done is called; NULL when there was no memory */
	void (*done)(void *arg);
	void *arg;
	char path[320];
};

/* @path: of the file, when one is needed. @early: from the first byte on. */
void spool_init(struct spool *s, uv_loop_t *loop, const char *path, uint64_t max, struct spool_room *all,
		struct spool_room *share);
/*
 * Adds a copy. 0: done. 1: being written; nothing may be added before @done is called. Never fails: beyond @max the
 * middle is lost, with a full disk or no room (@all, @share) everything from then on.
 */
int spool_add(struct spool *s, const char *data, size_t len, bool early, void (*done)(void *arg), void *arg);
/*
 * Moves up to @max bytes from a pipe straight into the file: they are in the one or in the other at every moment, also
 * when we die. 1: being done, as above; then ->pulled says how many, 0 at the pipe's end, or -errno, -EAGAIN when it is
 * empty. 0: this spool cannot; read and add.
 */
enum spool_from { SPOOL_PIPE, SPOOL_TTY }; /* from a terminal it is read and written right behind each other */
int spool_pull(struct spool *s, int pipe, enum spool_from from, size_t max, void (*done)(void *arg), void *arg);
/* They were passed on: only counted. Nothing may be kept yet. */
void spool_skip(struct spool *s, size_t len);
/* The first byte at or after @offset that is there; ->total when none is. */
uint64_t spool_first(const struct spool *s, uint64_t offset);
/* Up to @len bytes from @offset, which must be there; stops at a gap. Returns 0 at the end, or -errno. */
ssize_t spool_read(const struct spool *s, uint64_t offset, char *to, size_t len);
/* After a crash: continues behind the file's content. */
void spool_reopen(struct spool *s);
/* Frees the memory and removes the file. Not while writing: then by the last write. */
void spool_drop(struct spool *s);
bool spool_busy(const struct spool *s);
