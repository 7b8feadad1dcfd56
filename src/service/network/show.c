/* The answer of GET …/network. */
#include "base/base.h"
#include "base/clock.h"
#include "service/network/internal.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"

static void write_time(struct json *j, const char *key, uint64_t ns)
{
	char when[32];

	clock_iso(ns, when);
	jout_str(j, key, when);
}

/* One line that would let it through, as far as anything could. */
static void write_fix(const struct sandbox *b, const struct net_lets *lets, const struct net_refusal *r, struct json *j)
{
	const struct net_request *w = b->request->net;
	char text[NET_RULE_TEXT + 96];

	if (r->verdict == EGRESS_V_BUDGET && b->net->budget_ns > r->at_ns)
		snprintf(text, sizeof(text), "done: the budget was changed since");
	else if (r->verdict == EGRESS_V_BUDGET)
		snprintf(text, sizeof(text), "raise the budget: PUT …/network with a larger `budget`");
	else if (r->verdict == EGRESS_V_FAILED)
		snprintf(text, sizeof(text), "none: it is allowed, but unreachable");
	else if (!*r->rule && r->private)
		snprintf(text, sizeof(text), "an administrator can allow it with `network_private`");
	else if (!*r->rule && strstr(r->reason, "(ECH)"))
		snprintf(text, sizeof(text),
			 "make the program send no ECH, or add +terminate to the host's rule (or +ech, which lets it "
			 "hide names)");
	else if (!*r->rule)
		snprintf(text, sizeof(text), "no rule: the program must send it differently, see the reason");
	else if (net_lets(lets, r->target, r->port))
		snprintf(text, sizeof(text), "done: the policy allows it since");
	else if (w && w->mode == EGRESS_OBSERVE)
		snprintf(text, sizeof(text), "an administrator can add \"%s\" to `network_outer`", r->rule);
	else if (w && w->mode == EGRESS_ALLOW)
		snprintf(text, sizeof(text), "add \"%s\" to `allow`", r->rule);
	else
		snprintf(text, sizeof(text), "PUT …/network {\"allow\": [\"%s\"]}", r->rule);
	jout_str(j, "fix", text);
}

/* The newest first: one that was refused again is, and the kernel's are heard of late. */
static uint32_t by_time(const struct net_state *st, const struct net_refusal *ret[NET_REFUSALS])
{
	uint32_t n = !st ? 0 : st->nrefusals < NET_REFUSALS ? st->nrefusals : NET_REFUSALS;

	for (uint32_t i = 0; i < n; i++) {
		const struct net_refusal *r = &st->refusal[(st->nrefusals - 1 - i) % NET_REFUSALS];
		uint32_t at = i;

		for (; at && ret[at - 1]->at_ns < r->at_ns; at--)
			ret[at] = ret[at - 1];
		ret[at] = r;
	}
	return n;
}

static void write_refusals(const struct sandbox *b, struct json *j)
{
	const struct net_refusal *all[NET_REFUSALS];
	uint32_t n = by_time(b->net, all);
	struct net_lets *lets = net_lets_new(b->service->o.net, b->request->net);

	jout_array(j, "refusals");
	for (uint32_t i = 0; i < n; i++) {
		const struct net_refusal *r = all[i];

		jout_object(j, NULL);
		write_time(j, "time", r->at_ns);
		write_time(j, "first", r->first_ns);
		jout_u64(j, "times", r->times);
		jout_str(j, "to", r->target);
		if (r->port)
			jout_u64(j, "port", r->port);
		else
			jout_null(j, "port");
		jout_str(j, "what", !r->port ? "lookup" : r->verdict == EGRESS_V_FAILED ? "unreachable" : "stream");
		if (r->pid)
			jout_u64(j, "pid", r->pid);
		else
			jout_null(j, "pid");
		jout_str(j, "command", *r->command ? r->command : NULL);
		if (r->pid && tier_is_machine(b->request->spec->flags))
			jout_bool(j, "claimed", true); /* the machine says so */
		jout_str(j, "reason", r->reason);
		jout_str(j, "rule", *r->rule ? r->rule : NULL);
		write_fix(b, lets, r, j);
		jout_end(j);
	}
	jout_end(j);
	free(lets);
}

static const char *state_of(const struct sandbox *b)
{
	if (!net_request_on(b->request->net))
		return "off";
	if (b->state == SANDBOX_HIBERNATED)
		return "hibernated";
	return b->run && b->run->in_force ? "in force" : "closed";
}

void sandbox_net_write(const struct sandbox *b, bool why, struct json *j)
{
	static const struct egress_counts none;
	const struct net_state *st = b->net;

	jout_object(j, NULL);
	net_request_write(b->request->net, "policy", j);
	jout_str(j, "state", state_of(b));
	if (b->run && b->run->less)
		jout_str(j, "less", "the daemon's configuration allows less than this policy requests");
	net_counts_write(st ? &st->counts : &none, "counts", j);
	net_counts_write(st ? &st->tree->counts : &none, "tree_counts", j);
	if (b->request->net && b->request->net->mode == EGRESS_OBSERVE) {
		jout_object(j, "observed");
		if (st) {
			net_state_observed_write(st, "allow", j);
		} else {
			jout_array(j, "allow");
			jout_end(j);
		}
		jout_bool(j, "complete", !st || !st->observed_all);
		jout_end(j);
	}
	if (why)
		write_refusals(b, j);
	jout_end(j);
}

/* A rule for an address that the kernel did not let through, or "" when it is none of the public internet. */
static void kernel_rule(const struct sandbox *b, const struct net_addr *a, uint16_t port, char *rule, size_t size,
			const char **reason)
{
	struct net_rule r = {
		.kind = NET_RULE_ADDR, .family = a->family, .prefix = a->family == 4 ? 32 : 128, .nports = 1
	};
	const char *what = NULL;
	char text[64];

	r.port[0].first = r.port[0].last = port;
	memcpy(r.addr, a->addr, sizeof(r.addr));
	net_addr_text(a, text);
	*rule = '\0';
	if (!net_addr_public(a, &what) && !net_conf_private(b->service->o.net, &r)) {
		*reason = what;
		return;
	}
	*reason = "no rule for this address";
	snprintf(rule, size, a->family == 4 ? "%s:%u" : "[%s]:%u", text, port);
}

static void on_denied(void *arg, int r, const struct warden_link_answer *w, const struct err *e)
{
	struct sandbox_op *op = arg;
	const uint64_t now = clock_real_ns();
	struct sandbox *b = op->sandbox;

	(void)e;
	for (uint64_t i = 0; r == 0 && b->net && b->handle == op->handle && i < w->rep->arg && i < STEER_DENIED; i++) {
		const struct steer_denied *d = &w->rep->denied[i];
		struct net_addr a = { .family = d->family };
		char rule[96];
		struct egress_stream x = { .verdict = EGRESS_V_DENIED,
					   .family = d->family,
					   .port = d->port,
					   .name = "",
					   .rule = rule,
					   .command = "",
					   .secrets = "" };

		memcpy(a.addr, d->addr, sizeof(a.addr));
		memcpy(x.addr, d->addr, sizeof(x.addr));
		x.times = d->count > UINT32_MAX ? UINT32_MAX : (uint32_t)d->count;
		kernel_rule(b, &a, d->port, rule, sizeof(rule), &x.reason);
		net_state_refuse(b->net, &x, now - d->ago_ms * 1000000ULL);
	}
	/* If the kernel's counters are missing, the rest is still shown. */
	sandbox_tell(b->service, op, 0, NULL);
}

#define TELL_MS 100 /* a dead or busy egress does not delay the answer for longer */

struct look {
	struct sandbox_op *op;
	struct net_flush flush;
	uv_timer_t timer;
	bool why;
};

static void look_free(uv_handle_t *h)
{
	free(h->data);
}

static void look_on(struct sandbox_op *op, bool why)
{
	struct sandbox *b = op->sandbox;

	op->handle = b->handle;
	if (why && b->run && b->handle && b->net)
		warden_link_call(b->service->warden, WARDEN_DENIED, b->handle, 0, NULL, on_denied, op);
	else
		sandbox_tell(b->service, op, 0, NULL);
}

static void on_told(void *arg)
{
	struct look *l = arg;

	uv_close((uv_handle_t *)&l->timer, look_free);
	look_on(l->op, l->why);
}

static void on_late(uv_timer_t *t)
{
	struct look *l = t->data;

	net_flush_cancel(&l->flush);
	on_told(l);
}

void sandbox_net_look(struct sandbox *b, bool why, sandbox_done_fn *fn, void *arg)
{
	const struct who nobody = { .tenant = b->tenant };
	struct sandbox_op *op = sandbox_op_new(b, &nobody, fn, arg);
	struct look *l = malloc(sizeof(*l));

	if (!l)
		abort();
	*l = (struct look){ .op = op, .flush = { .fn = on_told, .arg = l }, .why = why };
	uv_timer_init(b->service->loop, &l->timer);
	l->timer.data = l;
	if (sandbox_net_flushed(b, &l->flush))
		on_told(l);
	else
		uv_timer_start(&l->timer, on_late, TELL_MS, 0);
}

void sandbox_net_write_stat(const struct sandbox *b, struct json *j)
{
	static const struct egress_counts none;

	jout_u64(j, "net_bytes", sandbox_net_bytes(b));
	net_counts_write(b->net ? &b->net->counts : &none, "network", j);
}
