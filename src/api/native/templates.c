#include "api/native/native.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/template/pool.h"
#include "service/template/template.h"

static void answer(struct call *c, int status, const struct template *t)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };

	template_write(t, &j);
	if (jout_done(&j) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the template does not fit into an answer");
		call_fail(c, &e);
		return;
	}
	call_json(c, status, &out);
}

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

static void on_put(void *arg, struct template *t, bool created, const struct err *e)
{
	struct call *c = arg;

	if (!t) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	answer(c, created ? 201 : 200, t);
}

static void put_body(struct call *c, const char *data, size_t len)
{
	struct tenant *tenant = call_tenant_of(c, NULL);
	AUTO(json_decref) json_t *o = NULL;
	struct err e = { 0 };

	if (!tenant)
		return;
	if (json_read_begin(data, len, &o, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	c->pending = true;
	template_put(c->api->s, &c->who, tenant, router_param(c->route, c->q, "name"), o, on_put, c);
}

void put_template(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), put_body);
}

/* The one in the path. NULL: it has been answered. */
static struct template *call_template(struct call *c)
{
	struct tenant *tenant = call_tenant_of(c, NULL);
	struct err e = { 0 };
	struct template *t;

	if (!tenant)
		return NULL;
	t = template_find(c->api->s, tenant, router_param(c->route, c->q, "name"), &e);
	if (!t)
		call_fail(c, &e);
	return t;
}

void get_template(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	const struct template *t = call_template(c);

	if (t)
		answer(c, 200, t);
}

void get_templates(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	AUTO_FREE struct template **list = NULL;
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };
	bool all = false;
	struct tenant *t = call_tenant_of(c, &all);
	size_t n = 0;

	if (!t && !all)
		return;
	if (templates_list(c->api->s, t, &list, &n) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the list");
		call_fail(c, &e);
		return;
	}
	jout_object(&j, NULL);
	jout_array(&j, "templates");
	for (size_t i = 0; i < n; i++)
		template_write(list[i], &j);
	jout_end(&j);
	jout_end(&j);
	call_list(c, &j);
}

void delete_template(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct template *t = call_template(c);
	struct err e = { 0 };

	if (!t)
		return;
	if (template_remove(t, &c->who, &e) < 0)
		call_fail(c, &e);
	else
		call_stored(c, 204, NULL);
}
