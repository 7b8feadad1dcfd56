/* Calls on objects: show, list and remove, for every kind of them; and for those that a tenant has by name. */
#include "api/native/object.h"
#include "base/base.h"

struct tenant *call_tenant_of(struct call *c, bool *ret_all)
{
	const char *tenant = http_query(c->q, "tenant");
	struct err e = { 0 };
	struct tenant *t;

	if (ret_all && tenant && !strcmp(tenant, "*") && c->who.scope == SCOPE_ADMIN) {
		*ret_all = true;
		return NULL;
	}
	t = api_tenant(c->api, c->q, &c->who, &e);
	if (!t)
		call_fail(c, &e);
	return t;
}

void call_object(struct call *c, int status, struct json *j)
{
	struct err e = { 0 };

	if (jout_done(j) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the answer does not fit into %u MiB", 64);
		call_fail(c, &e);
	} else if (c->q && (http_method(c->q) == HTTP_M_GET || http_method(c->q) == HTTP_M_HEAD)) {
		call_json(c, status, j->buf);
	} else {
		call_stored(c, status, j->buf);
	}
}

void call_removed(struct call *c, int r, const struct err *e)
{
	if (r < 0)
		call_fail(c, e);
	else
		call_stored(c, 204, NULL);
}

void object_list(void *arg, struct http_req *q, const struct route *r, const char *key,
		 int (*write_all)(struct call *c, struct json *j))
{
	AUTO(buf_done) struct buf out = BUF_INIT(OBJECT_MAX);
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);

	jout_object(&j, NULL);
	jout_array(&j, key);
	if (write_all(c, &j) < 0)
		return;
	jout_end(&j);
	jout_end(&j);
	call_list(c, &j);
}

/* --- by name --- */

void named_answer(struct call *c, int status, const struct named_kind *k, const void *x)
{
	AUTO(buf_done) struct buf out = BUF_INIT(OBJECT_MAX);
	struct json j = JSON_INIT(&out);

	k->write(x, &j);
	call_object(c, status, &j);
}

/* The object in the path. NULL: the call has been answered. */
static void *call_named(struct call *c, const struct named_kind *k)
{
	struct tenant *t = call_tenant_of(c, NULL);
	struct err e = { 0 };
	void *x;

	if (!t)
		return NULL;
	x = k->find(c->api->s, t, router_param(c->route, c->q, "name"), &e);
	if (!x)
		call_fail(c, &e);
	return x;
}

void named_get(void *arg, struct http_req *q, const struct route *r, const struct named_kind *k)
{
	struct call *c = call_new(arg, q, r);
	const void *x = call_named(c, k);

	if (x)
		named_answer(c, 200, k, x);
}

void named_get_all(void *arg, struct http_req *q, const struct route *r, const struct named_kind *k)
{
	AUTO(buf_done) struct buf out = BUF_INIT(OBJECT_MAX);
	AUTO_FREE struct named *list = NULL;
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };
	bool all = false;
	struct tenant *t = call_tenant_of(c, &all);
	size_t n = 0;

	if (!t && !all)
		return;
	if (named_list(c->api->s, k, t, &list, &n) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the list");
		call_fail(c, &e);
		return;
	}
	jout_object(&j, NULL);
	jout_array(&j, k->plural);
	for (size_t i = 0; i < n; i++)
		k->write(list[i].what, &j);
	jout_end(&j);
	jout_end(&j);
	call_list(c, &j);
}

void named_delete(void *arg, struct http_req *q, const struct route *r, const struct named_kind *k)
{
	struct call *c = call_new(arg, q, r);
	void *x = call_named(c, k);
	struct err e = { 0 };

	if (x)
		call_removed(c, k->remove(x, &c->who, &e), &e);
}
