/* The options of `cloche run` about the network. */
#include "cli/network.h"
#include "base/base.h"
#include "proto/net_rule.h"

int network_want_mode(struct network_want *w, const char *text, struct err *e)
{
	static const struct {
		const char *name;
		uint8_t mode;
	} modes[] = { { "none", EGRESS_NONE },
		      { "allow", EGRESS_ALLOW },
		      { "open", EGRESS_OPEN },
		      { "observe", EGRESS_OBSERVE } };

	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		if (strcmp(modes[i].name, text) != 0)
			continue;
		w->given = true;
		w->mode = modes[i].mode;
		return 0;
	}
	return err_set(e, ERR_INVALID, -EINVAL, "'%.40s': must be none, allow, open or observe", text);
}

static int full(struct err *e)
{
	return err_set(e, ERR_INVALID, -E2BIG, "at most %d of them", NETWORK_LIST);
}

int network_want_rule(struct network_want *w, const char *text, struct err *e)
{
	struct net_rule r;
	int rc;

	if (*text == '@') {
		err_set(e, ERR_INVALID, -EINVAL, "'%.40s': sets are only available in a daemon's configuration", text);
		err_remedy(e, "write each entry of the set as its own --allow");
		return -EINVAL;
	}
	rc = net_rule_parse(text, &r, e);
	if (rc == 0 && r.options & NET_RULE_TERMINATE) {
		rc = err_set(e, ERR_INVALID, -EINVAL, "'%.60s': `cloche run` does not terminate TLS", text);
		err_remedy(e, "use a daemon: `cloche create --allow %.60s`", text);
	}
	if (rc == 0 && r.kind == NET_RULE_NAME && !strcmp(r.name, "localhost")) {
		rc = err_set(e, ERR_INVALID, -EINVAL, "'%.60s': inside, localhost is the sandbox itself", text);
		err_remedy(e, "for a server of this host give it a name: --host NAME=127.0.0.1 --allow NAME:PORT "
			      "--allow-private 127.0.0.1:PORT");
	}
	if (rc == 0 && w->rules == NETWORK_LIST)
		rc = full(e);
	if (rc == 0)
		w->rule[w->rules++] = text;
	return rc;
}

int network_want_private(struct network_want *w, const char *text, struct err *e)
{
	struct net_rule r;
	int rc = net_rule_parse(text, &r, e);

	if (rc == 0 && r.kind != NET_RULE_ADDR) {
		rc = err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be an address", text);
		err_remedy(e, "give the address here, and allow the name with --allow");
	}
	if (rc == 0 && w->privates == NETWORK_LIST)
		rc = full(e);
	if (rc == 0)
		w->private[w->privates++] = text;
	return rc;
}

int network_want_host(struct network_want *w, const char *text, struct err *e)
{
	const char *eq = strchr(text, '=');
	char name[NET_NAME_MAX], address[64];
	struct net_addr a;

	if (!eq || net_name_parse(text, (size_t)(eq - text), name) < 0 || net_addr_parse(eq + 1, &a) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': must be NAME=ADDRESS", text);
	if (w->hosts == NETWORK_LIST)
		return full(e);
	net_addr_text(&a, address);
	if (asprintf(&w->host[w->hosts], "%s %s", name, address) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	w->hosts++;
	return 0;
}

static_assert(STEER_ALLOW == (int)EGRESS_ALLOW && STEER_OPEN == (int)EGRESS_OPEN &&
		      STEER_OBSERVE == (int)EGRESS_OBSERVE,
	      "one number for both");

/* False: it does not fit. */
static bool steer_add(const char *text, struct steer_rules *to)
{
	struct net_rule r;

	if (net_rule_parse(text, &r, NULL) < 0 || r.kind != NET_RULE_ADDR)
		return true;
	for (unsigned i = 0; i < (r.nports ? r.nports : 1U); i++) {
		struct steer_rule *a = &to->rule[to->n];

		if (to->n == STEER_RULES)
			return false;
		to->n++;
		a->family = r.family;
		a->prefix = r.prefix;
		a->first = r.nports ? r.port[i].first : 1;
		a->last = r.nports ? r.port[i].last : UINT16_MAX;
		memcpy(a->addr, r.addr, r.family == 4 ? 4 : 16);
	}
	return true;
}

int network_want_finish(struct network_want *w, struct sandbox_spec *spec, struct err *e)
{
	bool fits = true;

	if (!w->given && w->rules)
		w->mode = EGRESS_ALLOW;
	if (w->rules && w->mode != EGRESS_ALLOW) {
		err_set(e, ERR_INVALID, -EINVAL, "--allow needs --network allow, but --network has another mode");
		err_remedy(e, "leave one of them out");
		return -EINVAL;
	}
	if (w->mode == EGRESS_NONE) {
		if (w->privates || w->hosts || w->resolver)
			return err_set(e, ERR_INVALID, -EINVAL,
				       "--allow-private, --host and --resolver need --network open or --allow");
		return 0;
	}
	if (w->resolver && !net_server_ok(w->resolver)) {
		err_set(e, ERR_INVALID, -EINVAL, "--resolver '%.60s' is not an address", w->resolver);
		err_remedy(e, "write it as 192.0.2.1, 192.0.2.1:5353 or [2001:db8::1]:5353");
		return -EINVAL;
	}
	spec->flags |= SPEC_NET;
	spec->net.mode = w->mode;
	for (uint32_t i = 0; fits && w->mode == EGRESS_ALLOW && i < w->rules; i++)
		fits = steer_add(w->rule[i], &spec->net);
	if (!fits) /* then egress alone says no */
		spec->net = (struct steer_rules){ .mode = STEER_OPEN };
	return 0;
}

void network_want_done(struct network_want *w)
{
	while (w->hosts)
		free(w->host[--w->hosts]);
}
