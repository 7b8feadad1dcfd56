/* Objects of the native dialect as JSON: errors, times, sandboxes. */
#include "api/api.h"
#include "base/base.h"
#include "base/clock.h"
#include "tier/tiers.h"

void dto_time(struct json *j, const char *key, uint64_t ns)
{
	char when[32];

	if (ns)
		clock_iso(ns, when);
	jout_str(j, key, ns ? when : NULL);
}

void dto_error(struct json *j, const char *key, const struct err *e, const char *request_id)
{
	jout_object(j, key);
	jout_str(j, "code", err_kind_name(e->kind));
	jout_str(j, "reason", err_reason_name(err_reason(e)));
	jout_str(j, "message", e->msg);
	/* As http_fail(): the kernel's error is useful when the caller did not cause it. */
	jout_str(j, "cause", e->errnum && err_kind_status(e->kind) >= 500 ? strerror(e->errnum) : NULL);
	jout_str(j, "remedy", e->remedy[0] ? e->remedy : NULL);
	jout_str(j, "request_id", request_id);
	jout_end(j);
}

/* Network fields come from the policy, which is not part of the receipt. */
static void put_enforced(void *arg, const char *name, const char *how)
{
	if (strcmp(name, "network"))
		jout_str(arg, name, how);
}

static void put_network(struct json *j, const struct net_request *w)
{
	char text[128];

	if (!net_request_on(w))
		snprintf(text, sizeof(text), "none");
	else if (w->mode == EGRESS_ALLOW)
		snprintf(text, sizeof(text), "allowed by %u rules in cloche-egress, all other streams refused",
			 w->nallow);
	else if (w->mode == EGRESS_OPEN)
		snprintf(text, sizeof(text), "streams to public addresses through cloche-egress, all others refused");
	else
		snprintf(text, sizeof(text),
			 "streams within the outer rules through cloche-egress, observed; all others refused");
	jout_str(j, "network", text);
}

void dto_sandbox(struct json *j, const char *key, const struct sandbox *b)
{
	const struct sandbox_view v = sandbox_view(b);
	char text[48];

	jout_object(j, key);
	jout_str(j, "id", v.id);
	sandbox_request_write(v.request, j);
	jout_str(j, "tenant", v.tenant);
	jout_str(j, "state", sandbox_state_name(v.state));
	jout_str(j, "template", v.request->origin.template[0] ? v.request->origin.template : NULL);
	jout_bool(j, "pooled", v.request->origin.pooled);
	if (v.memory_refused)
		jout_str(j, "memory_refused", v.memory_refused);
	if (v.cut)
		jout_raw(j, "cut", v.cut, strlen(v.cut));
	jout_str(j, "checkpoint", v.request->checkpoint[0] ? v.request->checkpoint : NULL);
	if (v.restored)
		jout_raw(j, "restored", v.restored, strlen(v.restored));
	else
		jout_null(j, "restored");
	dto_time(j, "created_at", v.created_ns);
	dto_time(j, "expires_at", v.expires_ns);
	dto_time(j, "last_used_at", v.used_ns);
	jout_object(j, "enforced");
	sandbox_view_enforced(b, put_enforced, j);
	if (tier_of(v.request->spec->flags)->bare) {
		jout_end(j);
		jout_end(j);
		return;
	}
	put_network(j, v.request->net);
	snprintf(text, sizeof(text), "%llu per process", (unsigned long long)v.request->nofile);
	jout_str(j, "nofile", v.request->nofile ? text : "not limited");
	jout_end(j);
	jout_end(j);
}
