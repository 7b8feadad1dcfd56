/* Parses the administrator's settings of networks. */
#include "service/network/conf.h"
#include "base/base.h"

/* --- text --- */

static int keep(struct net_conf *c, enum net_conf_kind kind, unsigned set, const char *text, struct err *e)
{
	size_t n = strlen(text) + 1;
	unsigned same = 0;

	for (unsigned i = 0; i < c->nitems; i++)
		if (c->item[i].kind == kind && (kind != NET_CONF_SET || c->item[i].set == set)) {
			if (!strcmp(c->text + c->item[i].at, text))
				return 0;
			same++;
		}
	if (same == EGRESS_RULES_MAX)
		return err_set(e, ERR_INVALID, -E2BIG, "at most %u", EGRESS_RULES_MAX);
	if (c->nitems == NET_CONF_ITEMS || c->used + n > sizeof(c->text))
		return err_set(e, ERR_INVALID, -E2BIG, "the network settings are too large");
	c->item[c->nitems].kind = (uint8_t)kind;
	c->item[c->nitems].set = (uint8_t)set;
	c->item[c->nitems++].at = (uint16_t)c->used;
	memcpy(c->text + c->used, text, n);
	c->used += n;
	return 0;
}

/* The next word of @text between @stops, cut out and trimmed. NULL at the end. */
static char *word(char **text, const char *stops)
{
	char *at = *text, *end;

	if (!at)
		return NULL;
	end = at + strcspn(at, stops);
	*text = *end ? end + 1 : NULL;
	*end = '\0';
	at += strspn(at, " \t");
	for (end = at + strlen(at); end > at && (end[-1] == ' ' || end[-1] == '\t'); end--)
		end[-1] = '\0';
	return at;
}

/* --- rules --- */

static int add_rule(struct net_conf *c, enum net_conf_kind kind, unsigned set, const char *text, struct err *e)
{
	char whole[NET_RULE_TEXT];
	struct net_rule r;
	int n = net_rule_parse(text, &r, e);

	if (n < 0)
		return n;
	if (kind == NET_CONF_PRIVATE && r.kind != NET_RULE_ADDR)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.60s': must be addresses, such as 10.1.0.0/16:5432", text);
	/* Terminating takes a CA inside, which only a sandbox has that asks for it itself. */
	if (r.options & NET_RULE_TERMINATE)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.60s': only the rules of a sandbox can have +terminate",
			       text);
	net_rule_text(&r, whole);
	return keep(c, kind, set, whole, e);
}

static bool set_name_ok(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n < NET_SET_NAME && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n;
}

static int find_set(const struct net_conf *c, const char *name)
{
	for (unsigned i = 0; i < c->nsets; i++)
		if (!strcmp(c->set[i], name))
			return (int)i;
	return -ENOENT;
}

/* "name: rule, rule": further lines of a name add to it. */
static int add_set(struct net_conf *c, char *value, struct err *e)
{
	char *rest = strchr(value, ':'), *name = value, *one;
	int at, r = 0;

	if (!rest)
		return err_set(e, ERR_INVALID, -EINVAL, "must be NAME: RULE, RULE");
	*rest++ = '\0';
	name = word(&name, "");
	if (!set_name_ok(name))
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.40s': the name of a set must be up to %u characters of a-z, 0-9, '-', '_'", name,
			       NET_SET_NAME - 1);
	at = find_set(c, name);
	if (at < 0 && c->nsets == NET_SETS_MAX)
		return err_set(e, ERR_INVALID, -E2BIG, "at most %u sets", NET_SETS_MAX);
	if (at < 0) {
		at = (int)c->nsets++;
		snprintf(c->set[at], sizeof(c->set[at]), "%s", name);
	}
	while (r == 0 && (one = word(&rest, ",")))
		r = *one ? add_rule(c, NET_CONF_SET, (unsigned)at, one, e) :
			   err_set(e, ERR_INVALID, -EINVAL, "set '%s': empty entry between two commas", name);
	return r;
}

/* --- the rest --- */

static int add_host(struct net_conf *c, char *value, struct err *e)
{
	char *name = word(&value, " \t"), *addr = value ? word(&value, "") : NULL;
	char low[NET_NAME_MAX], text[64], line[NET_NAME_MAX + 72];
	struct net_addr a;

	if (!addr || net_name_parse(name, strlen(name), low) < 0 || net_addr_parse(addr, &a) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "must be NAME ADDRESS, such as db.example 10.1.0.7");
	net_addr_text(&a, text);
	snprintf(line, sizeof(line), "%s %s", low, text);
	return keep(c, NET_CONF_HOST, 0, line, e);
}

static int set_resolver(struct net_conf *c, char *value, struct err *e)
{
	char copy[sizeof(c->resolver)], *rest = copy, *one;

	if (!*value || strlen(value) >= sizeof(c->resolver))
		return err_set(e, ERR_INVALID, -EINVAL, "must have 1 to %zu bytes", sizeof(c->resolver) - 1);
	memcpy(copy, value, strlen(value) + 1);
	while ((one = word(&rest, " \t")))
		if (*one && !net_server_ok(one))
			return err_set(e, ERR_INVALID, -EINVAL,
				       "must be addresses, with or without a port: 1.2.3.4, [::1]:5353");
	memcpy(c->resolver, value, strlen(value) + 1);
	return 0;
}

static int set_open(struct net_conf *c, const char *value, struct err *e)
{
	bool yes = !strcmp(value, "yes");

	if (!yes && strcmp(value, "no"))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.60s': must be yes or no", value);
	c->closed = !yes;
	return 0;
}

static int set_ca(struct net_conf *c, const char *value, struct err *e)
{
	if (*value != '/' || strlen(value) >= sizeof(c->ca))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.60s': must be an absolute path", value);
	memcpy(c->ca, value, strlen(value) + 1);
	return 0;
}

static uint32_t list(const struct net_conf *c, enum net_conf_kind kind, unsigned set, uint32_t n, const char **ret)
{
	for (unsigned i = 0; i < c->nitems && n < EGRESS_RULES_MAX; i++) {
		const char *text = c->text + c->item[i].at;

		if (c->item[i].kind != kind || c->item[i].set != set)
			continue;
		if (kind == NET_CONF_OUTER && *text == '@')
			n = list(c, NET_CONF_SET, (unsigned)find_set(c, text + 1), n, ret);
		else
			ret[n++] = text;
	}
	return n;
}

/* A rule, or a set that is there already: with one that has nothing in it all would be allowed, as without any line. */
static int add_outer(struct net_conf *c, char *value, struct err *e)
{
	const char *rule[EGRESS_RULES_MAX], *text = word(&value, "");

	if (*text != '@')
		return add_rule(c, NET_CONF_OUTER, 0, text, e);
	if (net_conf_set(c, text + 1, rule) <= 0) {
		err_set(e, ERR_INVALID, -ENOENT, "set '%.40s' is not defined above this line", text);
		err_remedy(e, "move its `network_set` above this line");
		return -ENOENT;
	}
	return keep(c, NET_CONF_OUTER, 0, text, e);
}

int net_conf_add(struct net_conf *c, const char *key, const char *value, struct err *e)
{
	char copy[4096];

	if (strlen(value) >= sizeof(copy))
		return err_set(e, ERR_INVALID, -E2BIG, "more than %zu bytes", sizeof(copy) - 1);
	memcpy(copy, value, strlen(value) + 1);
	if (!strcmp(key, "network_set"))
		return add_set(c, copy, e);
	if (!strcmp(key, "network_private"))
		return add_rule(c, NET_CONF_PRIVATE, 0, copy, e);
	if (!strcmp(key, "network_outer"))
		return add_outer(c, copy, e);
	if (!strcmp(key, "network_hosts"))
		return add_host(c, copy, e);
	if (!strcmp(key, "network_resolver"))
		return set_resolver(c, copy, e);
	if (!strcmp(key, "network_ca"))
		return set_ca(c, copy, e);
	if (!strcmp(key, "network_open"))
		return set_open(c, copy, e);
	return err_set(e, ERR_INVALID, -EINVAL, "unknown key '%.60s'", key);
}

/* --- asked --- */

uint32_t net_conf_list(const struct net_conf *c, enum net_conf_kind kind, const char *ret[EGRESS_RULES_MAX])
{
	return list(c, kind, 0, 0, ret);
}

int net_conf_set(const struct net_conf *c, const char *name, const char *ret[EGRESS_RULES_MAX])
{
	int at = find_set(c, name);

	return at < 0 ? at : (int)list(c, NET_CONF_SET, (unsigned)at, 0, ret);
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	return !memcmp(a, b, whole) && (!rest || !((a[whole] ^ b[whole]) >> (8 - rest)));
}

static bool has_ports(const struct net_rule *outer, uint16_t first, uint16_t last)
{
	if (!outer->nports)
		return true;
	for (unsigned i = 0; i < outer->nports; i++)
		if (outer->port[i].first <= first && outer->port[i].last >= last)
			return true;
	return false;
}

static bool covers(const struct net_rule *outer, const struct net_rule *r)
{
	if (outer->family != r->family || outer->prefix > r->prefix || !same_bits(outer->addr, r->addr, outer->prefix))
		return false;
	if (!r->nports)
		return has_ports(outer, 0, UINT16_MAX);
	for (unsigned i = 0; i < r->nports; i++)
		if (!has_ports(outer, r->port[i].first, r->port[i].last))
			return false;
	return true;
}

bool net_conf_private(const struct net_conf *c, const struct net_rule *r)
{
	struct net_rule outer;

	for (unsigned i = 0; i < c->nitems; i++)
		if (c->item[i].kind == NET_CONF_PRIVATE && net_rule_parse(c->text + c->item[i].at, &outer, NULL) == 0 &&
		    covers(&outer, r))
			return true;
	return false;
}

void net_conf_egress(const struct net_conf *c, struct egress_config *ret)
{
	*ret = (struct egress_config){ .resolver = c->resolver, .ca_file = c->ca };
	ret->hosts = net_conf_list(c, NET_CONF_HOST, ret->host);
	if (ret->hosts < EGRESS_RULES_MAX)
		ret->host[ret->hosts++] = NET_LOOPBACK_NAME " 127.0.0.1";
	ret->outer = net_conf_list(c, NET_CONF_OUTER, ret->rule);
}
