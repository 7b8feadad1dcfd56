/*
 * What the administrator says about networks: sets of rules by name, addresses that are not public and may be reached,
 * hosts and the resolver, whether `open` may be asked for. Filled line by line from the configuration (docs/config.md);
 * nothing a request says adds to it. It holds no pointers: a copy is as good as the first.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "egress/msg.h"
#include "proto/net_rule.h"

#define NET_CONF_TEXT (48U * 1024U)
#define NET_CONF_ITEMS 1024U
#define NET_SETS_MAX 32U
#define NET_SET_NAME 33U /* with the closing NUL */

enum net_conf_kind { NET_CONF_SET = 1, NET_CONF_PRIVATE, NET_CONF_HOST, NET_CONF_OUTER };

struct net_conf {
	bool closed; /* `open` may not be asked for */
	char resolver[256]; /* "" = the host's */
	char ca[1024]; /* "" = the system's */
	unsigned nsets, nitems;
	char set[NET_SETS_MAX][NET_SET_NAME];
	struct {
		uint8_t kind;
		uint8_t set; /* of NET_CONF_SET: which */
		uint16_t at; /* in ->text */
	} item[NET_CONF_ITEMS];
	size_t used;
	char text[NET_CONF_TEXT];
};

/* One line of the configuration: "network_set", "packages: a.example, b.example". ERR_INVALID. */
int net_conf_add(struct net_conf *c, const char *key, const char *value, struct err *e);
/* The rules, or hosts, of a kind; at most EGRESS_RULES_MAX. They point into @c. Returns how many. */
uint32_t net_conf_list(const struct net_conf *c, enum net_conf_kind kind, const char *ret[EGRESS_RULES_MAX]);
/* Those of a set: -ENOENT when there is none of that name (without the "@"). */
int net_conf_set(const struct net_conf *c, const char *name, const char *ret[EGRESS_RULES_MAX]);
/* Whether every address and port of @r (an address rule) may be reached although it is not public. */
bool net_conf_private(const struct net_conf *c, const struct net_rule *r);
/*
 * Inside of a sandbox 127.0.0.1 is its own. By this name it finds the host's loopback: registries of images are reached by it.
 * As every address that is not public, that takes a line of `network_private`.
 */
#define NET_LOOPBACK_NAME "registry.loopback.internal"

/* Fills in the part of the configuration that cloche-egress gets. */
void net_conf_egress(const struct net_conf *c, struct egress_config *ret);
