/* The native dialect, docs/api.md. */
#pragma once
#include "api/api.h"

const struct route *native_routes(size_t *ret_n);

typedef void route_fn(void *arg, struct http_req *q, const struct route *r);
/* sandboxes.c */
route_fn post_sandboxes, get_sandboxes, get_sandbox, patch_sandbox, delete_sandbox, post_pause, post_resume, post_start,
	post_stop, post_extend, post_hibernate, get_stats;
/* network.c */
route_fn get_network, put_network;
/* diff.c */
route_fn get_sandbox_diff, get_checkpoint_diff;
/* promote.c */
route_fn post_promote;
/* transfer.c */
route_fn get_export, post_import;
/* checkpoints.c */
route_fn post_checkpoints, get_checkpoints, get_sandbox_checkpoints, get_checkpoint, patch_checkpoint,
	delete_checkpoint, post_checkpoint_restore, post_restore, post_fork;
/* execs.c */
route_fn post_execs, get_execs, get_exec, get_exec_wait, post_exec_stdin, post_exec_signal, post_exec_resize,
	delete_exec;
void call_exec_answer(struct call *c); /* the result of its exec, which is over */
/* exec_input.c */
void exec_input(struct call *c); /* an exec whose stdin follows the request in the body */
/* contexts.c, context_execute.c, context_attach.c */
route_fn post_contexts, get_contexts, get_context, delete_context, post_context_restart, post_context_interrupt,
	post_context_complete, post_context_is_complete, post_context_inspect, get_context_history,
	post_context_execute, get_context_attach;
/* run.c */
route_fn post_run;
/* output.c, attach.c */
route_fn get_exec_output, get_exec_attach, get_execs_attach;
/* events.c */
route_fn get_events, get_sandbox_events;
/* files.c */
route_fn get_files, put_files, post_files, delete_files;
/* tenants.c */
route_fn get_tenants, post_tenants, get_tenant, patch_tenant, delete_tenant;
/* templates.c */
route_fn put_template, get_template, get_templates, delete_template;
/* The tenant of the call; NULL: an error was answered. With @ret_all an admin may pass `*`: NULL, and *ret_all is set. */
struct tenant *call_tenant_of(struct call *c, bool *ret_all);
/* build.c */
route_fn post_images_build, delete_build_cache;

/* images.c */
route_fn get_images, get_image, delete_image, patch_image, post_image_tag, post_images_import, post_images_prune,
	get_images_usage;
/* The image in the path; NULL: the call has been answered. */
struct image *call_image(struct call *c);
int image_answer(const struct image *i, struct buf *out, struct err *e); /* describes it as callers see it */
/* image_pull.c */
route_fn post_images_pull, get_image_outdated, post_image_outdated;
void call_image_json(struct call *c, int status, const struct image *i); /* answers with the image, when it is stored */
/* images_export.c */
route_fn get_image_export, post_sandbox_commit, post_checkpoint_commit;
/* operations.c */
route_fn get_operations, get_operation, delete_operation, get_operation_events;
struct operation;
void call_accepted(struct call *c, const struct operation *o); /* answers 202, with the operation's present state */
/* pools.c */
route_fn put_pool, get_pool, get_pools, delete_pool;
/* secrets.c */
route_fn put_secret, get_secret, get_secrets, delete_secret;
/* ports.c */
route_fn get_ports, get_port, put_port_access, delete_port, get_tunnel;
/* tokens.c */
route_fn get_tokens, post_tokens, get_token, post_token_rotate, delete_token;
/* audit.c */
route_fn get_audit, get_audit_verify;
/* info.c */
route_fn get_healthz, get_version, get_info, get_whoami, get_metrics;
/* openapi.c */
route_fn get_openapi;
const char *openapi_document(size_t *ret_len); /* not NUL-terminated */

struct json_read;
/* Reads {points, window, block}; missing fields are not changed. Returns whether the rule was present. (tenants.c) */
bool read_rate(struct json_read *j, struct rate_rule *r);
void put_rate(struct json *j, const struct rate_rule *r);

/* Streams an exec's output as server-sent events; takes over the call. (stream.c) */
struct exec_sink *sse_exec_begin(struct call *c);
void sse_exec_run(struct call *c, struct exec *x);
void sse_exec_refuse(struct call *c, const struct err *e);
