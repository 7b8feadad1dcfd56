/* Calls about the daemon: health, version, info, metrics. */
#include "api/native/native.h"
#include "api/noid/noid.h"
#include "base/base.h"
#include "base/clock.h"
#include "config.h"
#include "tier/tiers.h"
#include "service/template/pool.h"
#include "service/checkpoint/signer.h"

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
	const struct token *k = token_find(((struct api *)arg)->access, w.token);

	(void)r;
	jout_object(&j, NULL);
	jout_str(&j, "tenant", tenant_id(w.tenant));
	jout_str(&j, "scope", scope_name(w.scope));
	jout_object(&j, "token");
	jout_str(&j, "id", w.token);
	jout_str(&j, "name", k ? token_view(k).name : "local");
	jout_end(&j);
	jout_str(&j, "user_id", tenant_id(w.tenant));
	jout_str(&j, "name", tenant_id(w.tenant));
	jout_end(&j);
	send_json(q, &b);
}

void get_info(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&b);
	const struct api *a = arg;
	const struct service_opts *o = service_opts(a->s);
	const struct service_counts counts = service_counts(a->s);
	struct who w = api_who(q);
	bool all = w.scope == SCOPE_ADMIN;
	char key[SIGNER_TEXT];

	(void)r;
	jout_object(&j, NULL);
	jout_str(&j, "version", CLOCHE_VERSION);
	jout_u64(&j, "api", 1);
	jout_array(&j, "isolation");
	for (const struct tier_ops *const *t = tiers; *t; t++)
		if (tier_ready(*t))
			jout_str(&j, NULL, (*t)->name);
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
	if (signer_public(service_signer(a->s), key, NULL) == 0)
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
	jout_u64(&j, "sandboxes", all ? counts.sandboxes : tenant_view(w.tenant).used.sandboxes);
	jout_u64(&j, "execs", all ? counts.execs : tenant_view(w.tenant).used.execs);
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
	const struct service_counts counts = service_counts(a->s);
	struct who w = api_who(q);
	struct err e = { 0 };

	(void)r;
	/* Metrics cover all tenants, so only admins may see them. */
	if (w.scope != SCOPE_ADMIN && strcmp(tenant_id(w.tenant), TENANT_DEFAULT)) {
		err_set(&e, WHY_ADMIN_ONLY, -EPERM, "metrics are only for admins and for tenant '%s'", TENANT_DEFAULT);
		http_fail(q, &e);
		return;
	}
	put(&b, "sandboxes", "gauge", "Sandboxes that exist.", counts.sandboxes);
	put(&b, "sandboxes_ready", "gauge", "Sandboxes that are ready in pools.", pools_ready(a->s));
	put(&b, "execs_running", "gauge", "Execs that are running.", counts.execs);
	put(&b, "spool_bytes", "gauge", "Bytes of output kept in files.", counts.spooled);
	put(&b, "requests_total", "counter", "Requests since the start.", a->requests);
	put(&b, "refused_total", "counter", "Requests without a valid token.", a->refused);
	put(&b, "audit_records_total", "counter", "Records in the audit log.", audit_head(a->audit)->seq);
	put(&b, "start_time_seconds", "gauge", "Time at which the daemon started.", a->started_ns / 1000000000ULL);
	http_send(q, 200, "text/plain; version=0.0.4", b.data, b.len);
}
