/*
 * Folders as tar streams. Reading a folder: a piece of tar at a time, made when it is asked for. Writing one: every
 * name in the stream is hostile, so nothing is written outside the destination, not through links either, and nothing
 * but files, folders and links comes into being.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"

struct tree_reader;
/* @prefix is put before all names; "" leaves out the top folder itself. */
int tree_read_open(const char *path, const char *prefix, struct tree_reader **ret, struct err *e);
/* Which names are taken: called for each below the top, before anything of it is read. TREE_LOOK: only what is in the folder. */
enum tree_pick { TREE_TAKE, TREE_LOOK, TREE_SKIP };
typedef enum tree_pick tree_pick_fn(void *arg, const char *name, bool folder);
/* Names are picked, and modes keep their set-id and sticky bits. */
void tree_read_exactly(struct tree_reader *t, tree_pick_fn *pick, void *arg);
/* About how many bytes the files that are taken have. */
int tree_measure(const char *path, tree_pick_fn *pick, void *arg, uint64_t *ret_bytes, struct err *e);
/* Up to @len bytes, 0 at the end, or a negative errno with the detail in tree_read_error(). */
ssize_t tree_read(struct tree_reader *t, char *buf, size_t len);
const struct err *tree_read_error(const struct tree_reader *t);
void tree_read_free(struct tree_reader *t);
DEFINE_AUTO(struct tree_reader, tree_read_free)

struct tree_stats {
	uint64_t files, bytes, skipped;
};
/* Unpacks the tar that @source hands out piece by piece (0 at the end) below the existing folder @path. */
int tree_unpack(const char *path, ssize_t (*source)(void *arg, const void **ret_data), void *arg,
		struct tree_stats *ret, struct err *e);
