/*
 * What every layer begins with, made ahead: its folder and the fixed content of that, on the disk already, a buffer and
 * a thread. New names are expensive where much was removed lately: ext4 without a journal skips every inode that was
 * freed within the last minutes, which costs up to half a millisecond for each new one.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct flush;
struct layer_prealloc;

#define LAYER_PREALLOC_PREFIX "ready-" /* of its name in the store; the whole name is shorter than a layer's */

struct layer_prealloc_item {
	int tmp, fs, manifest; /* the folder, the folder in it, and manifest_make() */
	char *buf; /* TREE_BUF bytes, the first of which are touched */
	struct flush *flush;
};

/*
 * For any number of threads. @dir, the store, stays the caller's. NULL when there is no memory; all functions accept
 * NULL.
 */
struct layer_prealloc *layer_prealloc_new(int dir);
/* Also removes a folder that was not taken. */
void layer_prealloc_free(struct layer_prealloc *s);
/* Makes one if there is none. Slow; a failure costs only time. */
void layer_prealloc_fill(struct layer_prealloc *s);
/* The current name of its folder. False: there is none. */
bool layer_prealloc_name(struct layer_prealloc *s, char *ret, size_t size);
/* Takes it as the store's folder @name, which must not exist; all in @ret is the caller's. False: there is none. */
bool layer_prealloc_take(struct layer_prealloc *s, const char *name, struct layer_prealloc_item *ret);
