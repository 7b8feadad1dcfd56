/*
 * Only an admin may make tokens: a caller that could make tokens for its own tenant could keep its access beyond the end
 * of its token. With scope `sandbox` a caller may list the tokens of its tenant.
 */
#include "api/native/object.h"
#include "base/base.h"
#include "base/clock.h"
#include "service/state/json_read.h"

#include <openssl/crypto.h>

static void put_token(struct json *j, const struct token *k, const char *text)
{
	const struct token_view v = token_view(k);

	jout_object(j, NULL);
	jout_str(j, "id", v.id);
	if (text)
		jout_str(j, "token", text);
	jout_str(j, "tenant", tenant_id(v.tenant));
	jout_str(j, "name", v.name);
	jout_str(j, "scope", scope_name(v.scope));
	dto_time(j, "created_at", v.created_ns);
	dto_time(j, "expires_at", v.expires_ns);
	dto_time(j, "old_until", v.old_until_ns > clock_real_ns() ? v.old_until_ns : 0);
	put_rate(j, &v.rate);
	jout_end(j);
}

static bool may_see(const struct who *w, const struct token *k)
{
	return w->scope == SCOPE_ADMIN || token_view(k).tenant == w->tenant;
}

/* The token in the path. NULL: the call has been answered. */
static struct token *call_token(struct call *c)
{
	const char *id = router_param(c->route, c->q, "k");
	struct token *k = token_find(c->api->access, id);
	struct err e = { 0 };

	if (k && may_see(&c->who, k))
		return k;
	err_set(&e, WHY_TOKEN_ID_MISSING, -ENOENT, "no token '%.64s'", id);
	err_remedy(&e, "`cloche token ls` (GET /v1/tokens) lists ids; a token itself is not an id");
	call_fail(c, &e);
	return NULL;
}

static void write_token(const struct token *k, struct json *j)
{
	put_token(j, k, NULL);
}

/* An admin gets those of all tenants without asking for it. */
static int write_tokens(struct call *c, struct json *j)
{
	bool all = c->who.scope == SCOPE_ADMIN && !http_query(c->q, "tenant");
	const struct tenant *only = all ? NULL : call_tenant_of(c, &all);

	if (!only && !all)
		return -ENOENT;
	for (const struct token *k = token_first(c->api->access); k; k = token_next(k))
		if (!only || token_view(k).tenant == only)
			write_token(k, j);
	return 0;
}

DEFINE_LIST(get_tokens, "tokens", write_tokens)
DEFINE_SHOW(get_token, struct token, call_token, write_token)

static void answer_secret(struct call *c, int status, const struct token *k, char text[TOKEN_TEXT_MAX])
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&out);

	put_token(&j, k, text);
	OPENSSL_cleanse(text, TOKEN_TEXT_MAX);
	call_stored(c, status, &out);
}

static void create_body(struct call *c, const char *data, size_t len)
{
	const char *tenant = tenant_id(c->who.tenant), *name = NULL, *scope_text = "sandbox";
	struct audit_rec who = who_rec(&c->who, NULL);
	AUTO(json_decref) json_t *o = NULL;
	struct access *x = c->api->access;
	struct rate_rule rate = { 0 };
	enum scope scope = SCOPE_NONE;
	uint64_t expires_ms = 0, expires = 0;
	char text[TOKEN_TEXT_MAX];
	struct tenant *t = NULL;
	struct token *k = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_str(&j, "tenant", &tenant, 256);
		json_read_str(&j, "name", &name, TOKEN_NAME_MAX);
		json_read_str(&j, "scope", &scope_text, 32);
		if (json_read_ms(&j, "expires_in", &expires_ms) && !expires_ms)
			json_read_bad(&j, "expires_in", "must be more than 0");
		read_rate(&j, &rate);
		r = json_read_end(&j);
	}
	if (r == 0)
		r = scope_parse(scope_text, &scope, &e);
	if (r == 0 && !(t = tenant_find(x, tenant)))
		r = err_set(&e, WHY_TENANT_MISSING, -ENOENT, "no tenant '%.64s'", tenant);
	if (expires_ms)
		expires = clock_real_ns() + expires_ms * 1000000;
	if (r == 0)
		r = token_add(x, t, name, scope, expires, &rate, &who, text, &k, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		answer_secret(c, 201, k, text);
}

void post_tokens(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), create_body);
}

static void rotate_body(struct call *c, const char *data, size_t len)
{
	struct audit_rec who = who_rec(&c->who, NULL);
	AUTO(json_decref) json_t *o = NULL;
	struct token *k = call_token(c); /* only now: while the body came it may have been revoked */
	char text[TOKEN_TEXT_MAX];
	struct err e = { 0 };
	uint64_t grace = 0;
	int r;

	if (!k)
		return;
	r = json_read_begin(data, len, &o, &e);
	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_ms(&j, "grace", &grace);
		r = json_read_end(&j);
	}
	if (r == 0)
		r = token_rotate(c->api->access, k, grace, &who, text, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	api_check_streams(c->api);
	answer_secret(c, 200, k, text);
}

void post_token_rotate(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), rotate_body);
}

void delete_token(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct audit_rec who = who_rec(&c->who, NULL);
	struct token *k = call_token(c);
	struct err e = { 0 };
	int rc;

	if (!k)
		return;
	rc = token_remove(c->api->access, k, &who, &e);
	if (rc == 0)
		api_check_streams(c->api);
	call_removed(c, rc, &e);
}
