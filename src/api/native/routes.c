#include "api/native/native.h"
#include "base/base.h"

static const struct route routes[] = {
	ROUTE(GET, "/healthz", NONE, get_healthz),
	ROUTE(GET, "/version", NONE, get_version),
	ROUTE(GET, "/v1/openapi.json", NONE, get_openapi),
	ROUTE(GET, "/v1/whoami", READ, get_whoami),
	ROUTE(GET, "/v1/info", READ, get_info),
	ROUTE(GET, "/metrics", READ, get_metrics),
	ROUTE(GET, "/v1/events", READ, get_events),

	ROUTE(POST, "/v1/sandboxes", SANDBOX, post_sandboxes),
	ROUTE(GET, "/v1/sandboxes", READ, get_sandboxes),
	ROUTE(GET, "/v1/sandboxes/{id}", READ, get_sandbox),
	ROUTE(PATCH, "/v1/sandboxes/{id}", SANDBOX, patch_sandbox),
	ROUTE(DELETE, "/v1/sandboxes/{id}", SANDBOX, delete_sandbox),
	ROUTE(POST, "/v1/sandboxes/{id}/pause", SANDBOX, post_pause),
	ROUTE(POST, "/v1/sandboxes/{id}/resume", SANDBOX, post_resume),
	ROUTE(POST, "/v1/sandboxes/{id}/start", SANDBOX, post_start),
	ROUTE(POST, "/v1/sandboxes/{id}/stop", SANDBOX, post_stop),
	ROUTE(POST, "/v1/sandboxes/{id}/hibernate", SANDBOX, post_hibernate),
	ROUTE(POST, "/v1/sandboxes/{id}/extend", SANDBOX, post_extend),
	ROUTE(GET, "/v1/sandboxes/{id}/stats", READ, get_stats),
	ROUTE(GET, "/v1/sandboxes/{id}/events", READ, get_sandbox_events),
	ROUTE(GET, "/v1/sandboxes/{id}/network", READ, get_network),
	ROUTE(PUT, "/v1/sandboxes/{id}/network", SANDBOX, put_network),

	ROUTE(POST, "/v1/sandboxes/{id}/checkpoints", SANDBOX, post_checkpoints),
	ROUTE(GET, "/v1/sandboxes/{id}/checkpoints", READ, get_sandbox_checkpoints),
	ROUTE(POST, "/v1/sandboxes/{id}/restore", SANDBOX, post_restore),
	ROUTE(POST, "/v1/sandboxes/{id}/fork", SANDBOX, post_fork),
	ROUTE(GET, "/v1/checkpoints", READ, get_checkpoints),
	ROUTE(GET, "/v1/checkpoints/{c}", READ, get_checkpoint),
	ROUTE(PATCH, "/v1/checkpoints/{c}", SANDBOX, patch_checkpoint),
	ROUTE(DELETE, "/v1/checkpoints/{c}", SANDBOX, delete_checkpoint),
	ROUTE(POST, "/v1/checkpoints/{c}/restore", SANDBOX, post_checkpoint_restore),
	ROUTE(POST, "/v1/checkpoints/import", SANDBOX, post_import),
	ROUTE(GET, "/v1/checkpoints/{c}/export", EXEC, get_export),
	ROUTE(GET, "/v1/checkpoints/{c}/diff", EXEC, get_checkpoint_diff),
	ROUTE(POST, "/v1/sandboxes/{id}/promote", SANDBOX, post_promote),
	ROUTE(GET, "/v1/sandboxes/{id}/diff", EXEC, get_sandbox_diff),

	ROUTE(POST, "/v1/sandboxes/{id}/execs", EXEC, post_execs),
	ROUTE(GET, "/v1/sandboxes/{id}/execs", READ, get_execs),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/attach", EXEC, get_execs_attach),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}", READ, get_exec),
	ROUTE(DELETE, "/v1/sandboxes/{id}/execs/{x}", EXEC, delete_exec),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}/wait", READ, get_exec_wait),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}/output", READ, get_exec_output),
	ROUTE(GET, "/v1/sandboxes/{id}/execs/{x}/attach", EXEC, get_exec_attach),
	ROUTE(POST, "/v1/sandboxes/{id}/execs/{x}/stdin", EXEC, post_exec_stdin),
	ROUTE(POST, "/v1/sandboxes/{id}/execs/{x}/signal", EXEC, post_exec_signal),
	ROUTE(POST, "/v1/sandboxes/{id}/execs/{x}/resize", EXEC, post_exec_resize),

	ROUTE(GET, "/v1/sandboxes/{id}/files", EXEC, get_files),
	ROUTE(PUT, "/v1/sandboxes/{id}/files", EXEC, put_files),
	ROUTE(POST, "/v1/sandboxes/{id}/files", EXEC, post_files),
	ROUTE(DELETE, "/v1/sandboxes/{id}/files", EXEC, delete_files),

	ROUTE(GET, "/v1/sandboxes/{id}/ports", READ, get_ports),
	ROUTE(GET, "/v1/sandboxes/{id}/ports/{port}", READ, get_port),
	ROUTE(PUT, "/v1/sandboxes/{id}/ports/{port}", SANDBOX, put_port_access),
	ROUTE(DELETE, "/v1/sandboxes/{id}/ports/{port}", SANDBOX, delete_port),
	ROUTE(GET, "/v1/sandboxes/{id}/tunnels/{port}", EXEC, get_tunnel),

	ROUTE(GET, "/v1/templates", READ, get_templates),
	ROUTE(PUT, "/v1/templates/{name}", SANDBOX, put_template),
	ROUTE(GET, "/v1/templates/{name}", READ, get_template),
	ROUTE(DELETE, "/v1/templates/{name}", SANDBOX, delete_template),

	ROUTE(GET, "/v1/pools", READ, get_pools),
	ROUTE(PUT, "/v1/pools/{name}", SANDBOX, put_pool),
	ROUTE(GET, "/v1/pools/{name}", READ, get_pool),
	ROUTE(DELETE, "/v1/pools/{name}", SANDBOX, delete_pool),

	ROUTE(GET, "/v1/secrets", READ, get_secrets),
	ROUTE(PUT, "/v1/secrets/{name}", SANDBOX, put_secret),
	ROUTE(GET, "/v1/secrets/{name}", READ, get_secret),
	ROUTE(DELETE, "/v1/secrets/{name}", SANDBOX, delete_secret),

	ROUTE(GET, "/v1/tenants", ADMIN, get_tenants),
	ROUTE(POST, "/v1/tenants", ADMIN, post_tenants),
	ROUTE(GET, "/v1/tenants/{t}", ADMIN, get_tenant),
	ROUTE(PATCH, "/v1/tenants/{t}", ADMIN, patch_tenant),
	ROUTE(DELETE, "/v1/tenants/{t}", ADMIN, delete_tenant),

	ROUTE(GET, "/v1/tokens", SANDBOX, get_tokens),
	ROUTE(POST, "/v1/tokens", ADMIN, post_tokens),
	ROUTE(GET, "/v1/tokens/{k}", SANDBOX, get_token),
	ROUTE(POST, "/v1/tokens/{k}/rotate", ADMIN, post_token_rotate),
	ROUTE(DELETE, "/v1/tokens/{k}", ADMIN, delete_token),

	ROUTE(GET, "/v1/audit", ADMIN, get_audit),
	ROUTE(GET, "/v1/audit/verify", ADMIN, get_audit_verify),
};

const struct route *native_routes(size_t *ret_n)
{
	*ret_n = ARRAY_LEN(routes);
	return routes;
}
