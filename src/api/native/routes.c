#include "api/native/native.h"
#include "base/base.h"

static const struct route routes[] = {
	ROUTE(GET, "/healthz", NONE, get_healthz, 0),
	ROUTE(GET, "/version", NONE, get_version, 0),
	ROUTE(GET, "/v1/openapi.json", NONE, get_openapi, 0),
	ROUTE(GET, "/v1/whoami", READ, get_whoami, 0),
	ROUTE(GET, "/v1/info", READ, get_info, 0),
	ROUTE(GET, "/metrics", READ, get_metrics, 0),
	ROUTE(GET, "/v1/events", READ, get_events, ROUTE_STREAMS),

	ROUTE(POST, "/v1/sandboxes", SANDBOX, post_sandboxes, 0),
	ROUTE(GET, "/v1/sandboxes", READ, get_sandboxes, 0),
	ROUTE(GET, "/v1/sandboxes/{id}", READ, get_sandbox, 0),
	ROUTE(PATCH, "/v1/sandboxes/{id}", SANDBOX, patch_sandbox, ROUTE_USES),
	ROUTE(DELETE, "/v1/sandboxes/{id}", SANDBOX, delete_sandbox, ROUTE_USES),
	ROUTE(POST, "/v1/sandboxes/{id}/pause", SANDBOX, post_pause, ROUTE_USES | ROUTE_WAKES),
	ROUTE(POST, "/v1/sandboxes/{id}/resume", SANDBOX, post_resume, ROUTE_USES | ROUTE_WAKES | ROUTE_RESUMES),
	ROUTE(POST, "/v1/sandboxes/{id}/start", SANDBOX, post_start, ROUTE_USES),
	ROUTE(POST, "/v1/sandboxes/{id}/stop", SANDBOX, post_stop, ROUTE_USES | ROUTE_NO_DISK),
	ROUTE(POST, "/v1/sandboxes/{id}/hibernate", SANDBOX, post_hibernate, ROUTE_USES),
	ROUTE(POST, "/v1/sandboxes/{id}/extend", SANDBOX, post_extend, ROUTE_USES),
	ROUTE(GET, "/v1/sandboxes/{id}/stats", READ, get_stats, 0),
	ROUTE(GET, "/v1/sandboxes/{id}/events", READ, get_sandbox_events, ROUTE_STREAMS),
	ROUTE(GET, "/v1/sandboxes/{id}/network", READ, get_network, 0),
	ROUTE(PUT, "/v1/sandboxes/{id}/network", SANDBOX, put_network, ROUTE_USES),

	ROUTE(POST, "/v1/sandboxes/{id}/checkpoints", SANDBOX, post_checkpoints, ROUTE_USES | ROUTE_WAKES | ROUTE_OPENS),
	ROUTE(GET, "/v1/sandboxes/{id}/checkpoints", READ, get_sandbox_checkpoints, 0),
	ROUTE(POST, "/v1/sandboxes/{id}/restore", SANDBOX, post_restore, ROUTE_USES),
	ROUTE(POST, "/v1/sandboxes/{id}/fork", SANDBOX, post_fork, ROUTE_USES | ROUTE_WAKES),
	ROUTE(GET, "/v1/checkpoints", READ, get_checkpoints, 0),
	ROUTE(GET, "/v1/checkpoints/{c}", READ, get_checkpoint, 0),
	ROUTE(PATCH, "/v1/checkpoints/{c}", SANDBOX, patch_checkpoint, 0),
	ROUTE(DELETE, "/v1/checkpoints/{c}", SANDBOX, delete_checkpoint, 0),
	ROUTE(POST, "/v1/checkpoints/{c}/restore", SANDBOX, post_checkpoint_restore, 0),
	ROUTE(POST, "/v1/checkpoints/import", SANDBOX, post_import, 0),
	ROUTE(GET, "/v1/checkpoints/{c}/export", EXEC, get_export, 0),
	ROUTE(GET, "/v1/checkpoints/{c}/diff", EXEC, get_checkpoint_diff, 0),
	ROUTE(POST, "/v1/sandboxes/{id}/promote", SANDBOX, post_promote, ROUTE_USES | ROUTE_WAKES),
	ROUTE(GET, "/v1/sandboxes/{id}/diff", EXEC, get_sandbox_diff, ROUTE_USES | ROUTE_WAKES | ROUTE_OPENS),

	ROUTE(POST, "/v1/sandboxes/{id}/execs", EXEC, post_execs, ROUTE_USES | ROUTE_WAKES | ROUTE_STREAMS),
	ROUTE(GET, "/v1/sandboxes/{id}/execs", READ, get_execs, 0),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/attach", EXEC, get_execs_attach, ROUTE_USES | ROUTE_WAKES | ROUTE_STREAMS),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}", READ, get_exec, ROUTE_USES),
	ROUTE(DELETE, "/v1/sandboxes/{id}/execs/{x}", EXEC, delete_exec, ROUTE_USES | ROUTE_WAKES),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}/wait", READ, get_exec_wait, ROUTE_USES | ROUTE_WAKES),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}/output", READ, get_exec_output, ROUTE_USES),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}/attach", EXEC, get_exec_attach, ROUTE_USES | ROUTE_WAKES | ROUTE_STREAMS),
	ROUTE(POST, "/v1/sandboxes/{id}/execs/{x}/stdin", EXEC, post_exec_stdin, ROUTE_USES | ROUTE_WAKES | ROUTE_NO_DISK),
	ROUTE(POST, "/v1/sandboxes/{id}/execs/{x}/signal", EXEC, post_exec_signal, ROUTE_USES | ROUTE_WAKES | ROUTE_NO_DISK),
	ROUTE(POST, "/v1/sandboxes/{id}/execs/{x}/resize", EXEC, post_exec_resize, ROUTE_USES | ROUTE_WAKES | ROUTE_NO_DISK),

	ROUTE(GET, "/v1/sandboxes/{id}/files", EXEC, get_files, ROUTE_USES | ROUTE_WAKES | ROUTE_OPENS | ROUTE_STREAMS),
	ROUTE(PUT, "/v1/sandboxes/{id}/files", EXEC, put_files, ROUTE_USES | ROUTE_WAKES | ROUTE_OPENS),
	ROUTE(POST, "/v1/sandboxes/{id}/files", EXEC, post_files, ROUTE_USES | ROUTE_WAKES | ROUTE_OPENS),
	ROUTE(DELETE, "/v1/sandboxes/{id}/files", EXEC, delete_files, ROUTE_USES | ROUTE_WAKES | ROUTE_OPENS),

	ROUTE(GET, "/v1/sandboxes/{id}/ports", READ, get_ports, 0),
	ROUTE(GET, "/v1/sandboxes/{id}/ports/{port}", READ, get_port, 0),
	ROUTE(PUT, "/v1/sandboxes/{id}/ports/{port}", SANDBOX, put_port_access, ROUTE_USES),
	ROUTE(DELETE, "/v1/sandboxes/{id}/ports/{port}", SANDBOX, delete_port, ROUTE_USES),
	ROUTE(GET, "/v1/sandboxes/{id}/tunnels/{port}", EXEC, get_tunnel, ROUTE_USES | ROUTE_WAKES | ROUTE_STREAMS),

	ROUTE(GET, "/v1/templates", READ, get_templates, 0),
	ROUTE(PUT, "/v1/templates/{name}", SANDBOX, put_template, 0),
	ROUTE(GET, "/v1/templates/{name}", READ, get_template, 0),
	ROUTE(DELETE, "/v1/templates/{name}", SANDBOX, delete_template, 0),

	ROUTE(GET, "/v1/pools", READ, get_pools, 0),
	ROUTE(PUT, "/v1/pools/{name}", SANDBOX, put_pool, 0),
	ROUTE(GET, "/v1/pools/{name}", READ, get_pool, 0),
	ROUTE(DELETE, "/v1/pools/{name}", SANDBOX, delete_pool, 0),

	ROUTE(GET, "/v1/secrets", READ, get_secrets, 0),
	ROUTE(PUT, "/v1/secrets/{name}", SANDBOX, put_secret, 0),
	ROUTE(GET, "/v1/secrets/{name}", READ, get_secret, 0),
	ROUTE(DELETE, "/v1/secrets/{name}", SANDBOX, delete_secret, 0),

	ROUTE(GET, "/v1/tenants", ADMIN, get_tenants, 0),
	ROUTE(POST, "/v1/tenants", ADMIN, post_tenants, 0),
	ROUTE(GET, "/v1/tenants/{t}", ADMIN, get_tenant, 0),
	ROUTE(PATCH, "/v1/tenants/{t}", ADMIN, patch_tenant, 0),
	ROUTE(DELETE, "/v1/tenants/{t}", ADMIN, delete_tenant, 0),

	ROUTE(GET, "/v1/tokens", SANDBOX, get_tokens, 0),
	ROUTE(POST, "/v1/tokens", ADMIN, post_tokens, 0),
	ROUTE(GET, "/v1/tokens/{k}", SANDBOX, get_token, 0),
	ROUTE(POST, "/v1/tokens/{k}/rotate", ADMIN, post_token_rotate, 0),
	ROUTE(DELETE, "/v1/tokens/{k}", ADMIN, delete_token, 0),

	ROUTE(GET, "/v1/audit", ADMIN, get_audit, 0),
	ROUTE(GET, "/v1/audit/verify", ADMIN, get_audit_verify, 0),
};

const struct route *native_routes(size_t *ret_n)
{
	*ret_n = ARRAY_LEN(routes);
	return routes;
}
