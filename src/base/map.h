/*
 * Text to pointer. Keys are copied; values stay the caller's. Open addressing, grows by itself; lookups do not depend
 * on what strangers choose as keys, since the hash is seeded at random.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct map_slot {
	char *key; /* NULL: never used */
	void *value; /* NULL: removed */
	uint64_t hash;
};

struct map {
	struct map_slot *slot;
	size_t size, used, count; /* used counts removed ones too */
	uint64_t seed[2];
};

/* -errno when there is no randomness. */
int map_init(struct map *m);
void map_done(struct map *m);
void *map_get(const struct map *m, const char *key);
/* Adds or replaces. @value is not NULL. 0 or -ENOMEM, which changes nothing. */
int map_put(struct map *m, const char *key, void *value);
void *map_del(struct map *m, const char *key); /* what was there */
/* Walks in no order: start with *at = 0; NULL at the end. Nothing may be added meanwhile; removing is fine. */
void *map_next(const struct map *m, size_t *at);
