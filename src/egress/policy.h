/* What a sandbox may reach. Made from a SANDBOX, not shared between sandboxes, replaced as a whole. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "egress/msg.h"
#include "proto/net_rule.h"

struct policy {
	uint8_t mode; /* enum egress_mode */
	uint16_t rules, privates;
	struct net_rule **rule, **private;
};

#define POLICY_NO_RULE 0xffffU /* let through by the mode, not by a rule */

int policy_new(uint8_t mode, const char *const *rule, uint32_t rules, const char *const *private, uint32_t privates,
	       struct policy **ret, struct err *e);
void policy_free(struct policy *p);

/*
 * Whether a stream to that name or address and port is let through, by which rule. @outer: of mode observe, may be
 * NULL. A name's addresses are checked by policy_addr_open() once they are known, and so is @a.
 */
bool policy_has_name(const struct policy *p, const struct policy *outer, const char *name, uint16_t port,
		     uint16_t *ret_rule);
bool policy_has_addr(const struct policy *p, const struct policy *outer, const struct net_addr *a, uint16_t port,
		     uint16_t *ret_rule);
/* Whether names are limited by rules: not in mode open, nor in observe without outer rules. */
bool policy_names_limited(const struct policy *p, const struct policy *outer);
/* What the rules that let that name through say about it, all together: enum net_rule_option. */
uint8_t policy_name_options(const struct policy *p, const struct policy *outer, const char *name, uint16_t port);
bool policy_knows(const struct policy *p, const struct policy *outer, const char *name); /* at any port: of a lookup */

/* The addresses of this host, which no sandbox may reach. */
struct own {
	struct net_addr *addr;
	uint32_t n;
	uint64_t fresh; /* ns: asked then */
};
#define OWN_FRESH_SEC 10ULL
int own_refresh(struct own *o, uint64_t now); /* when it is old. 0, or -errno: then nothing may be reached */
void own_done(struct own *o);

/* Whether the address is public and not this host's, or named by an administrator. Else *ret_what it is. */
bool policy_addr_open(const struct policy *p, const struct own *own, const struct net_addr *a, uint16_t port,
		      const char **ret_what);
/* The rule that let it through as text, "" when none did. Of mode observe: the one it would need. */
void policy_rule_text(const struct policy *p, uint16_t rule, char out[NET_RULE_TEXT]);
/* "name:443", "1.2.3.4:443", "[::1]:443". */
void policy_wish(const char *name, const struct net_addr *a, uint16_t port, char out[NET_RULE_TEXT]);
