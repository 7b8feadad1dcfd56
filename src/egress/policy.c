/* Parses policies, and decides by them. */
#include "egress/policy.h"
#include "base/base.h"

#include <ifaddrs.h>
#include <netinet/in.h>

static void free_rules(struct net_rule **list, uint16_t n)
{
	for (uint16_t i = 0; list && i < n; i++)
		free(list[i]);
	free(list);
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	free_rules(p->rule, p->rules);
	free_rules(p->private, p->privates);
	free(p);
}

/* Only as long as their names are: there may be hundreds, in each of hundreds of sandboxes. */
static int read_rules(const char *const *text, uint32_t n, struct net_rule ***ret, uint16_t *ret_n, struct err *e)
{
	struct net_rule **list = calloc(n ? n : 1, sizeof(struct net_rule *)), r;

	if (!list || n > EGRESS_RULES_MAX) {
		free(list);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for %u rules", n);
	}
	*ret = list;
	for (uint32_t i = 0; i < n; i++) {
		int k = net_rule_parse(text[i], &r, e);
		size_t len = offsetof(struct net_rule, name) + strlen(r.name) + 1;

		if (k < 0)
			return k;
		list[i] = malloc(len);
		if (!list[i])
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for %u rules", n);
		memcpy(list[i], &r, len);
		*ret_n = (uint16_t)(i + 1);
	}
	return 0;
}

int policy_new(uint8_t mode, const char *const *rule, uint32_t rules, const char *const *private, uint32_t privates,
	       struct policy **ret, struct err *e)
{
	struct policy *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a policy");
	p->mode = mode;
	r = read_rules(rule, rules, &p->rule, &p->rules, e);
	if (r == 0)
		r = read_rules(private, privates, &p->private, &p->privates, e);
	if (r < 0) {
		policy_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

/* The policy that decides: @p, or in mode observe the administrator's outer rules. NULL: all public addresses. */
static const struct policy *judge(const struct policy *p, const struct policy *outer)
{
	if (p->mode == EGRESS_OPEN || (p->mode == EGRESS_OBSERVE && (!outer || !outer->rules)))
		return NULL;
	return p->mode == EGRESS_OBSERVE ? outer : p;
}

bool policy_has_name(const struct policy *p, const struct policy *outer, const char *name, uint16_t port,
		     uint16_t *ret_rule)
{
	const struct policy *by = judge(p, outer);

	*ret_rule = POLICY_NO_RULE;
	if (p->mode == EGRESS_NONE || !by)
		return p->mode != EGRESS_NONE;
	for (uint16_t i = 0; i < by->rules; i++)
		if (net_rule_has_name(by->rule[i], name, port)) {
			*ret_rule = by == p ? i : POLICY_NO_RULE;
			return true;
		}
	return false;
}

bool policy_has_addr(const struct policy *p, const struct policy *outer, const struct net_addr *a, uint16_t port,
		     uint16_t *ret_rule)
{
	const struct policy *by = judge(p, outer);

	*ret_rule = POLICY_NO_RULE;
	if (p->mode == EGRESS_NONE || !by)
		return p->mode != EGRESS_NONE;
	for (uint16_t i = 0; i < by->rules; i++)
		if (net_rule_has_addr(by->rule[i], a, port)) {
			*ret_rule = by == p ? i : POLICY_NO_RULE;
			return true;
		}
	return false;
}

bool policy_names_limited(const struct policy *p, const struct policy *outer)
{
	return judge(p, outer) != NULL;
}

uint8_t policy_name_options(const struct policy *p, const struct policy *outer, const char *name, uint16_t port)
{
	const struct policy *by = judge(p, outer);
	uint8_t options = 0;

	for (uint16_t i = 0; by && i < by->rules; i++)
		if (net_rule_has_name(by->rule[i], name, port))
			options |= by->rule[i]->options;
	return options;
}

bool policy_knows(const struct policy *p, const struct policy *outer, const char *name)
{
	const struct policy *by = judge(p, outer);

	if (p->mode == EGRESS_NONE || !by)
		return p->mode != EGRESS_NONE;
	for (uint16_t i = 0; i < by->rules; i++)
		if (net_rule_has_name(by->rule[i], name, by->rule[i]->nports ? by->rule[i]->port[0].first : 1))
			return true;
	return false;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

void own_done(struct own *o)
{
	free(o->addr);
	*o = (struct own){ 0 };
}

static bool from_sockaddr(const struct sockaddr *s, struct net_addr *ret)
{
	*ret = (struct net_addr){ 0 };
	if (s && s->sa_family == AF_INET) {
		ret->family = 4;
		memcpy(ret->addr, &((const struct sockaddr_in *)(const void *)s)->sin_addr, 4);
	} else if (s && s->sa_family == AF_INET6) {
		ret->family = 6;
		memcpy(ret->addr, &((const struct sockaddr_in6 *)(const void *)s)->sin6_addr, 16);
	}
	return ret->family;
}

int own_refresh(struct own *o, uint64_t now)
{
	struct ifaddrs *list;
	struct net_addr *addr;
	uint32_t n = 0, room = 0;

	if (o->addr && now - o->fresh < OWN_FRESH_SEC * 1000000000ULL)
		return 0;
	if (getifaddrs(&list) < 0)
		return -errno;
	for (struct ifaddrs *i = list; i; i = i->ifa_next)
		room++;
	addr = calloc(room + 1, sizeof(*addr));
	for (struct ifaddrs *i = list; addr && i; i = i->ifa_next)
		n += from_sockaddr(i->ifa_addr, &addr[n]);
	freeifaddrs(list);
	if (!addr)
		return -ENOMEM;
	free(o->addr);
	*o = (struct own){ .addr = addr, .n = n, .fresh = now };
	return 0;
}

bool policy_addr_open(const struct policy *p, const struct own *own, const struct net_addr *a, uint16_t port,
		      const char **ret_what)
{
	const char *what = NULL;

	net_addr_public(a, &what);
	for (uint32_t i = 0; !what && i < own->n; i++)
		if (own->addr[i].family == a->family && !memcmp(own->addr[i].addr, a->addr, a->family == 4 ? 4 : 16))
			what = "an address of this host";
	for (uint16_t i = 0; what && i < p->privates; i++)
		if (net_rule_has_addr(p->private[i], a, port))
			what = NULL;
	if (what && ret_what)
		*ret_what = what;
	return !what;
}

void policy_rule_text(const struct policy *p, uint16_t rule, char out[NET_RULE_TEXT])
{
	out[0] = '\0';
	if (rule < p->rules)
		net_rule_text(p->rule[rule], out);
}

void policy_wish(const char *name, const struct net_addr *a, uint16_t port, char out[NET_RULE_TEXT])
{
	char text[64];

	if (name && *name) {
		snprintf(out, NET_RULE_TEXT, "%s:%u", name, port);
		return;
	}
	net_addr_text(a, text);
	snprintf(out, NET_RULE_TEXT, a->family == 6 ? "[%s]:%u" : "%s:%u", text, port);
}
