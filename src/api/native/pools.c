#include "api/native/native.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/template/pool.h"

static void put_body(struct call *c, const char *data, size_t len)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&out);
	struct tenant *tenant = call_tenant_of(c, NULL);
	AUTO(json_decref) json_t *o = NULL;
	const char *template = NULL;
	uint64_t min = 0, max = 0;
	struct pool *p = NULL;
	struct err e = { 0 };
	bool created = false;
	int r;

	if (!tenant)
		return;
	r = json_read_begin(data, len, &o, &e);
	if (r == 0) {
		struct json_read in = JIN_INIT(o, &e);

		if (!json_read_str(&in, "template", &template, NAME_MAX_LEN))
			json_read_bad(&in, "template", "is required");
		if (!json_read_u64(&in, "min", &min, 0, POOL_MIN_MAX))
			json_read_bad(&in, "min", "is required");
		json_read_u64(&in, "max", &max, 0, POOL_MAX_MAX);
		r = json_read_end(&in);
	}
	if (r == 0)
		r = pool_put(c->api->s, &c->who, tenant, router_param(c->route, c->q, "name"), template, (uint32_t)min,
			     (uint32_t)max, &p, &created, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	pool_write(p, &j);
	call_stored(c, created ? 201 : 200, &out);
}

void put_pool(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), put_body);
}

/* The one in the path. NULL: it has been answered. */
static struct pool *call_pool(struct call *c)
{
	struct tenant *tenant = call_tenant_of(c, NULL);
	struct err e = { 0 };
	struct pool *p;

	if (!tenant)
		return NULL;
	p = pool_find(c->api->s, tenant, router_param(c->route, c->q, "name"), &e);
	if (!p)
		call_fail(c, &e);
	return p;
}

void get_pool(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct call *c = call_new(arg, q, r);
	const struct pool *p = call_pool(c);
	struct json j = JSON_INIT(&out);

	if (!p)
		return;
	pool_write(p, &j);
	call_json(c, 200, &out);
}

void get_pools(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	AUTO_FREE struct pool **list = NULL;
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };
	bool all = false;
	struct tenant *t = call_tenant_of(c, &all);
	size_t n = 0;

	if (!t && !all)
		return;
	if (pools_list(c->api->s, t, &list, &n) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the list");
		call_fail(c, &e);
		return;
	}
	jout_object(&j, NULL);
	jout_array(&j, "pools");
	for (size_t i = 0; i < n; i++)
		pool_write(list[i], &j);
	jout_end(&j);
	jout_end(&j);
	call_list(c, &j);
}

void delete_pool(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct pool *p = call_pool(c);
	struct err e = { 0 };

	if (!p)
		return;
	if (pool_remove(p, &c->who, &e) < 0)
		call_fail(c, &e);
	else
		call_stored(c, 204, NULL);
}
