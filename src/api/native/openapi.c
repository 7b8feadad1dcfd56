/* Serves the OpenAPI document. */
#include "api/native/native.h"
#include "base/base.h"

/*
 * Serves the OpenAPI document. scripts/openapi.py builds it from routes.c and openapi/, scripts/embed.py turns it into a
 * list of numbers. In angle brackets it is found by a path that ninja knows as the generator's output, so that a change of
 * a route or its description reaches the program in one run.
 */
static const char document[] = {
#include <src/api/openapi.inc>
};

const char *openapi_document(size_t *ret_len)
{
	*ret_len = sizeof(document);
	return document;
}

void get_openapi(void *arg, struct http_req *q, const struct route *r)
{
	(void)arg;
	(void)r;
	http_set(q, "Cache-Control", "no-cache");
	http_send(q, 200, "application/vnd.oai.openapi+json;version=3.1", document, sizeof(document));
}
