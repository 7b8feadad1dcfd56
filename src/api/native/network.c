/* GET and PUT /v1/sandboxes/{id}/network. */
#include "api/native/native.h"
#include "base/base.h"
#include "service/network/network.h"
#include "service/state/json_read.h"

static void answer(struct call *c, bool why)
{
	AUTO(buf_done) struct buf out = BUF_INIT(MIB);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };

	sandbox_net_write(c->sandbox, why, &j);
	if (jout_done(&j) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the network does not fit into an answer");
		call_fail(c, &e);
		return;
	}
	call_json(c, 200, &out);
}

static void on_looked(void *arg, int r, const struct err *e)
{
	struct call *c = arg;

	if (r < 0)
		call_fail(c, e);
	else
		answer(c, c->data != NULL);
}

void get_network(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };
	bool why = false;

	if (call_sandbox(c) < 0)
		return;
	if (api_flag(q, "why", &why, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	c->data = why ? c : NULL;
	c->pending = true;
	sandbox_net_look(c->sandbox, c->data != NULL, on_looked, c);
}

static void on_put(void *arg, int r, const struct err *e)
{
	struct call *c = arg;

	if (r < 0) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	answer(c, false);
}

static void put_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct net_request *request = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0)
		r = net_request_parse(o, &request, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	c->pending = true;
	sandbox_net_put(c->sandbox, &c->who, request, on_put, c);
}

void put_network(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, put_body);
}
