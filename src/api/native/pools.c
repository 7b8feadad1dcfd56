/* Calls on pools. */
#include "api/native/object.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/template/pool.h"

static void put_body(struct call *c, const char *data, size_t len)
{
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
	named_answer(c, created ? 201 : 200, &pool_kind, p);
}

void put_pool(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), put_body);
}

DEFINE_NAMED(pool)
