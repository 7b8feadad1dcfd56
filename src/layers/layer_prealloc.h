/*
 * What every layer begins with, made ahead while nobody waits for it: its folder and what is always in that, on the disk
 * already, a buffer and a thread. New names are dear where much was removed lately: ext4 without a journal passes over
 * each inode that was freed within the last minutes, up to half a millisecond for every one it gives out.
 */
#pragma once
#include <stdbool.h>

struct flush;
struct layer_prealloc;

#define LAYER_PREALLOC_PREFIX "ready-" /* of its name in the store; shorter than a layer's, in all */

struct layer_prealloc_item {
	int tmp, fs, manifest; /* folder, folder in it, and manifest_make() */
	char *buf; /* TREE_BUF, of which some was touched */
	struct flush *flush;
};

/* For any number of threads. @dir, the store, stays the caller's. NULL when there is no memory; all may be called with NULL. */
struct layer_prealloc *layer_prealloc_new(int dir);
/* And removes what nobody took. */
void layer_prealloc_free(struct layer_prealloc *s);
/* Makes one if there is none. Takes its time; nothing but time is lost if it fails. */
void layer_prealloc_fill(struct layer_prealloc *s);
/* As the store's folder @name, which is not there; all in @ret is the caller's. False: there is none. */
bool layer_prealloc_take(struct layer_prealloc *s, const char *name, struct layer_prealloc_item *ret);
