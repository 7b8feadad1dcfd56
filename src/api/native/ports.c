/* The access to a sandbox's ports, and tunnels to them. api/port_proxy.c forwards requests and bytes. */
#include "api/native/object.h"
#include "api/port.h"
#include "base/base.h"
#include "base/str.h"
#include "service/state/json_read.h"

#include <openssl/crypto.h>

/* The port in the path. 0: the call has been answered. */
static uint16_t call_port(struct call *c)
{
	const char *text = router_param(c->route, c->q, "port");
	struct err e = { 0 };
	uint64_t v = 0;

	if (parse_u64(text, &v, &e) == 0 && v >= 1 && v <= UINT16_MAX)
		return (uint16_t)v;
	err_set(&e, ERR_INVALID, -EINVAL, "invalid port '%.20s': must be 1 to 65535", text);
	call_fail(c, &e);
	return 0;
}

/* @text: the port's token; NULL or "": it is not part of the answer. */
static void put_port(struct json *j, const struct call *c, const struct port_view *p, const char *text)
{
	const char *domain = c->api->ports_domain;
	char place[256];

	jout_object(j, NULL);
	jout_u64(j, "port", p->number);
	jout_bool(j, "public", p->public);
	jout_bool(j, "has_token", p->has_token);
	if (text && *text)
		jout_str(j, "token", text);
	snprintf(place, sizeof(place), "/v1/sandboxes/%s/ports/%u/", sandbox_id(c->sandbox), p->number);
	jout_str(j, "path", place);
	snprintf(place, sizeof(place), "%u-%s.%s", p->number, sandbox_id(c->sandbox), domain);
	jout_str(j, "host", *domain ? place : NULL);
	dto_time(j, "created_at", p->created_ns);
	jout_end(j);
}

static int write_ports(struct call *c, struct json *j)
{
	struct port_view all[PORTS_MAX];
	unsigned n;

	if (call_sandbox(c) < 0)
		return -ENOENT;
	n = ports_view(c->sandbox, all);
	for (unsigned i = 0; i < n; i++)
		put_port(j, c, &all[i], NULL);
	return 0;
}

DEFINE_LIST(get_ports, "ports", write_ports)

void get_port(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * KIB);
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);
	struct port_view p;
	uint16_t number;

	if (call_sandbox(c) < 0 || !(number = call_port(c)))
		return;
	p = port_view(c->sandbox, number);
	put_port(&j, c, &p, NULL);
	call_json(c, 200, &out);
}

static void put_body(struct call *c, const char *data, size_t len)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * KIB);
	AUTO(json_decref) json_t *o = NULL;
	char text[TOKEN_TEXT_MAX] = "";
	struct json j = JSON_INIT(&out);
	bool public = false, token = false;
	struct port_request request = { 0 };
	struct port_view p;
	struct err e = { 0 };
	uint16_t number;
	int r;

	if (call_sandbox(c) < 0 || !(number = call_port(c)))
		return;
	r = json_read_begin(data, len, &o, &e);
	if (r == 0) {
		struct json_read in = JIN_INIT(o, &e);

		if (json_read_bool(&in, "public", &public))
			request.public = &public;
		if (json_read_bool(&in, "token", &token))
			request.token = &token;
		r = json_read_end(&in);
	}
	if (r == 0)
		r = port_set(c->sandbox, &c->who, number, &request, text, &p, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	put_port(&j, c, &p, text);
	OPENSSL_cleanse(text, sizeof(text));
	call_stored(c, 200, &out);
}

void put_port_access(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), put_body);
}

void delete_port(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };
	uint16_t number;

	if (call_sandbox(c) < 0 || !(number = call_port(c)))
		return;
	call_removed(c, port_remove(c->sandbox, &c->who, number, &e), &e);
}

void get_tunnel(void *arg, struct http_req *q, const struct route *r)
{
	const char *to = http_header(q, "upgrade");
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };
	uint16_t number;

	if (call_sandbox(c) < 0 || !(number = call_port(c)))
		return;
	if (http_is_upgrade(q) && to && !strcasecmp(to, "tcp")) {
		port_used(c->sandbox, &c->who, number, PORT_BY_API);
		port_tunnel(c, number);
		return;
	}
	err_set(&e, ERR_INVALID, -EPROTO, "this endpoint carries a raw connection: the request must be an upgrade");
	err_remedy(&e, "send `Connection: Upgrade` and `Upgrade: tcp`, or use `cloche port-forward`");
	call_fail(c, &e);
}
