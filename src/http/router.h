/*
 * Which handler answers a path. A table of patterns, compiled once: "/v1/sandboxes/{id}/execs/{x}". Literal parts win
 * over parameters. 404 and 405 (with Allow) are answered here, in the shape of every error.
 */
#pragma once
#include "http/http.h"

struct route {
	enum http_method method;
	const char *pattern;
	unsigned scope, flags; /* for the layers above */
	void (*handle)(void *arg, struct http_req *q, const struct route *r);
};

struct router;

/* @routes must stay. The same method and pattern twice is a bug of ours: asserted. */
struct router *router_new(const struct route *routes, size_t n);
void router_free(struct router *r);
/* NULL: it has been answered (404, 405). HEAD finds GET's route. */
const struct route *router_find(struct router *r, struct http_req *q);
/* The value of a parameter of the route that was found, NULL when it has none of this name. */
const char *router_param(const struct route *r, const struct http_req *q, const char *name);
