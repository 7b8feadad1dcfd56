/*
 * A walk through a tree of folders that somebody hostile may have made: by descriptors only, never following a link,
 * however deep. One folder is open at a time; the way back is "..", believed only if it is the folder we came from.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WALK_ENTRIES (8U << 20) /* of a whole tree; -E2BIG beyond */
#define WALK_NAMES (256U << 20) /* bytes of names of all folders that are being walked */

struct walk_level {
	dev_t dev;
	ino_t ino;
	char **name; /* of what is in it, all read when it was entered */
	char *text;
	size_t count, at;
	size_t bytes;
};

struct walk {
	int fd; /* the folder we are in */
	bool sorted; /* names come in the order of their bytes, else in any */
	struct walk_level *level;
	size_t depth, room; /* depth 1: in the folder the walk began with */
	size_t bytes;
	uint64_t entries;
};

/* Takes @dir, a folder open for reading, in any case. */
int walk_begin(struct walk *w, int dir, bool sorted);
void walk_done(struct walk *w);
/* The next name in this folder, or NULL after the last. */
const char *walk_next(struct walk *w);
/* Into that folder. -ENOTDIR, -ELOOP when it is none. */
int walk_down(struct walk *w, const char *name);
/* Back; then walk_name() is the folder that was left. -ESTALE when somebody moved it. */
int walk_up(struct walk *w);
/* What walk_next() gave last. */
const char *walk_name(const struct walk *w);
