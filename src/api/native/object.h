/*
 * Handlers that show, list and remove objects which have a path of their own. A noun of the API says how the object in the path
 * is found (`struct X *find(struct call *)`; NULL: the call has been answered), written and removed.
 */
#pragma once
#include "api/native/named.h"

/* Answers with what was written; a change is answered when it is stored. */
void call_object(struct call *c, int status, struct json *j);
/* Answers a removal: @r is what it returned. */
void call_removed(struct call *c, int r, const struct err *e);
/* Answers {KEY: [what @write_all writes]}. That returns -errno when it has answered the call. */
void object_list(void *arg, struct http_req *q, const struct route *r, const char *key,
		 int (*write_all)(struct call *c, struct json *j));

#define OBJECT_MAX (64 * MIB)

/* void WRITE(const TYPE *, struct json *) */
#define DEFINE_SHOW(handler, type, find, write)                                                                        \
	void handler(void *arg, struct http_req *q, const struct route *r)                                             \
	{                                                                                                              \
		AUTO(buf_done) struct buf out = BUF_INIT(OBJECT_MAX);                                                  \
		struct call *c = call_new(arg, q, r);                                                                  \
		const type *x = find(c);                                                                               \
		struct json j = JSON_INIT(&out);                                                                       \
                                                                                                                       \
		if (!x)                                                                                                \
			return;                                                                                        \
		write(x, &j);                                                                                          \
		call_object(c, 200, &j);                                                                               \
	}

#define DEFINE_LIST(handler, key, write_all)                                                                           \
	void handler(void *arg, struct http_req *q, const struct route *r)                                             \
	{                                                                                                              \
		object_list(arg, q, r, key, write_all);                                                                \
	}

/* int REMOVE(TYPE *, const struct who *, struct err *) */
#define DEFINE_REMOVE(handler, type, find, remove)                                                                     \
	void handler(void *arg, struct http_req *q, const struct route *r)                                             \
	{                                                                                                              \
		struct call *c = call_new(arg, q, r);                                                                  \
		type *x = find(c);                                                                                     \
		struct err e = { 0 };                                                                                  \
                                                                                                                       \
		if (x)                                                                                                 \
			call_removed(c, remove(x, &c->who, &e), &e);                                                   \
	}

/* All three, of a kind that a tenant has by name: get_POOL, get_POOLs, delete_POOL of POOL_kind. */
#define DEFINE_NAMED(noun)                                                                                             \
	void get_##noun(void *arg, struct http_req *q, const struct route *r)                                          \
	{                                                                                                              \
		named_get(arg, q, r, &noun##_kind);                                                                    \
	}                                                                                                              \
	void get_##noun##s(void *arg, struct http_req *q, const struct route *r)                                       \
	{                                                                                                              \
		named_get_all(arg, q, r, &noun##_kind);                                                                \
	}                                                                                                              \
	void delete_##noun(void *arg, struct http_req *q, const struct route *r)                                       \
	{                                                                                                              \
		named_delete(arg, q, r, &noun##_kind);                                                                 \
	}
