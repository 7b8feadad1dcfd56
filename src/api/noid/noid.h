/*
 * Noid's dialect: what its REST and WebSocket API looks like to noid-js and its CLI. A VM is a sandbox whose commands
 * run as root; both dialects see the same ones. Unknown fields are ignored, as Noid's server does.
 */
#pragma once
#include "api/api.h"

const struct route *noid_routes(size_t *ret_n);
/* Sets the headers and the format of errors for requests of Noid's paths. */
void noid_dress(struct http_req *q);

#define NOID_MEM_MIB 2048U
#define NOID_PIDS 4096U /* as many as a whole machine needs */
/* Memory of a VM whose request has none: NOID_MEM_MIB, or less where the configuration allows less. */
uint64_t noid_mem_mib(const struct service_opts *o);
/* The defaults for a VM, as fields inside an open object: also for clients that make it by the native API. */
void noid_defaults(const struct api *a, struct json *j);

/* Finds the VM named in the path. On failure it has been answered and ended: returns -errno. */
int noid_vm(struct call *c);
/* Answers with a VM's info, and ends the call. */
void noid_answer_vm(struct call *c, int status, const struct sandbox *b);
/* Reads Noid's body of an exec. @stream: over a WebSocket, where stdin may come. */
struct exec_request;
int noid_exec_request(const struct sandbox *b, const char *data, size_t len, bool stream, struct exec_request **ret,
		      struct err *e);
/* Writes exit_code, timed_out, truncated inside of an open object. */
void noid_exec_end(const struct exec *x, bool truncated, struct json *j);
void noid_error(struct json *j, const char *message, const char *remedy);

typedef void noid_fn(void *arg, struct http_req *q, const struct route *r);
/* vms.c */
noid_fn noid_get_capabilities, noid_post_vms, noid_get_vms, noid_get_vm, noid_delete_vm;
/* checkpoints.c */
noid_fn noid_post_checkpoints, noid_get_checkpoints, noid_post_restore;
/* execs.c, sockets.c */
noid_fn noid_post_exec, noid_ws_exec, noid_ws_console;
