/*
 * One entry of an allowlist, as people write it:
 *
 *	api.example.com		exactly that name, ports 80 and 443
 *	api.example.com:8443		that port; "80,443,8000-8100" and "*" (all) are ports too
 *	*.example.org		any name below, at any depth; not example.org itself
 *	10.1.0.0/16:5432	addresses; [fd00::1]:22 and [fd00::]/8 of IPv6. No /n: that one. Also ports 80 and 443 when silent
 *	api.example.com+terminate	options of a rule by name, behind its ports: see enum net_rule_option
 *
 * Names: letters, digits, "-" inside labels, "_"; at least one dot or the word a test host has; lower-cased; no final
 * dot; no address in any spelling ("127.1", "0x7f000001", "2130706433" are refused as names). Strict: what is not surely
 * one thing is refused. @set is not accepted here: the caller resolves sets first.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define NET_NAME_MAX 254 /* with the closing NUL */
#define NET_PORTS_MAX 8
#define NET_RULE_TEXT 384

enum net_rule_kind { NET_RULE_NAME = 1, NET_RULE_BELOW, NET_RULE_ADDR };

enum net_rule_option {
	NET_RULE_TERMINATE = 1, /* "+terminate": egress ends the sandbox's TLS, and checks each request's host */
	NET_RULE_ECH = 2, /* "+ech": a TLS client may hide another name behind the one it shows */
};

struct net_rule {
	uint8_t kind;
	uint8_t options; /* of names: enum net_rule_option */
	uint8_t family; /* 4 or 6, of an address */
	uint8_t prefix;
	uint8_t nports; /* 0 = all */
	struct {
		uint16_t first, last;
	} port[NET_PORTS_MAX];
	uint8_t addr[16]; /* IPv4 in the first four */
	char name[NET_NAME_MAX]; /* without the "*." */
};

struct net_addr {
	uint8_t family; /* 4 or 6; IPv4-mapped IPv6 must be stored as 4 */
	uint8_t addr[16];
};

int net_rule_parse(const char *text, struct net_rule *ret, struct err *e); /* ERR_INVALID says what is wrong with it */
/* As short as it can be said; what net_rule_parse() reads back as the same. */
void net_rule_text(const struct net_rule *r, char out[NET_RULE_TEXT]);
bool net_rule_has_name(const struct net_rule *r, const char *name, uint16_t port); /* @name as net_name_parse left it */
/* Ports of both, sorted, without what overlaps. False: not of the same host, or more ranges than a rule has. */
bool net_rule_join(struct net_rule *a, const struct net_rule *b);
bool net_rule_has_addr(const struct net_rule *r, const struct net_addr *a, uint16_t port);
/* A host name as strict as above; lower-cased into @ret. -EINVAL. */
int net_name_parse(const char *text, size_t len, char ret[NET_NAME_MAX]);
/* An address in its one usual spelling ("1.2.3.4", "::1", no zone); mapped ones become IPv4. -EINVAL. */
int net_addr_parse(const char *text, struct net_addr *ret);
void net_addr_text(const struct net_addr *a, char out[64]);
/* A resolver's place: "1.2.3.4", "1.2.3.4:53", "::1", "[::1]:5353". */
bool net_server_ok(const char *text);
/*
 * Whether this is an address of the public internet. Everything special is not: private, loopback, link-local, CGNAT,
 * multicast, benchmarking, documentation, reserved, unspecified, metadata services, ULA; and what embeds one of those
 * (mapped, compatible, 6to4, NAT64, Teredo). @ret_what: "a private address", for a message.
 */
bool net_addr_public(const struct net_addr *a, const char **ret_what);
