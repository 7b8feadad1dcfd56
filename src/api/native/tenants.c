/* Calls on tenants: create, list, show, change, delete; with their quotas and rates. */
#include "api/native/object.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/template/pool.h"
#include "service/image/image.h"
#include "service/secret/secret.h"
#include "service/template/template.h"
#include "service/template/warm.h"
#include "service/run/packages.h"
#include "service/run/warm_context.h"

/* Missing fields are not changed. */
static bool read_quotas(struct json_read *j, struct tenant_quota *q)
{
	const json_t *o = json_read_object(j, "quotas");
	struct json_read in = JIN_INIT(o, j->e);
	uint32_t milli = 0;

	if (!o || j->r < 0)
		return false;
	json_read_u64(&in, "sandboxes", &q->sandboxes, 0, UINT32_MAX);
	if (json_read_cpus(&in, "cpus", &milli))
		q->cpu_milli = milli;
	json_read_size(&in, "memory", &q->memory);
	json_read_size(&in, "disk", &q->disk);
	json_read_u64(&in, "execs", &q->execs, 0, UINT32_MAX);
	json_read_u64(&in, "checkpoints", &q->checkpoints, 0, UINT32_MAX);
	json_read_size(&in, "checkpoint_bytes", &q->checkpoint_bytes);
	json_read_u64(&in, "secrets", &q->secrets, 0, UINT32_MAX);
	json_read_size(&in, "image_bytes", &q->image_bytes);
	json_read_u64(&in, "gpus", &q->gpus, 0, UINT32_MAX);
	j->r = json_read_end(&in);
	return j->r == 0;
}

bool read_rate(struct json_read *j, struct rate_rule *r)
{
	const json_t *o = json_read_object(j, "rate");
	struct json_read in = JIN_INIT(o, j->e);

	if (!o || j->r < 0)
		return false;
	json_read_u64(&in, "points", &r->points, 0, RATE_POINTS_MAX);
	json_read_ms(&in, "window", &r->window_ms);
	json_read_ms(&in, "block", &r->block_ms);
	j->r = json_read_end(&in);
	return j->r == 0;
}

static void put_quotas(struct json *j, const char *key, const struct tenant_quota *q)
{
	jout_object(j, key);
	jout_u64(j, "sandboxes", q->sandboxes);
	write_milli(j, "cpus", q->cpu_milli);
	jout_u64(j, "memory", q->memory);
	jout_u64(j, "disk", q->disk);
	jout_u64(j, "execs", q->execs);
	jout_u64(j, "checkpoints", q->checkpoints);
	jout_u64(j, "checkpoint_bytes", q->checkpoint_bytes);
	jout_u64(j, "secrets", q->secrets);
	jout_u64(j, "image_bytes", q->image_bytes);
	jout_u64(j, "gpus", q->gpus);
	jout_end(j);
}

void put_rate(struct json *j, const struct rate_rule *r)
{
	if (!r->points) {
		jout_null(j, "rate");
		return;
	}
	jout_object(j, "rate");
	jout_u64(j, "points", r->points);
	write_milli(j, "window", r->window_ms);
	write_milli(j, "block", r->block_ms);
	jout_end(j);
}

static void write_tenant(const struct tenant *t, struct json *j)
{
	const struct tenant_view v = tenant_view(t);

	jout_object(j, NULL);
	jout_str(j, "id", v.id);
	put_quotas(j, "quotas", &v.quota);
	put_quotas(j, "used", &v.used);
	put_rate(j, &v.rate);
	dto_time(j, "created_at", v.created_ns);
	jout_end(j);
}

static void answer_tenant(struct call *c, int status, const struct tenant *t)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&out);

	write_tenant(t, &j);
	call_object(c, status, &j);
}

/* The tenant in the path. NULL: the call has been answered. */
static struct tenant *call_tenant(struct call *c)
{
	const char *id = router_param(c->route, c->q, "t");
	struct tenant *t = tenant_find(c->api->access, id);
	struct err e = { 0 };

	if (!t) {
		err_set(&e, WHY_TENANT_MISSING, -ENOENT, "no tenant '%.64s'", id);
		call_fail(c, &e);
	}
	return t;
}

static int write_tenants(struct call *c, struct json *j)
{
	for (const struct tenant *t = tenant_first(c->api->access); t; t = tenant_next(t))
		write_tenant(t, j);
	return 0;
}

DEFINE_LIST(get_tenants, "tenants", write_tenants)
DEFINE_SHOW(get_tenant, struct tenant, call_tenant, write_tenant)

static void create_body(struct call *c, const char *data, size_t len)
{
	struct audit_rec who = who_rec(&c->who, NULL);
	AUTO(json_decref) json_t *o = NULL;
	struct tenant_quota quota = { 0 };
	struct rate_rule rate = { 0 };
	const char *id = NULL;
	struct tenant *t = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		if (!json_read_str(&j, "id", &id, 256))
			json_read_bad(&j, "id", "is required");
		read_quotas(&j, &quota);
		read_rate(&j, &rate);
		r = json_read_end(&j);
	}
	if (r == 0)
		r = tenant_add(c->api->access, id, &quota, &rate, &who, &t, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		answer_tenant(c, 201, t);
}

void post_tenants(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), create_body);
}

static void update_body(struct call *c, const char *data, size_t len)
{
	struct audit_rec who = who_rec(&c->who, NULL);
	AUTO(json_decref) json_t *o = NULL;
	struct tenant *t = call_tenant(c); /* only now: while the body came it may have been deleted */
	struct tenant_quota quota;
	struct rate_rule rate;
	struct err e = { 0 };
	int r;

	if (!t)
		return;
	quota = tenant_view(t).quota;
	rate = tenant_view(t).rate;
	r = json_read_begin(data, len, &o, &e);
	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		read_quotas(&j, &quota);
		read_rate(&j, &rate);
		r = json_read_end(&j);
	}
	if (r == 0)
		r = tenant_set(c->api->access, t, &quota, &rate, &who, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		answer_tenant(c, 200, t);
}

void patch_tenant(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), update_body);
}

void delete_tenant(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct audit_rec who = who_rec(&c->who, NULL);
	struct tenant *t = call_tenant(c);
	struct err e = { 0 };

	if (!t)
		return;
	warm_contexts_drop(c->api->s, t);
	packages_drop(c->api->s, t);
	if (pools_only(c->api->s, t) && warm_only(c->api->s, t)) {
		pools_clear(c->api->s, t);
		warm_clear(c->api->s, t);
	}
	if (tenant_remove(c->api->access, t, &who, &e) < 0) {
		pools_soon(c->api->s);
		call_fail(c, &e);
		return;
	}
	templates_forget(c->api->s, t);
	secrets_forget(c->api->s, t);
	images_forget(c->api->s, &c->who, t);
	call_stored(c, 204, NULL);
}
