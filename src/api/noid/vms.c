/* Noid's calls on VMs: create, list, show, delete, capabilities. */
#include "api/list.h"
#include "api/noid/noid.h"
#include "base/base.h"
#include "base/clock.h"
#include "service/state/json_read.h"
#include "service/network/conf.h"

#include <unistd.h>

uint64_t noid_mem_mib(const struct service_opts *o)
{
	return o->memory_max && o->memory_max < NOID_MEM_MIB * MIB ? o->memory_max / MIB : NOID_MEM_MIB;
}

int noid_vm(struct call *c)
{
	const char *name = router_param(c->route, c->q, "id");
	struct err e = { 0 };
	struct sandbox *b = sandbox_find(c->api->s, &c->who, name, &e);

	if (!b) {
		err_set(&e, WHY_SANDBOX_MISSING, -ENOENT, "VM '%.64s' not found", name);
		call_fail(c, &e);
		return -ENOENT;
	}
	call_enter_sandbox(c, b);
	return 0;
}

static const char *state_name(enum sandbox_state s)
{
	switch (s) {
	case SANDBOX_RUNNING:
		return "running";
	case SANDBOX_HIBERNATED:
	case SANDBOX_PAUSED:
		return "paused";
	case SANDBOX_STOPPED:
	case SANDBOX_LOST:
		return "stopped";
	case SANDBOX_MAKING:
	case SANDBOX_ENDING:
		break;
	}
	return "unknown";
}

/* Whole cores, as Noid counts them, rounded up; without a limit all cores. */
static uint64_t whole_cores(uint32_t milli)
{
	long all = sysconf(_SC_NPROCESSORS_ONLN);

	return milli ? (milli + 999U) / 1000U : all > 0 ? (uint64_t)all : 1;
}

static void put_vm(struct json *j, const struct sandbox *b)
{
	const struct sandbox_view v = sandbox_view(b);
	const struct spec_limits *limits = &v.request->spec->limits;
	char when[32];

	clock_iso(v.created_ns, when);
	jout_object(j, NULL);
	jout_str(j, "name", v.request->name[0] ? v.request->name : v.id);
	jout_str(j, "state", state_name(v.state));
	jout_u64(j, "cpus", whole_cores(limits->cpu_milli));
	jout_u64(j, "mem_mib", limits->memory / MIB);
	jout_str(j, "created_at", when);
	jout_str(j, "isolation", tier_name(v.request->spec));
	jout_end(j);
}

void noid_answer_vm(struct call *c, int status, const struct sandbox *b)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&out);

	put_vm(&j, b);
	call_json(c, status, &out);
}

/* --- create --- */

static void on_made(void *arg, struct sandbox *b, bool found, const struct err *e)
{
	struct call *c = arg;

	(void)found; /* a VM has no key */
	if (!b) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	noid_answer_vm(c, 201, b);
}

/* Emulated virtual machines are slow: they are only used when the configuration says so. */
static const char *tier_of(const struct api *a)
{
	bool fast = !strcmp(a->noid_isolation, "auto") && service_opts(a->s)->kvm;

	return fast || !strcmp(a->noid_isolation, "vm") ? "vm" : "container";
}

/* Noid's machines have internet access unless they are isolated; here the administrator may forbid it for all. */
static const char *network_of(const struct service_opts *o)
{
	return o->net->closed ? "none" : "open";
}

static uint64_t pids_of(const struct service_opts *o)
{
	return o->pids_max && o->pids_max < NOID_PIDS ? o->pids_max : NOID_PIDS;
}

void noid_defaults(const struct api *a, struct json *j)
{
	jout_str(j, "isolation", tier_of(a));
	jout_str(j, "network", network_of(service_opts(a->s)));
	jout_u64(j, "mem_mib", noid_mem_mib(service_opts(a->s)));
	jout_u64(j, "pids", pids_of(service_opts(a->s)));
}

/* Translates Noid's fields into a request of the native API. */
static int read_create(const struct api *a, const json_t *from, bool admin, struct sandbox_request **ret, struct err *e)
{
	const struct service_opts *o = service_opts(a->s);
	uint64_t cpus = 1, mem = noid_mem_mib(o);
	const char *name = NULL, *network = NULL;
	struct json_read j = JIN_INIT(from, e);
	AUTO(json_decref) json_t *own = NULL;

	if (!json_read_str(&j, "name", &name, SIZE_MAX))
		json_read_bad(&j, "name", "is required");
	if (j.r == 0)
		j.r = name_check(name, e);
	json_read_u64(&j, "cpus", &cpus, 1, 1000);
	json_read_u64(&j, "mem_mib", &mem, 1, 1U << 24);
	json_read_str(&j, "network", &network, 64);
	if (j.r == 0 && network && strcmp(network, "isolated"))
		json_read_bad(&j, "network", "must be \"isolated\" or be left out");
	if (j.r < 0)
		return j.r;
	own = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s}", "name", name, "isolation", tier_of(a), "user", "root",
			"cpus", (json_int_t)cpus, "memory", (json_int_t)(mem * MIB), "pids", (json_int_t)pids_of(o),
			"network", network ? "none" : network_of(o));
	if (!own)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a VM");
	return sandbox_request_parse(o, own, admin, ret, e);
}

static void create_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *from = NULL;
	struct sandbox_request *w = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &from, &e);

	if (r == 0)
		r = read_create(c->api, from, c->who.scope == SCOPE_ADMIN, &w, &e);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	c->pending = true;
	sandbox_create(c->api->s, &c->who, w, on_made, c);
}

void noid_post_vms(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), create_body);
}

/* --- look --- */

void noid_get_vms(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	struct call *c = call_new(arg, q, r);
	AUTO(list_done) struct list l = { 0 };
	struct json j = JSON_INIT(&out);
	const struct sandbox *b;
	struct err e = { 0 };
	size_t at = 0;

	while ((b = sandbox_next(c->api->s, &at)))
		if (sandbox_tenant(b) == c->who.tenant)
			list_add(&l, sandbox_view(b).created_ns, sandbox_id(b), b);
	if (l.failed) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory for the list");
		call_fail(c, &e);
		return;
	}
	list_oldest_first(&l);
	jout_array(&j, NULL);
	for (size_t i = 0; i < l.n; i++)
		put_vm(&j, l.item[i].what);
	jout_end(&j);
	call_json(c, 200, &out);
}

void noid_get_vm(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (noid_vm(c) == 0)
		noid_answer_vm(c, 200, c->sandbox);
}

/* --- delete --- */

static void on_deleted(void *arg, int r, const struct err *e)
{
	struct call *c = arg;

	if (r < 0 && e->kind != ERR_NOT_FOUND) {
		call_fail(c, e);
		return;
	}
	if (r == 0)
		call_audited(c);
	call_empty(c, 204);
}

void noid_delete_vm(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct err e = { 0 };
	struct sandbox *b = sandbox_find(c->api->s, &c->who, router_param(r, q, "id"), &e);

	if (!b) { /* deleting what does not exist succeeds */
		call_empty(c, 204);
		return;
	}
	call_enter_sandbox(c, b);
	c->pending = true;
	sandbox_delete(b, &c->who, "sandbox.delete", on_deleted, c);
}

/*
 * Noid's server returns these as flat fields, its TypeScript client expects groups: both are written. Times: 0 = no
 * limit.
 */
void noid_get_capabilities(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct call *c = call_new(arg, q, r);
	const struct service_opts *o = service_opts(c->api->s);
	uint64_t max = o->exec_timeout_max_ms, exec = o->exec_timeout_ms, mem = noid_mem_mib(o);
	struct json j = JSON_INIT(&out);

	if (max && (!exec || exec > max))
		exec = max;
	jout_object(&j, NULL);
	jout_u64(&j, "api_version", 1);
	jout_u64(&j, "max_exec_output_bytes", o->output_limit);
	jout_u64(&j, "exec_timeout_secs", exec / 1000);
	jout_u64(&j, "console_timeout_secs", max / 1000);
	jout_u64(&j, "max_vm_name_length", NAME_MAX_LEN);
	jout_u64(&j, "default_cpus", 1);
	jout_u64(&j, "default_mem_mib", mem);
	jout_object(&j, "timeouts");
	jout_u64(&j, "exec_timeout_secs", exec / 1000);
	jout_u64(&j, "console_timeout_secs", max / 1000);
	jout_end(&j);
	jout_object(&j, "limits");
	jout_u64(&j, "max_env_vars", ENV_MAX);
	jout_u64(&j, "max_env_value_len", 32 * KIB);
	jout_end(&j);
	jout_object(&j, "defaults");
	jout_u64(&j, "cpus", 1);
	jout_u64(&j, "mem_mib", mem);
	jout_end(&j);
	jout_end(&j);
	call_json(c, 200, &out);
}
