/* Calls on templates. */
#include "api/native/object.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/template/template.h"

static void answer(struct call *c, int status, const struct template *t)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };

	template_kind.write(t, &j);
	if (jout_done(&j) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the template does not fit into an answer");
		call_fail(c, &e);
		return;
	}
	call_json(c, status, &out);
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

DEFINE_NAMED(template)
