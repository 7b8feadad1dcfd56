/* Heads of forwarded requests and answers: which headers are removed, changed or added. */
#include "api/port.h"
#include "base/base.h"

#include <ctype.h>
#include <strings.h>

static bool is_any(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcasecmp(name, list[i]))
			return true;
	return false;
}

/* Whether a header is for one connection only, in both directions. */
static bool of_the_hop(const char *name)
{
	static const char *const names[] = { "connection",
					     "keep-alive",
					     "proxy-connection",
					     "proxy-authenticate",
					     "proxy-authorization",
					     "proxy-authentication-info",
					     "te",
					     "trailer",
					     "transfer-encoding",
					     "upgrade",
					     "content-length" };

	return is_any(name, names, ARRAY_LEN(names));
}

/* Whether a list ("close, X-Own") contains the name. */
static bool names_it(const char *list, const char *name)
{
	size_t n = strlen(name);

	while (list && *list) {
		list += strspn(list, " ,");
		if (!strncasecmp(list, name, n) && (!list[n] || strchr(" ,", list[n])))
			return true;
		list += strcspn(list, ",");
	}
	return false;
}

/* ---- the caller's token, in any part of the request ------------------------------------------------------------- */

/* The first value of @name in a list of "name=value" with @sep between. */
static bool pick(const char *text, char sep, const char *name, char to[TOKEN_TEXT_MAX])
{
	const char stop[] = { sep, '\0' };
	size_t n = strlen(name);

	for (; *text; text += strcspn(text, stop), text += *text == sep) {
		size_t len;

		while (*text == ' ' && sep == ';')
			text++;
		if (strncmp(text, name, n) != 0 || text[n] != '=')
			continue;
		len = strcspn(text + n + 1, stop);
		if (len >= TOKEN_TEXT_MAX)
			return false;
		memcpy(to, text + n + 1, len);
		to[len] = '\0';
		return true;
	}
	return false;
}

/* Copies the list without @name; returns the length. @size is more than @text needs. */
static size_t leave_out(const char *text, char sep, const char *name, char *to)
{
	const char stop[] = { sep, '\0' };
	size_t n = strlen(name), len = 0;

	while (*text) {
		size_t part;

		while (*text == ' ' && sep == ';')
			text++;
		part = strcspn(text, stop);
		if (strncmp(text, name, n) != 0 || (part != n && text[n] != '=')) {
			if (len) {
				to[len++] = sep;
				if (sep == ';')
					to[len++] = ' ';
			}
			memcpy(to + len, text, part);
			len += part;
		}
		text += part;
		text += *text == sep;
	}
	return len;
}

bool port_query_token(const char *query, char to[TOKEN_TEXT_MAX])
{
	return pick(query, '&', PORT_PARAMETER, to);
}

bool port_cookie_token(const char *cookies, char to[TOKEN_TEXT_MAX])
{
	return pick(cookies, ';', PORT_COOKIE, to);
}

size_t port_query_rest(const char *query, char *to, size_t size)
{
	return strlen(query) < size ? leave_out(query, '&', PORT_PARAMETER, to) : 0;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Headers that any client can forge, so the server must not trust them: they are removed, and the true ones added. */
static bool of_proxies(const char *name)
{
	static const char *const names[] = { "forwarded", "x-real-ip", "via", "true-client-ip", "cf-connecting-ip" };

	return !strncasecmp(name, "x-forwarded-", 12) || is_any(name, names, ARRAY_LEN(names));
}

static bool passes_in(const char *name, const struct port_pass *pass, const char *connection)
{
	if (of_the_hop(name) || of_proxies(name) || names_it(connection, name))
		return false;
	if (!strcasecmp(name, "host") || !strcasecmp(name, "expect") || !strcasecmp(name, PORT_HEADER))
		return false;
	return !pass->our_token || strcasecmp(name, "authorization") != 0;
}

static int add_cookies(struct buf *to, const char *value)
{
	AUTO_FREE char *rest = malloc(2 * strlen(value) + 1); /* a space may be added after each separator */
	size_t n;

	if (!rest)
		return -ENOMEM;
	n = leave_out(value, ';', PORT_COOKIE, rest);
	return n ? buf_addf(to, "Cookie: %.*s\r\n", (int)n, rest) : 0;
}

static int add_target(const struct http_req *q, const struct port_place *p, struct buf *to)
{
	const char *query = http_query_text(q);
	AUTO_FREE char *rest = malloc(query ? strlen(query) + 1 : 1);
	size_t n = 0;
	int r;

	if (!rest)
		return -ENOMEM;
	if (query)
		n = port_query_rest(query, rest, strlen(query) + 1);
	r = buf_addf(to, "%s %s", http_method_name(q), p->path);
	/* A "?" without a query is forwarded, too. */
	if (r >= 0 && query && (n || !*query))
		r = buf_adds(to, "?");
	if (r >= 0 && n)
		r = buf_add(to, rest, n);
	return r < 0 ? r : buf_adds(to, " HTTP/1.1\r\n");
}

static int add_ours(const struct http_req *q, const struct port_place *p, struct buf *to)
{
	const char *host = http_header(q, "host");
	int r;

	/*
	 * By host the server has a name of its own; by path it gets a local one, since it shares the daemon's with
	 * others.
	 */
	if (p->hosted)
		r = buf_addf(to, "Host: %s\r\n", host);
	else
		r = buf_addf(to, "Host: localhost:%u\r\nX-Forwarded-Prefix: %s\r\n", p->number, p->prefix);
	if (r >= 0)
		r = buf_addf(to, "X-Forwarded-For: %s\r\nX-Forwarded-Proto: %s\r\nX-Request-Id: %s\r\n", http_peer(q),
			     http_is_tls(q) ? "https" : "http", http_request_id(q));
	if (r >= 0 && host)
		r = buf_addf(to, "X-Forwarded-Host: %s\r\n", host);
	if (r >= 0 && http_is_upgrade(q))
		r = buf_addf(to, "Connection: Upgrade\r\nUpgrade: %s\r\n", http_header(q, "upgrade"));
	else if (r >= 0)
		r = buf_adds(to, "Connection: close\r\n");
	if (r >= 0 && http_body_len(q) < 0)
		r = buf_adds(to, "Transfer-Encoding: chunked\r\n");
	else if (r >= 0 && http_header(q, "content-length"))
		r = buf_addf(to, "Content-Length: %lld\r\n", (long long)http_body_len(q));
	return r;
}

int port_head_out(const struct http_req *q, const struct port_place *p, const struct port_pass *pass, struct buf *to)
{
	const char *connection = http_header(q, "connection"), *name, *value;
	int r = add_target(q, p, to);

	for (size_t i = 0; r >= 0 && i < http_header_count(q); i++) {
		http_header_at(q, i, &name, &value);
		if (!passes_in(name, pass, connection) || !strcasecmp(name, "x-request-id"))
			continue;
		r = strcasecmp(name, "cookie") ? buf_addf(to, "%s: %s\r\n", name, value) : add_cookies(to, value);
	}
	if (r >= 0)
		r = add_ours(q, p, to);
	return r < 0 ? r : buf_adds(to, "\r\n");
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* Whether a header affects the whole origin: allowed when the origin is the server's own. */
static bool of_the_origin(const char *name)
{
	static const char *const names[] = { "service-worker-allowed",
					     "clear-site-data",
					     "strict-transport-security",
					     "alt-svc",
					     "public-key-pins",
					     "nel",
					     "report-to",
					     "origin-agent-cluster" };

	return is_any(name, names, ARRAY_LEN(names));
}

static bool is_attribute(const char *part, size_t len, const char *name)
{
	size_t n = strlen(name);

	while (len && isspace((unsigned char)*part)) {
		part++;
		len--;
	}
	return len >= n && !strncasecmp(part, name, n) && (len == n || part[n] == '=' || part[n] == ' ');
}

/* Limits a cookie to the server that set it: not to other servers of the domain, nor to other paths of the daemon. */
static void set_cookie(struct http_req *q, const struct port_place *p, const char *value)
{
	AUTO(buf_done) struct buf to = BUF_INIT(8 * KIB);
	size_t part = strcspn(value, ";"), own = sizeof(PORT_COOKIE) - 1;

	if (!strncmp(value, PORT_COOKIE, own) && (value[own] == '=' || value[own] == ' '))
		return;
	if (buf_add(&to, value, part) < 0)
		return;
	for (value += part; *value; value += part) {
		value++;
		part = strcspn(value, ";");
		if (is_attribute(value, part, "domain") || (!p->hosted && is_attribute(value, part, "path")))
			continue;
		if (buf_adds(&to, ";") < 0 || buf_add(&to, value, part) < 0)
			return;
	}
	if (!p->hosted && buf_addf(&to, "; Path=%s/", p->prefix) < 0)
		return;
	http_set(q, "Set-Cookie", buf_str(&to));
}

static void set_location(struct http_req *q, const struct port_place *p, const char *value)
{
	AUTO(buf_done) struct buf to = BUF_INIT(2 * HTTP_PATH_MAX);

	if (p->hosted || value[0] != '/' || value[1] == '/')
		http_set(q, "Location", value);
	else if (buf_addf(&to, "%s%s", p->prefix, value) >= 0)
		http_set(q, "Location", buf_str(&to));
}

void port_head_in(const struct answer *a, const struct port_place *p, struct http_req *q)
{
	const char *connection = answer_header(a, "connection");

	for (unsigned i = 0; i < a->n; i++) {
		const char *name = a->header[i].name, *value = a->header[i].value;

		/* X-Cloche-Audit is set by the daemon only. */
		if (of_the_hop(name) || names_it(connection, name) || (!p->hosted && of_the_origin(name)) ||
		    !strncasecmp(name, "x-cloche-", 9))
			continue;
		if (!strcasecmp(name, "set-cookie"))
			set_cookie(q, p, value);
		else if (!strcasecmp(name, "location"))
			set_location(q, p, value);
		else
			http_set(q, name, value);
	}
	/*
	 * By path, a page from inside would have the origin of the API in a browser. The header gives it an opaque origin:
	 * it can run its scripts, but cannot read what other pages of this origin have stored, or send requests in their
	 * name.
	 */
	if (!p->hosted)
		http_set(q, "Content-Security-Policy",
			 "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads");
}
