/* Calls on objects that a tenant has by name, for every kind of them (service/state/named.h). */
#pragma once
#include "api/native/native.h"
#include "service/state/named.h"

/* Answers with an object; after a change, when that is stored. */
void named_answer(struct call *c, int status, const struct named_kind *k, const void *x);
void named_get(void *arg, struct http_req *q, const struct route *r, const struct named_kind *k);
void named_get_all(void *arg, struct http_req *q, const struct route *r, const struct named_kind *k);
void named_delete(void *arg, struct http_req *q, const struct route *r, const struct named_kind *k);
