#include "api/native/native.h"
#include "api/noid/noid.h"
#include "base/base.h"
#include "base/clock.h"
#include "config.h"
#include "driver/driver.h"
#include "service/template/pool.h"
#include "service/checkpoint/signer.h"
#include "service/link/warden_link.h"

static void send_json(struct http_req *q, struct buf *b)
{
	http_send(q, 200, "application/json", b->data, b->len);
}

void get_healthz(void *arg, struct http_req *q, const struct route *r)
{
	static const char ok[] = "{\"status\":\"ok\"}";

	(void)arg;
	(void)r;
	http_send(q, 200, "application/json", ok, sizeof(ok) - 1);
}

void get_version(void *arg, struct http_req *q, const struct route *r)
{
	static const char text[] = "{\"version\":\"" CLOCHE_VERSION "\",\"api_version\":1}";

	(void)arg;
	(void)r;
	http_send(q, 200, "application/json", text, sizeof(text) - 1);
}

void get_whoami(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&b);
	struct who w = api_who(q);
	const struct token *k = token_find(((struct api *)arg)->s->access, w.token);

	(void)r;
	jout_object(&j, NULL);
	jout_str(&j, "tenant", w.tenant->id);
	jout_str(&j, "scope", scope_name(w.scope));
	jout_object(&j, "token");
	jout_str(&j, "id", w.token);
	jout_str(&j, "name", k ? k->name : "local");
	jout_end(&j);
	jout_str(&j, "user_id", w.tenant->id);
	jout_str(&j, "name", w.tenant->id);
	jout_end(&j);
	send_json(q, &b);
}

/* What they take is there. We are not root, but the warden is. */
static bool has_machines(void)
{
	struct err e = { 0 };

	return vm_ready(&e) == 0 || e.errnum == EPERM;
}

void get_info(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&b);
	const struct api *a = arg;
	const struct service_opts *o = &a->s->o;
	struct who w = api_who(q);
	bool all = w.scope == SCOPE_ADMIN;
	char key[SIGNER_TEXT];

	(void)r;
	jout_object(&j, NULL);
	jout_str(&j, "version", CLOCHE_VERSION);
	jout_u64(&j, "api", 1);
	jout_array(&j, "isolation");
	jout_str(&j, NULL, "container");
	if (has_machines())
		jout_str(&j, NULL, "vm");
	jout_end(&j);
	jout_object(&j, "features");
	jout_bool(&j, "checkpoints", true);
	jout_bool(&j, "network", true);
	jout_bool(&j, "kvm", o->kvm);
	jout_end(&j);
	jout_object(&j, "machines");
	jout_str(&j, "accelerator", o->kvm ? "kvm" : "tcg");
	jout_str(&j, "why", o->accel_why ? o->accel_why : "");
	jout_end(&j);
	jout_object(&j, "noid");
	noid_defaults(a, &j);
	jout_end(&j);
	if (signer_public(a->s->signer, key, NULL) == 0)
		jout_str(&j, "export_key", key);
	else
		jout_null(&j, "export_key");
	jout_object(&j, "limits");
	jout_u64(&j, "cpu_milli", o->cpu_milli);
	jout_u64(&j, "memory", o->memory);
	jout_u64(&j, "disk", o->disk);
	jout_u64(&j, "pids", o->pids);
	jout_u64(&j, "nofile", o->nofile);
	jout_u64(&j, "output_limit", o->output_limit);
	jout_u64(&j, "exec_timeout_ms", o->exec_timeout_ms);
	jout_end(&j);
	jout_object(&j, "counts");
	jout_u64(&j, "sandboxes", all ? a->s->sandboxes.count : w.tenant->used.sandboxes);
	jout_u64(&j, "execs", all ? a->s->running_execs : w.tenant->used.execs);
	jout_end(&j);
	jout_end(&j);
	send_json(q, &b);
}

static void put(struct buf *b, const char *name, const char *type, const char *help, uint64_t value)
{
	buf_addf(b, "# HELP cloche_%s %s\n# TYPE cloche_%s %s\ncloche_%s %llu\n", name, help, name, type, name,
		 (unsigned long long)value);
}

void get_metrics(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
	const struct api *a = arg;
	struct who w = api_who(q);
	struct err e = { 0 };

	(void)r;
	/* The metrics cover all tenants. */
	if (w.scope != SCOPE_ADMIN && strcmp(w.tenant->id, TENANT_DEFAULT)) {
		err_set(&e, ERR_DENIED, -EPERM, "metrics are only for admins and for tenant '%s'", TENANT_DEFAULT);
		http_fail(q, &e);
		return;
	}
	put(&b, "sandboxes", "gauge", "Sandboxes that exist.", a->s->sandboxes.count);
	put(&b, "sandboxes_ready", "gauge", "Sandboxes that are ready in pools.", pools_ready(a->s));
	put(&b, "execs_running", "gauge", "Execs that are running.", a->s->running_execs);
	put(&b, "spool_bytes", "gauge", "Bytes of output kept in files.", a->s->spooled.used);
	put(&b, "requests_total", "counter", "Requests since the start.", a->requests);
	put(&b, "refused_total", "counter", "Requests without a valid token.", a->refused);
	put(&b, "audit_records_total", "counter", "Records in the audit log.", audit_head(a->s->audit)->seq);
	put(&b, "start_time_seconds", "gauge", "Time at which the daemon started.", a->started_ns / 1000000000ULL);
	http_send(q, 200, "text/plain; version=0.0.4", b.data, b.len);
}
