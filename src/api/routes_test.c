#include "api/native/native.h"
#include "base/base.h"
#include "base/test.h"

#include <jansson.h>

static json_t *load(void)
{
	json_error_t why;
	size_t len;
	const char *text = openapi_document(&len);

	/* The largest offsets do not fit into jansson's integers. */
	return json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &why);
}

static const char *method_name(enum http_method m)
{
	switch (m) {
	case HTTP_M_GET:
		return "get";
	case HTTP_M_POST:
		return "post";
	case HTTP_M_PUT:
		return "put";
	case HTTP_M_PATCH:
		return "patch";
	case HTTP_M_DELETE:
		return "delete";
	case HTTP_M_HEAD:
	case HTTP_M_OTHER:
		break;
	}
	return "none";
}

/* scripts/openapi.py reads the table as text: the compiled table must be the same. */
TEST(every_route_is_in_the_document_with_its_scope)
{
	AUTO(json_decref) json_t *doc = load();
	const json_t *paths = json_object_get(doc, "paths");
	size_t n;
	const struct route *r = native_routes(&n);

	CHECK(n > 40);
	for (size_t i = 0; i < n; i++) {
		const json_t *op = json_object_get(json_object_get(paths, r[i].pattern), method_name(r[i].method));
		const char *scope = json_string_value(json_object_get(op, "x-scope"));

		if (!op)
			printf("# %s %s is not in the document\n", method_name(r[i].method), r[i].pattern);
		CHECK(op != NULL);
		CHECK_STR(scope ? scope : "none", scope_name((enum scope)r[i].scope));
		CHECK_EQ(json_array_size(json_object_get(op, "security")), r[i].scope != SCOPE_NONE);
	}
}

static bool is_route(const char *path, const char *method)
{
	size_t n;
	const struct route *r = native_routes(&n);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(r[i].pattern, path) && !strcmp(method_name(r[i].method), method))
			return true;
	return false;
}

TEST(everything_in_the_document_is_a_route)
{
	AUTO(json_decref) json_t *doc = load();
	const char *path, *method;
	json_t *item, *op;
	unsigned seen = 0;

	json_object_foreach(json_object_get(doc, "paths"), path, item)
	{
		json_object_foreach(item, method, op)
		{
			if (!is_route(path, method))
				printf("# %s %s of the document is no route\n", method, path);
			CHECK(is_route(path, method));
			CHECK(json_is_string(json_object_get(op, "operationId")));
			seen++;
		}
	}
	CHECK(seen > 40);
}

TEST(flags_that_need_another_have_it)
{
	size_t n;
	const struct route *r = api_routes(&n);

	for (size_t i = 0; i < n; i++) {
		if (r[i].flags & (ROUTE_OPENS | ROUTE_RESUMES))
			CHECK(r[i].flags & ROUTE_WAKES);
		if (r[i].flags & ROUTE_WAKES)
			CHECK((r[i].flags & ROUTE_USES) && strstr(r[i].pattern, "{id}"));
		if (r[i].flags & ROUTE_NO_DISK)
			CHECK(r[i].method != HTTP_M_GET && r[i].method != HTTP_M_DELETE);
	}
}

TEST(api_routes_hold_those_of_this_dialect)
{
	size_t all, own;
	const struct route *a = api_routes(&all), *n = native_routes(&own);
	struct router *r = router_new(a, all);

	CHECK(all >= own && !memcmp(a, n, own * sizeof(*n)));
	CHECK(r != NULL); /* the lookup asserts that no route occurs twice */
	router_free(r);
}
