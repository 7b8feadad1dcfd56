#include "api/api.h"
#include "base/base.h"
#include "base/clock.h"
#include "driver/driver.h"

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
	jout_str(j, "message", e->msg);
	/* As http_fail(): what the kernel said is of use where it was not the caller's doing. */
	jout_str(j, "cause", e->errnum && err_kind_status(e->kind) >= 500 ? strerror(e->errnum) : NULL);
	jout_str(j, "remedy", e->remedy[0] ? e->remedy : NULL);
	jout_str(j, "request_id", request_id);
	jout_end(j);
}

/* The network is the policy's, which is not part of what a driver knows. */
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
	struct tier_sandbox as = { .driver = b->request->spec->flags & SPEC_VM ? &vm_driver : &container_driver,
				   .receipt = b->receipt };
	struct sandbox_spec spec;
	char text[48];

	request_spec(b->request, &spec);
	jout_object(j, key);
	jout_str(j, "id", b->id);
	sandbox_request_write(b->request, j);
	jout_str(j, "tenant", b->tenant->id);
	jout_str(j, "state", sandbox_state_name(b->state));
	jout_str(j, "template", b->request->origin.template[0] ? b->request->origin.template : NULL);
	jout_bool(j, "pooled", b->request->origin.pooled);
	if (b->memory_refused)
		jout_str(j, "memory_refused", b->memory_refused);
	if (b->cut)
		jout_raw(j, "cut", b->cut, strlen(b->cut));
	jout_str(j, "checkpoint", b->request->checkpoint[0] ? b->request->checkpoint : NULL);
	if (b->restored)
		jout_raw(j, "restored", b->restored, strlen(b->restored));
	else
		jout_null(j, "restored");
	dto_time(j, "created_at", b->created_ns);
	dto_time(j, "expires_at", b->expires_ns);
	dto_time(j, "last_used_at", b->used_ns);
	jout_object(j, "enforced");
	sandbox_enforced(&as, &spec, put_enforced, j);
	put_network(j, b->request->net);
	snprintf(text, sizeof(text), "%llu per process", (unsigned long long)b->request->nofile);
	jout_str(j, "nofile", b->request->nofile ? text : "not limited");
	jout_end(j);
	jout_end(j);
}
