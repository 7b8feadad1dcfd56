/* Finds a route by method and path. */
#include "http/router.h"

#include "base/base.h"

struct compiled {
	const struct route *route;
	const char *parts[HTTP_SEGMENTS_MAX]; /* NULL: a parameter */
	unsigned literal; /* a bit per part that is one, the first the highest: the larger fits closer */
	struct compiled *next;
};

struct router {
	struct compiled *by_len[HTTP_SEGMENTS_MAX + 1];
	size_t n;
	char *text;
	struct compiled routes[];
};

static const char *const names[] = {
	[HTTP_M_GET] = "GET", [HTTP_M_HEAD] = "HEAD",	[HTTP_M_POST] = "POST",
	[HTTP_M_PUT] = "PUT", [HTTP_M_PATCH] = "PATCH", [HTTP_M_DELETE] = "DELETE",
};

static bool same(const struct compiled *a, const struct compiled *b)
{
	if (a->route->method != b->route->method || a->literal != b->literal)
		return false;
	for (unsigned i = 0; i < HTTP_SEGMENTS_MAX; i++)
		if ((!a->parts[i] != !b->parts[i]) || (a->parts[i] && strcmp(a->parts[i], b->parts[i]) != 0))
			return false;
	return true;
}

/* Takes the pattern's copy apart. */
static unsigned compile(struct compiled *c, char *pattern)
{
	unsigned n = 0;

	assert(*pattern == '/');
	for (char *p = pattern; p && p[1];) {
		char *part = p + 1;

		assert(n < HTTP_SEGMENTS_MAX);
		p = strchr(part, '/');
		if (p)
			*p = '\0';
		if (*part != '{') {
			c->parts[n] = part;
			c->literal |= 1U << (HTTP_SEGMENTS_MAX - n);
		}
		n++;
	}
	return n;
}

struct router *router_new(const struct route *routes, size_t n)
{
	struct router *r = calloc(1, sizeof(*r) + n * sizeof(r->routes[0]));
	size_t len = 0;
	char *at;

	for (size_t i = 0; i < n; i++)
		len += strlen(routes[i].pattern) + 1;
	if (r)
		r->text = at = malloc(len + 1);
	if (!r || !r->text) {
		free(r);
		return NULL;
	}
	r->n = n;
	for (size_t i = 0; i < n; i++) {
		struct compiled *c = &r->routes[i];
		unsigned parts;

		len = strlen(routes[i].pattern) + 1;
		memcpy(at, routes[i].pattern, len);
		c->route = &routes[i];
		parts = compile(c, at);
		at += len;
		for (const struct compiled *o = r->by_len[parts]; o; o = o->next)
			assert(!same(o, c));
		c->next = r->by_len[parts];
		r->by_len[parts] = c;
	}
	return r;
}

void router_free(struct router *r)
{
	if (!r)
		return;
	free(r->text);
	free(r);
}

static bool fits(const struct compiled *c, const struct http_req *q, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (c->parts[i] && strcmp(c->parts[i], http_segment(q, i)) != 0)
			return false;
	return true;
}

static void answer_method(struct http_req *q, unsigned methods)
{
	char allow[64] = "", remedy[80];
	size_t n = 0;

	if (methods & 1U << HTTP_M_GET)
		methods |= 1U << HTTP_M_HEAD;
	for (unsigned m = 0; m < HTTP_M_OTHER; m++)
		if (methods & 1U << m)
			n += (size_t)snprintf(allow + n, sizeof(allow) - n, "%s%s", n ? ", " : "", names[m]);
	http_set(q, "Allow", allow);
	snprintf(remedy, sizeof(remedy), "use one of %s", allow);
	http_fail_as(q, WHY_METHOD, "this path does not support the method", NULL, remedy);
}

/* The usual mistakes: the /v1 is part of the client's URL, and of the path, or of neither. */
static const char *path_advice(const struct http_req *q)
{
	const char *path = http_path(q);

	if (!strncmp(path, "/v1/v1/", 7))
		return "the URL of a daemon has no path: leave out the /v1 at its end";
	if (strncmp(path, "/v1/", 4) != 0)
		return "paths of the API begin with /v1/; see GET /v1/openapi.json for all paths";
	return "see GET /v1/openapi.json for all paths";
}

const struct route *router_find(struct router *r, struct http_req *q)
{
	enum http_method method = http_method(q);
	const struct compiled *best = NULL;
	size_t n = http_segments(q);
	unsigned methods = 0;

	for (const struct compiled *c = r->by_len[n]; c; c = c->next) {
		enum http_method own = c->route->method;

		if (!fits(c, q, n))
			continue;
		methods |= 1U << own;
		if (own != method && !(method == HTTP_M_HEAD && own == HTTP_M_GET))
			continue;
		if (!best || c->literal > best->literal || (c->literal == best->literal && own == method))
			best = c;
	}
	if (best)
		return best->route;
	if (methods)
		answer_method(q, methods);
	else
		http_fail_as(q, WHY_PATH_UNKNOWN, "no resource at this path", NULL, path_advice(q));
	return NULL;
}

const char *router_param(const struct route *r, const struct http_req *q, const char *name)
{
	size_t len = strlen(name), i = 0;

	for (const char *p = strchr(r->pattern, '/'); p; p = strchr(p + 1, '/'), i++)
		if (p[1] == '{' && !strncmp(p + 2, name, len) && p[len + 2] == '}')
			return i < http_segments(q) ? http_segment(q, i) : NULL;
	return NULL;
}
