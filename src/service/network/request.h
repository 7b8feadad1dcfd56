/*
 * The network of a sandbox, as `network` of a create, a template or a PUT describes it:
 *
 *	"none" | "open" | "observe" | {"mode": …, "allow": ["a.example", "10.1.0.0/16:5432", "@packages"],
 *	 "budget": {"bytes_out": "10M", …}, "tree_budget": {…}}
 *
 * Reading it checks its form alone, so that what was stored can always be read again; net_request_check() checks
 * whether the administrator allows it, and is called for every new request. Egress and the warden never get more than
 * the present configuration allows.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"
#include "egress/msg.h"
#include "service/network/conf.h"
#include "linux/steer.h"

struct net_request {
	uint8_t mode; /* enum egress_mode */
	uint32_t nallow;
	char **allow; /* rules in their shortest form, "@set" as given */
	struct egress_budget budget, tree_budget;
};

const char *net_mode_name(uint8_t mode);
/* *ret is NULL for a network of mode none without budgets: most have that. @v NULL: none, too. */
int net_request_parse(const json_t *v, struct net_request **ret, struct err *e);
/* ERR_DENIED, ERR_NOT_FOUND, ERR_INVALID: a mode, set or address that the configuration does not have. NULL is fine. */
int net_request_check(const struct net_conf *c, const struct net_request *w, struct err *e);
/* One object; NULL is {"mode":"none"}. */
void net_request_write(const struct net_request *w, const char *key, struct json *j);
bool net_request_same(const struct net_request *a, const struct net_request *b); /* each may be NULL */
struct net_request *net_request_copy(
	const struct net_request *w); /* NULL of NULL; else never: without memory the process ends */
void net_request_free(struct net_request *w);
DEFINE_AUTO(struct net_request, net_request_free)
static inline bool net_request_on(const struct net_request *w)
{
	return w && w->mode != EGRESS_NONE;
}

bool net_request_terminates(const struct net_request *w); /* some TLS is to be terminated: the sandbox needs a CA */

/*
 * The policy for egress: mode, rules with their sets resolved, privates, budgets; the rest of @to is left alone. Texts
 * point into @c and @w. Less than asked when the configuration has less by now: then false.
 */
bool net_request_policy(const struct net_conf *c, const struct net_request *w, struct egress_sandbox *to);
/* What the kernel lets through to egress. */
void net_request_steer(const struct net_conf *c, const struct net_request *w, struct steer_rules *to);
/* A policy to ask often, as it is now; free() it. */
struct net_lets {
	bool all;
	uint32_t n;
	struct net_rule rule[EGRESS_RULES_MAX];
};
struct net_lets *net_lets_new(const struct net_conf *c, const struct net_request *w);
/* Whether it has that name or address; with any port when @port is 0. What is private is another matter. */
bool net_lets(const struct net_lets *l, const char *target, uint16_t port);
/* Whether a stream to that name would be let through: for secrets that are to be injected there. */
bool net_request_lets(const struct net_conf *c, const struct net_request *w, const char *name, uint16_t port);
