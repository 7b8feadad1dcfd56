/*
 * The common part of the parsers in this folder. They read the first bytes of something, as many as are there, and
 * return one of four results; more bytes may only change LOOK_MORE into another. They keep nothing and allocate
 * nothing.
 *
 * Waiting does not get around them: when no more bytes came for long enough,
 *	no byte at all: perhaps a server that speaks first. Connect, but the client's first bytes are checked
 *		whenever they come, before they pass;
 *	hello_look() returns MORE: refuse; head_look() returns MORE: refuse if head_begun(), else see head_late().
 */
#pragma once
#include <stdint.h>

#include "proto/net_rule.h"

enum look {
	LOOK_MORE, /* undecided; never returned for as many bytes as the parser's maximum */
	LOOK_YES, /* it is this protocol; the results are written */
	LOOK_NOT, /* it is another protocol */
	LOOK_BAD, /* it is this protocol, but refused: @ret_why is a constant text, one line */
};

/* The destination that a client names: a name, or an address. */
struct look_to {
	char name[NET_NAME_MAX]; /* as net_name_parse leaves it; "" = by address */
	struct net_addr addr; /* mapped ones are IPv4; family 0 = by name */
	uint16_t port; /* 0 = not said */
};

/*
 * "name", "name:port", "1.2.3.4:port", "[::1]:port": of a Host header, a URI's authority, a CONNECT. Strict: no user,
 * no spaces, ports in their one spelling, addresses in their usual one. -EINVAL.
 */
int look_authority(const char *text, size_t len, struct look_to *ret);
