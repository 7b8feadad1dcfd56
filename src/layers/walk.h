/*
 * A walk through a hostile tree of folders: by descriptors only, without following links, to any depth. One folder is
 * open at a time; the way back is "..", accepted only if it is the folder that was left.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WALK_ENTRIES (8U << 20) /* of a whole tree; above it -E2BIG */
#define WALK_NAMES (256U << 20) /* bytes of names of all folders on the current path */

struct walk_level {
	dev_t dev;
	ino_t ino;
	char **name; /* names in the folder, all read when it was entered */
	char *text;
	size_t count, at;
	size_t bytes;
};

struct walk {
	int fd; /* the current folder */
	bool sorted; /* names come in byte order; else in any order */
	struct walk_level *level;
	size_t depth, room; /* depth 1: the folder where the walk began */
	size_t bytes;
	uint64_t entries;
};

/* Takes over @dir, a folder open for reading, even on an error. */
int walk_begin(struct walk *w, int dir, bool sorted);
void walk_done(struct walk *w);
/* The next name in this folder, or NULL after the last. */
const char *walk_next(struct walk *w);
/* Enters that folder. -ENOTDIR, -ELOOP when it is not a folder. */
int walk_down(struct walk *w, const char *name);
/* Returns to the parent folder; then walk_name() is the folder that was left. -ESTALE when it was moved. */
int walk_up(struct walk *w);
/* The last result of walk_next(). */
const char *walk_name(const struct walk *w);
