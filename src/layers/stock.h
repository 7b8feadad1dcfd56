/*
 * What every layer begins with, made ahead while nobody waits for it: its folder and what is always in that, on the disk
 * already, a buffer and a thread. New names are dear where much was removed lately: ext4 without a journal passes over
 * each inode that was freed within the last minutes, up to half a millisecond for every one it gives out.
 */
#pragma once
#include <stdbool.h>

struct flush;
struct stock;

#define STOCK_PREFIX "ready-" /* of its name in the store; shorter than a layer's, in all */

struct stock_item {
	int tmp, fs, manifest; /* folder, folder in it, and manifest_make() */
	char *buf; /* TREE_BUF, of which some was touched */
	struct flush *flush;
};

/* For any number of threads. @dir, the store, stays the caller's. NULL when there is no memory; all may be called with NULL. */
struct stock *stock_new(int dir);
/* And removes what nobody took. */
void stock_free(struct stock *s);
/* Makes one if there is none. Takes its time; nothing but time is lost if it fails. */
void stock_fill(struct stock *s);
/* As the store's folder @name, which is not there; all in @ret is the caller's. False: there is none. */
bool stock_take(struct stock *s, const char *name, struct stock_item *ret);
