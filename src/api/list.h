/*
 * Lists that a client reads in pages: parameters of the query (`tenant`, `limit`, `cursor`, `metadata.KEY=VALUE`), the
 * order, and the answer with `next`.
 */
#pragma once
#include "api/api.h"

#define LIST_META_MAX 8U
#define LIST_FILTERS_MAX 3U

struct list_item {
	const void *what;
	const char *id;
	uint64_t created_ns;
};

struct list {
	const char *filters[LIST_FILTERS_MAX]; /* parameters that this list has besides those of every list */
	const struct tenant *tenant; /* NULL: all tenants */
	size_t limit;
	const char *after; /* the last id of the previous page; NULL: this is the first page */
	uint64_t after_ns;
	struct {
		const char *key, *value;
	} meta[LIST_META_MAX];
	unsigned nmeta;
	struct list_item *item;
	size_t n, room;
	bool failed; /* there was no memory for an item */
};

/* @l has its filters only. Texts are the request's. A parameter that is not known is an error. @of: the default tenant for an admin; NULL: the admin's own. */
int list_read(struct call *c, const struct tenant *of, struct list *l, struct err *e);
void list_done(struct list *l);
static inline void list_donep(struct list *l)
{
	list_done(l);
}
/* Whether @k has all metadata of the query. */
bool list_meta_fits(const struct list *l, const struct kv *k);
/* Adds an item of this page or a later one. @id and @what are the caller's until the answer. */
void list_add(struct list *l, uint64_t created_ns, const char *id, const void *what);
/* Items of the same time are ordered by id. */
void list_oldest_first(struct list *l);
/* Answers {KEY: [the newest first, up to the limit], "next"}, and ends the call. */
void list_answer(struct call *c, struct list *l, const char *key, void (*put)(struct json *j, const void *what));
