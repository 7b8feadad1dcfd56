/* Parses the network of a request. */
#include "service/network/request.h"
#include "base/base.h"
#include "service/state/json_read.h"

static const char *const modes[] = {
	[EGRESS_NONE] = "none", [EGRESS_ALLOW] = "allow", [EGRESS_OPEN] = "open", [EGRESS_OBSERVE] = "observe"
};

const char *net_mode_name(uint8_t mode)
{
	return mode < ARRAY_LEN(modes) ? modes[mode] : "none";
}

static int no_memory(struct err *e)
{
	return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a network");
}

/* --- reading --- */

static int read_mode(const char *text, uint8_t *ret, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		if (!strcmp(modes[i], text)) {
			*ret = (uint8_t)i;
			return 0;
		}
	err_set(e, ERR_INVALID, -EINVAL, "network: unknown mode '%.40s'", text);
	err_remedy(e, "use none, allow, open or observe");
	return -EINVAL;
}

static int add_allow(struct net_request *w, const char *text, struct err *e)
{
	char whole[NET_RULE_TEXT];
	struct net_rule r;
	int n;

	if (*text == '@') {
		if (strlen(text) < 2 || strlen(text) > NET_SET_NAME)
			return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.60s': invalid name of a set", text);
		snprintf(whole, sizeof(whole), "%s", text);
	} else {
		n = net_rule_parse(text, &r, e);
		if (n < 0)
			return n;
		net_rule_text(&r, whole);
	}
	for (uint32_t i = 0; i < w->nallow; i++)
		if (!strcmp(w->allow[i], whole))
			return 0;
	w->allow[w->nallow] = strdup(whole);
	return w->allow[w->nallow] ? (int)(w->nallow++ & 0) : no_memory(e);
}

static int read_allow(const json_t *list, struct net_request *w, struct err *e)
{
	int r = 0;

	w->allow = calloc(json_array_size(list) + 1, sizeof(*w->allow));
	if (!w->allow)
		return no_memory(e);
	for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
		const char *text = json_string_value(json_array_get(list, i));

		r = text ? add_allow(w, text, e) : err_set(e, ERR_INVALID, -EINVAL, "must be strings");
	}
	return r < 0 ? err_wrap(e, r, "network: allow") : 0;
}

static int read_budget(const json_t *o, const char *what, struct egress_budget *b, struct err *e)
{
	struct json_read j = JIN_INIT(o, e);
	uint64_t concurrent = 0, requests = 0;

	if (!o)
		return 0;
	json_read_size(&j, "bytes_out", &b->bytes_out);
	json_read_size(&j, "bytes_in", &b->bytes_in);
	json_read_u64(&j, "connections", &b->connections, 0, INT64_MAX);
	json_read_u64(&j, "concurrent", &concurrent, 0, UINT32_MAX);
	json_read_size(&j, "bandwidth", &b->bandwidth);
	json_read_u64(&j, "dns", &b->dns, 0, INT64_MAX);
	json_read_u64(&j, "requests_per_minute", &requests, 0, UINT32_MAX);
	b->concurrent = (uint32_t)concurrent;
	b->requests = (uint32_t)requests;
	return json_read_end(&j) < 0 ? err_wrap(e, j.r < 0 ? j.r : -EINVAL, "network: %s", what) : 0;
}

static int read_object(const json_t *v, struct net_request *w, struct err *e)
{
	struct json_read j = JIN_INIT(v, e);
	const char *mode = NULL;
	const json_t *allow, *budget, *tree;
	int r;

	json_read_str(&j, "mode", &mode, 32);
	allow = json_read_array(&j, "allow", EGRESS_RULES_MAX);
	budget = json_read_object(&j, "budget");
	tree = json_read_object(&j, "tree_budget");
	if (json_read_end(&j) < 0)
		return err_wrap(e, -EINVAL, "network");
	if (!mode && !allow)
		return err_set(e, ERR_INVALID, -EINVAL, "network: `mode` or `allow` is required");
	w->mode = EGRESS_ALLOW;
	r = mode ? read_mode(mode, &w->mode, e) : 0;
	if (r == 0 && allow && json_array_size(allow) && w->mode != EGRESS_ALLOW) {
		r = err_set(e, ERR_INVALID, -EINVAL, "network: mode '%s' cannot have a list of allowed hosts", mode);
		err_remedy(e, "leave `allow` out, or use mode allow");
	}
	if (r == 0 && allow)
		r = read_allow(allow, w, e);
	if (r == 0)
		r = read_budget(budget, "budget", &w->budget, e);
	if (r == 0)
		r = read_budget(tree, "tree_budget", &w->tree_budget, e);
	return r;
}

static bool budget_same(const struct egress_budget *a, const struct egress_budget *b)
{
	return a->bytes_out == b->bytes_out && a->bytes_in == b->bytes_in && a->connections == b->connections &&
	       a->bandwidth == b->bandwidth && a->dns == b->dns && a->concurrent == b->concurrent &&
	       a->requests == b->requests;
}

static bool has_budget(const struct egress_budget *b)
{
	static const struct egress_budget none;

	return !budget_same(b, &none);
}

int net_request_parse(const json_t *v, struct net_request **ret, struct err *e)
{
	AUTO(net_request_free) struct net_request *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return no_memory(e);
	if (!v || json_is_null(v))
		r = 0;
	else if (json_is_string(v) && !strcmp(json_string_value(v), "allow"))
		r = err_set(e, ERR_INVALID, -EINVAL, "network: list the allowed hosts: {\"allow\": [\"name\", …]}");
	else if (json_is_string(v))
		r = read_mode(json_string_value(v), &w->mode, e);
	else if (json_is_object(v))
		r = read_object(v, w, e);
	else
		r = err_set(e, ERR_INVALID, -EINVAL, "network must be a mode, or an object with `mode` or `allow`");
	if (r < 0)
		return r;
	*ret = w->mode == EGRESS_NONE && !has_budget(&w->budget) && !has_budget(&w->tree_budget) ? NULL : TAKE_PTR(w);
	return 0;
}

bool net_request_terminates(const struct net_request *w)
{
	for (uint32_t i = 0; w && w->mode == EGRESS_ALLOW && i < w->nallow; i++) {
		struct net_rule r;

		if (net_rule_parse(w->allow[i], &r, NULL) == 0 && r.options & NET_RULE_TERMINATE)
			return true;
	}
	return false;
}

/* --- what the administrator lets be --- */

/* Of a prefix so short that it has public addresses too, each address is judged when it is connected to. */
static bool is_private(const struct net_rule *r, const char **ret_what)
{
	struct net_addr a = { .family = r->family };

	memcpy(a.addr, r->addr, sizeof(a.addr));
	return r->kind == NET_RULE_ADDR && r->prefix >= 8 && !net_addr_public(&a, ret_what);
}

static int check_rule(const struct net_conf *c, const char *text, struct err *e)
{
	const char *what = "a private address";
	struct net_rule r;
	int n = net_rule_parse(text, &r, e);

	if (n == 0 && r.kind == NET_RULE_NAME && !strcmp(r.name, "localhost")) {
		err_set(e, ERR_INVALID, -EINVAL, "network: '%.80s': inside, localhost is the sandbox itself", text);
		err_remedy(e, "leave the rule out; docs/network.md says how to reach a server of the daemon's host");
		return -EINVAL;
	}
	if (n < 0 || !is_private(&r, &what) || net_conf_private(c, &r))
		return n;
	err_set(e, WHY_HOST_FORBIDS, -EPERM, "network: '%.80s' is %s, which no sandbox may reach", text, what);
	err_remedy(e, "an administrator can allow it with `network_private` in the daemon's configuration");
	return -EPERM;
}

static int check_sizes(const struct net_conf *c, const struct net_request *w, struct err *e)
{
	const char *set[EGRESS_RULES_MAX];
	uint32_t rules = 0;

	for (uint32_t i = 0; i < w->nallow; i++) {
		int n = w->allow[i][0] == '@' ? net_conf_set(c, w->allow[i] + 1, set) : 1;

		rules += n > 0 ? (uint32_t)n : 0;
	}
	if (rules > EGRESS_RULES_MAX)
		return err_set(e, ERR_INVALID, -E2BIG, "network: allow: %u rules with all sets, at most %u", rules,
			       EGRESS_RULES_MAX);
	return 0;
}

int net_request_check(const struct net_conf *c, const struct net_request *w, struct err *e)
{
	const char *set[EGRESS_RULES_MAX];
	int r = 0;

	if (!w)
		return 0;
	if (c->closed && (w->mode == EGRESS_OPEN || w->mode == EGRESS_OBSERVE) &&
	    !(w->mode == EGRESS_OBSERVE && net_conf_list(c, NET_CONF_OUTER, set))) {
		err_set(e, WHY_HOST_FORBIDS, -EPERM, "network: mode '%s' is not allowed on this host",
			net_mode_name(w->mode));
		err_remedy(e, "list the allowed hosts: {\"allow\": [\"name\", …]}; or an administrator sets "
			      "`network_open = yes`");
		return -EPERM;
	}
	for (uint32_t i = 0; r == 0 && i < w->nallow; i++) {
		if (w->allow[i][0] != '@') {
			r = check_rule(c, w->allow[i], e);
		} else if (net_conf_set(c, w->allow[i] + 1, set) < 0) {
			r = err_set(e, WHY_NETWORK_SET_MISSING, -ENOENT, "network: unknown set '%.40s'", w->allow[i]);
			err_remedy(e, "sets are `network_set` lines of the daemon's configuration");
		}
	}
	return r < 0 ? r : check_sizes(c, w, e);
}

/* --- writing --- */

static void write_budget(const struct egress_budget *b, const char *key, struct json *j)
{
	const struct {
		const char *name;
		uint64_t value;
	} all[] = { { "bytes_out", b->bytes_out },	   { "bytes_in", b->bytes_in },
		    { "connections", b->connections },	   { "concurrent", b->concurrent },
		    { "bandwidth", b->bandwidth },	   { "dns", b->dns },
		    { "requests_per_minute", b->requests } };

	if (!has_budget(b))
		return;
	jout_object(j, key);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i].value)
			jout_u64(j, all[i].name, all[i].value);
	jout_end(j);
}

void net_request_write(const struct net_request *w, const char *key, struct json *j)
{
	jout_object(j, key);
	jout_str(j, "mode", net_mode_name(w ? w->mode : EGRESS_NONE));
	if (w && w->mode == EGRESS_ALLOW) {
		jout_array(j, "allow");
		for (uint32_t i = 0; i < w->nallow; i++)
			jout_str(j, NULL, w->allow[i]);
		jout_end(j);
	}
	if (w) {
		write_budget(&w->budget, "budget", j);
		write_budget(&w->tree_budget, "tree_budget", j);
	}
	jout_end(j);
}

bool net_request_same(const struct net_request *a, const struct net_request *b)
{
	bool same;

	if (!a || !b)
		return a == b;
	same = a->mode == b->mode && a->nallow == b->nallow && budget_same(&a->budget, &b->budget) &&
	       budget_same(&a->tree_budget, &b->tree_budget);
	for (uint32_t i = 0; same && i < a->nallow; i++)
		same = !strcmp(a->allow[i], b->allow[i]);
	return same;
}

struct net_request *net_request_copy(const struct net_request *w)
{
	struct net_request *to;

	if (!w)
		return NULL;
	to = malloc(sizeof(*to));
	if (!to)
		abort();
	*to = *w;
	to->allow = calloc(w->nallow + 1, sizeof(*to->allow));
	if (!to->allow)
		abort();
	for (uint32_t i = 0; i < w->nallow; i++)
		if (!(to->allow[i] = strdup(w->allow[i])))
			abort();
	return to;
}

void net_request_free(struct net_request *w)
{
	if (!w)
		return;
	for (uint32_t i = 0; i < w->nallow; i++)
		free(w->allow[i]);
	free(w->allow);
	free(w);
}

/* --- what becomes of it --- */

static bool add_rules(const char **from, int n, struct egress_sandbox *to)
{
	for (int i = 0; i < n; i++) {
		if (to->rules == EGRESS_RULES_MAX)
			return false;
		to->rule[to->rules++] = from[i];
	}
	return true;
}

bool net_request_policy(const struct net_conf *c, const struct net_request *w, struct egress_sandbox *to)
{
	const char *set[EGRESS_RULES_MAX];
	bool whole = true;

	to->mode = EGRESS_NONE;
	to->rules = to->privates = 0;
	to->budget = to->tree_budget = (struct egress_budget){ 0 };
	if (!w)
		return true;
	to->budget = w->budget;
	to->tree_budget = w->tree_budget;
	to->privates = net_conf_list(c, NET_CONF_PRIVATE, to->private);
	if (c->closed &&
	    (w->mode == EGRESS_OPEN || (w->mode == EGRESS_OBSERVE && !net_conf_list(c, NET_CONF_OUTER, set))))
		return false;
	to->mode = w->mode;
	for (uint32_t i = 0; i < w->nallow; i++) {
		const char *one = w->allow[i];

		if (*one != '@') {
			whole = check_rule(c, one, NULL) == 0 && add_rules(&one, 1, to) && whole;
		} else {
			int n = net_conf_set(c, one + 1, set);

			whole = n >= 0 && add_rules(set, n, to) && whole;
		}
	}
	return whole;
}

static_assert(STEER_NONE == (int)EGRESS_NONE && STEER_ALLOW == (int)EGRESS_ALLOW && STEER_OPEN == (int)EGRESS_OPEN &&
		      STEER_OBSERVE == (int)EGRESS_OBSERVE,
	      "one number for both");

/* False: it does not fit. */
static bool add_entries(const char *text, struct steer_rules *to)
{
	struct net_rule r;

	if (net_rule_parse(text, &r, NULL) < 0 || r.kind != NET_RULE_ADDR)
		return true;
	for (unsigned i = 0; i < (r.nports ? r.nports : 1U); i++) {
		struct steer_rule *a = &to->rule[to->n];

		if (to->n++ == STEER_RULES)
			return false;
		a->family = r.family;
		a->prefix = r.prefix;
		a->first = r.nports ? r.port[i].first : 1;
		a->last = r.nports ? r.port[i].last : UINT16_MAX;
		memcpy(a->addr, r.addr, r.family == 4 ? 4 : 16);
	}
	return true;
}

void net_request_steer(const struct net_conf *c, const struct net_request *w, struct steer_rules *to)
{
	struct egress_sandbox *policy = calloc(1, sizeof(*policy));
	bool fits = true;

	if (!policy)
		abort(); /* some kilobytes */
	memset(to, 0, sizeof(*to));
	net_request_policy(c, w, policy);
	to->mode = policy->mode;
	for (uint32_t i = 0; fits && policy->mode == EGRESS_ALLOW && i < policy->rules; i++)
		fits = add_entries(policy->rule[i], to);
	if (!fits) { /* then egress alone says no */
		memset(to, 0, sizeof(*to));
		to->mode = STEER_OPEN;
	}
	free(policy);
}

struct net_lets *net_lets_new(const struct net_conf *c, const struct net_request *w)
{
	struct egress_sandbox *policy = calloc(1, sizeof(*policy));
	struct net_lets *l = calloc(1, sizeof(*l));
	const char **rules, *outer[EGRESS_RULES_MAX];
	uint32_t n;

	if (!policy || !l)
		abort();
	net_request_policy(c, w, policy);
	rules = policy->rule;
	n = policy->rules;
	l->all = policy->mode == EGRESS_OPEN;
	if (policy->mode == EGRESS_OBSERVE) {
		n = net_conf_list(c, NET_CONF_OUTER, outer);
		rules = outer;
		l->all = !n;
	}
	for (uint32_t i = 0; i < n; i++)
		if (net_rule_parse(rules[i], &l->rule[l->n], NULL) == 0)
			l->n++;
	free(policy);
	return l;
}

bool net_lets(const struct net_lets *l, const char *target, uint16_t port)
{
	struct net_addr a = { 0 };
	bool addr = net_addr_parse(target, &a) == 0, lets = l->all;

	for (uint32_t i = 0; !lets && i < l->n; i++) {
		const struct net_rule *r = &l->rule[i];
		uint16_t at = port ? port : r->nports ? r->port[0].first : 1;

		lets = addr ? net_rule_has_addr(r, &a, at) : net_rule_has_name(r, target, at);
	}
	return lets;
}

bool net_request_lets(const struct net_conf *c, const struct net_request *w, const char *name, uint16_t port)
{
	struct net_lets *l = net_lets_new(c, w);
	bool lets = net_lets(l, name, port);

	free(l);
	return lets;
}
