#include "http/router.h"

#include "http/http_test.h"

static struct fix f;
static struct got g;
static struct router *router;

static void handle(void *arg, struct http_req *q, const struct route *r)
{
	char text[256];
	const char *id = router_param(r, q, "id"), *x = router_param(r, q, "x"), *none = router_param(r, q, "i");

	(void)arg;
	snprintf(text, sizeof(text), "%u id=%s x=%s none=%s", r->scope, id ? id : "-", x ? x : "-", none ? none : "-");
	http_send(q, 200, "text/plain", text, strlen(text));
}

static const struct route routes[] = {
	{ HTTP_M_GET, "/", 1, 0, handle },
	{ HTTP_M_GET, "/v1/boxes", 2, 0, handle },
	{ HTTP_M_POST, "/v1/boxes", 3, 0, handle },
	{ HTTP_M_GET, "/v1/boxes/{id}", 4, 0, handle },
	{ HTTP_M_GET, "/v1/boxes/{id}/execs/attach", 5, 0, handle },
	{ HTTP_M_GET, "/v1/boxes/{id}/execs/{x}", 6, 0, handle },
	{ HTTP_M_DELETE, "/v1/boxes/{id}/execs/{x}", 7, 0, handle },
	{ HTTP_M_GET, "/v1/{id}/special", 8, 0, handle },
};

static void route(struct fix *fix, struct http_req *q)
{
	const struct route *r = router_find(router, q);

	(void)fix;
	if (r)
		r->handle(NULL, q, r);
}

static void goes(const char *method, const char *path, const char *want)
{
	char text[256];

	snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: x\r\n\r\n", method, path);
	fix_ask(&f, text, &g);
	if (strcmp(got_body(&g), want) != 0)
		TEST_FAIL("%s %s: '%s'", method, path, got_body(&g));
}

static void advises(const char *path, const char *want)
{
	char text[256];

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
	fix_ask(&f, text, &g);
	if (!strstr(got_body(&g), want))
		TEST_FAIL("%s: '%s'", path, got_body(&g));
}

TEST(paths_find_their_route_and_literals_win)
{
	router = router_new(routes, ARRAY_LEN(routes));
	fix_up(&f, NULL, route);
	goes("GET", "/", "1 id=- x=- none=-");
	goes("GET", "/v1/boxes?x=1", "2 id=- x=- none=-");
	goes("POST", "/v1/boxes", "3 id=- x=- none=-");
	goes("GET", "/v1/boxes/a%20b", "4 id=a b x=- none=-");
	goes("GET", "/v1/boxes/special", "4 id=special x=- none=-");
	goes("GET", "/v1/other/special", "8 id=other x=- none=-");
	goes("GET", "/v1/boxes/a/execs/attach", "5 id=a x=- none=-");
	goes("GET", "/v1/boxes/a/execs/7", "6 id=a x=7 none=-");
	goes("DELETE", "/v1/boxes/a/execs/attach", "7 id=a x=attach none=-");
	goes("HEAD", "/v1/boxes", "");
	CHECK_EQ(got_status(&g), 200);
	fix_down(&f);
	router_free(router);
}

TEST(what_is_not_there_is_404_and_a_method_not_there_405)
{
	router = router_new(routes, ARRAY_LEN(routes));
	fix_up(&f, NULL, route);
	fix_ask(&f, "GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 404);
	CHECK_CONTAINS(g.data, "{\"error\":{\"code\":\"not_found\"");
	advises("/v1/nothing", "\"remedy\":\"see GET /v1/openapi.json");
	advises("/v1/v1/boxes", "leave out the /v1 at its end");
	advises("/boxes", "paths of the API begin with /v1/");
	fix_ask(&f, "PUT /v1/boxes HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 405);
	CHECK_CONTAINS(g.data, "\r\nAllow: GET, HEAD, POST\r\n");
	CHECK_CONTAINS(g.data, "\"code\":\"method\"");
	CHECK_CONTAINS(g.data, "\"remedy\":\"use one of GET, HEAD, POST\"");
	fix_ask(&f, "OPTIONS /v1/boxes/1/execs/2 HTTP/1.1\r\nHost: x\r\n\r\n", &g);
	CHECK_EQ(got_status(&g), 405);
	CHECK_CONTAINS(g.data, "\r\nAllow: GET, HEAD, DELETE\r\n");
	fix_down(&f);
	router_free(router);
}
