/*
 * Numbers for sandboxes, for messages between two processes. A number is never reused, and leads to its object without
 * a search.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define KERNEL_TABLE_BITS 20 /* bits of a number that are its place */

struct kernel_table {
	void **at;
	uint64_t *id; /* numbers by place; 0: the place is free */
	uint64_t max, given;
};

static inline void kernel_table_done(struct kernel_table *t)
{
	free(t->at);
	free(t->id);
}

static inline void *kernel_table_find(const struct kernel_table *t, uint64_t id)
{
	const uint64_t place = id & ((1U << KERNEL_TABLE_BITS) - 1);

	return id && place < t->max && t->id[place] == id ? t->at[place] : NULL;
}

/* Stores @x under a number. 0, or -1: no memory, or the place does not exist. */
static inline int kernel_table_put(struct kernel_table *t, uint64_t id, void *x)
{
	const uint64_t place = id & ((1U << KERNEL_TABLE_BITS) - 1);

	if (place >= t->max) {
		const uint64_t max = place < 32 ? 64 : 2 * place;
		void **at = realloc(t->at, max * sizeof(*at));
		uint64_t *ids = at ? realloc(t->id, max * sizeof(*ids)) : NULL;

		t->at = at ? at : t->at;
		if (!ids)
			return -1;
		t->id = ids;
		for (uint64_t i = t->max; i < max; i++)
			ids[i] = 0;
		t->max = max;
	}
	t->at[place] = x;
	t->id[place] = id;
	return 0;
}

/* Gives @x a new number; 0: no memory, or there are too many. */
static inline uint64_t kernel_table_add(struct kernel_table *t, void *x)
{
	uint64_t place = 0, id;

	while (place < t->max && t->id[place])
		place++;
	id = ++t->given << KERNEL_TABLE_BITS | place;
	return place >> KERNEL_TABLE_BITS || kernel_table_put(t, id, x) < 0 ? 0 : id;
}

static inline void kernel_table_remove(struct kernel_table *t, uint64_t id)
{
	if (kernel_table_find(t, id))
		t->id[id & ((1U << KERNEL_TABLE_BITS) - 1)] = 0;
}
