/* The routes of Noid's dialect, and the format of its errors. */
#include "api/noid/noid.h"
#include "base/base.h"

static const struct route routes[] = {
	ROUTE(GET, "/v1/capabilities", READ, noid_get_capabilities, 0),
	ROUTE(POST, "/v1/vms", SANDBOX, noid_post_vms, 0),
	ROUTE(GET, "/v1/vms", READ, noid_get_vms, 0),
	ROUTE(GET, "/v1/vms/{id}", READ, noid_get_vm, 0),
	ROUTE(DELETE, "/v1/vms/{id}", SANDBOX, noid_delete_vm, ROUTE_USES),
	ROUTE(POST, "/v1/vms/{id}/exec", EXEC, noid_post_exec, ROUTE_USES | ROUTE_WAKES),
	ROUTE(GET, "/v1/vms/{id}/exec", EXEC, noid_ws_exec, ROUTE_USES | ROUTE_WAKES | ROUTE_STREAMS),
	ROUTE(GET, "/v1/vms/{id}/console", EXEC, noid_ws_console, ROUTE_USES | ROUTE_WAKES | ROUTE_STREAMS),
	ROUTE(POST, "/v1/vms/{id}/checkpoints", SANDBOX, noid_post_checkpoints, ROUTE_USES | ROUTE_WAKES | ROUTE_OPENS),
	ROUTE(GET, "/v1/vms/{id}/checkpoints", READ, noid_get_checkpoints, 0),
	ROUTE(POST, "/v1/vms/{id}/restore", SANDBOX, noid_post_restore, ROUTE_USES),
};

const struct route *noid_routes(size_t *ret_n)
{
	*ret_n = ARRAY_LEN(routes);
	return routes;
}

void noid_error(struct json *j, const char *message, const char *remedy)
{
	char text[512];

	if (remedy && *remedy) {
		snprintf(text, sizeof(text), "%s (%s)", message, remedy);
		message = text;
	}
	jout_object(j, NULL);
	jout_str(j, "error", message);
	jout_end(j);
}

static void shape(struct json *j, const char *code, const char *message, const char *cause, const char *remedy)
{
	(void)code;
	(void)cause;
	noid_error(j, message, remedy);
}

/* Three paths belong to both dialects: their answers fit both, their errors are the native ones. */
static bool is_shared(const struct http_req *q)
{
	const char *path = http_path(q);

	return !strcmp(path, "/healthz") || !strcmp(path, "/version") || !strcmp(path, "/v1/whoami");
}

static bool is_own(const struct http_req *q)
{
	const char *second = http_segments(q) > 1 ? http_segment(q, 1) : "";

	return !strcmp(http_segments(q) ? http_segment(q, 0) : "", "v1") &&
	       (!strcmp(second, "vms") || !strcmp(second, "capabilities"));
}

void noid_dress(struct http_req *q)
{
	bool own = is_own(q);

	if (own || is_shared(q))
		http_set(q, "X-Noid-Api-Version", "1");
	if (own)
		http_set_shape(q, shape);
}
