/* Decides whether a request may reach a server inside a sandbox. */
#include "api/port.h"
#include "base/base.h"

#include <openssl/crypto.h>
#include <strings.h>

/* Sets the request's caller when it is admitted by its sandbox's settings and not by an API token. */
static int as_its_tenant(struct http_req *q, struct sandbox *b, struct err *e)
{
	return api_note(q, sandbox_tenant(b), SCOPE_EXEC, "port", e);
}

/* Whether the port's own token is in any of its possible places. */
static bool own_token(const struct http_req *q, const struct sandbox *b, uint16_t number, struct port_pass *ret)
{
	const char *header = http_header(q, PORT_HEADER), *bearer = api_bearer(q), *name, *value;
	char text[TOKEN_TEXT_MAX];

	if (bearer && port_token_is(b, number, bearer))
		return true;
	if (header && port_token_is(b, number, header))
		return true;
	for (size_t i = 0; i < http_header_count(q); i++) {
		http_header_at(q, i, &name, &value);
		if (!strcasecmp(name, "cookie") && port_cookie_token(value, text) && port_token_is(b, number, text))
			return true;
	}
	if (http_query_text(q) && port_query_token(http_query_text(q), text) && port_token_is(b, number, text)) {
		ret->by_query = true;
		memcpy(ret->token, text, sizeof(text));
		return true;
	}
	return false;
}

int port_enter(struct api *a, struct http_req *q, const struct port_place *p, struct port_pass *ret)
{
	const char *bearer = api_bearer(q);
	enum port_by by = PORT_BY_API;
	struct err e = { 0 };
	unsigned retry = 0;
	struct sandbox *b = NULL;
	struct who who;
	int r;

	*ret = (struct port_pass){ 0 };
	r = api_try(a, q, SCOPE_EXEC, &retry, &e);
	/* An API token, even an invalid one or one without the scope, must not reach the server inside. */
	ret->our_token = bearer && (r == 0 || e.kind != ERR_UNAUTHORIZED ||
				    !strncmp(bearer, TOKEN_PREFIX, sizeof(TOKEN_PREFIX) - 1));
	if (r == 0) {
		who = api_who(q);
		b = sandbox_find(a->s, &who, p->sandbox, &e);
		r = b ? 0 : -ENOENT;
	}
	if (!b && e.kind != ERR_RATE) {
		b = sandbox_by_id(a->s, p->sandbox);
		by = b && own_token(q, b, p->number, ret) ? PORT_BY_TOKEN : PORT_BY_PUBLIC;
		if (b && (by == PORT_BY_TOKEN || port_view(b, p->number).public))
			r = as_its_tenant(q, b, &e);
		else
			b = NULL;
	}
	if (b && r == 0)
		r = api_share(q, &e);
	if (!b || r < 0) {
		api_refuse(a, q, &e, retry ? retry : e.kind == ERR_EXHAUSTED);
		return r < 0 ? r : -EACCES;
	}
	who = api_who(q);
	if (by != PORT_BY_API)
		who.token[0] = '\0'; /* the caller has no API token */
	port_used(b, &who, p->number, by);
	sandbox_ref(b);
	sandbox_use(b);
	ret->sandbox = b;
	return 0;
}

void port_give_cookie(struct http_req *q, const struct port_place *p, const char *token)
{
	static const char page[] = "<!doctype html><title>…</title>\n";
	AUTO(buf_done) struct buf to = BUF_INIT(2 * HTTP_PATH_MAX);
	const char *path = http_path(q), *query = http_query_text(q);
	char rest[HTTP_PATH_MAX];
	size_t n = port_query_rest(query ? query : "", rest, sizeof(rest));

	/* "//host/" would be the address of another server; browsers read a backslash as a slash. */
	while (strspn(path, "/\\") > 1)
		path++;
	if (buf_addf(&to, "%s%s%.*s", path, n ? "?" : "", (int)n, rest) < 0) {
		http_fail_as(q, WHY_PATH_TOO_LONG, "the path is too long", NULL, NULL);
		return;
	}
	http_set(q, "Location", buf_str(&to));
	http_setf(q, "Set-Cookie", PORT_COOKIE "=%s; Path=%s/; HttpOnly; SameSite=Lax%s", token, p->prefix,
		  http_is_tls(q) ? "; Secure" : "");
	http_set(q, "Cache-Control", "no-store");
	http_set(q, "Referrer-Policy", "no-referrer");
	http_send(q, 303, "text/html; charset=utf-8", page, sizeof(page) - 1);
}
