/*
 * Steers all streams of a network namespace, to any address, to three sockets: by routes that make every address local,
 * some nftables rules, and the sockets, which cloche-egress gets. See docs/design/0010-egress.md. The namespace has no
 * interface but loopback, which is what keeps packets in: without this, a program inside only reaches itself.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

#define STEER_RULES 32
#define STEER_DENIED 32

/* For /etc/resolv.conf. */
#define STEER_RESOLV_CONF "nameserver 198.18.0.1\nsearch .\noptions timeout:2 attempts:2\n"

enum steer_mode {
	STEER_NONE, /* refused by the kernel; DNS queries are refused by cloche-egress */
	STEER_ALLOW, /* synthetic addresses, and those of the rules */
	STEER_OPEN, /* all of them */
	STEER_OBSERVE, /* likewise */
};

/*
 * Addresses that are let through to the sockets, by number. What does not fit (more than STEER_RULES) is for STEER_OPEN:
 * cloche-egress decides on each stream in any case, the kernel only refuses faster.
 */
struct steer_rule {
	uint8_t family; /* 4 or 6 */
	uint8_t prefix; /* of ->addr, whose further bits are zero */
	uint16_t first, last; /* ports, 1-65535 */
	uint16_t zero;
	uint8_t addr[16]; /* IPv4 in the first four, the rest zero */
};

struct steer_rules {
	uint32_t mode;
	uint32_t n; /* only of STEER_ALLOW; those behind are zero */
	struct steer_rule rule[STEER_RULES];
};

enum steer_socket { STEER_TCP, STEER_DNS_UDP, STEER_DNS_TCP, STEER_SOCKETS };

/* A connection that the kernel refused by itself. */
struct steer_denied {
	uint8_t family; /* 4 or 6 */
	uint8_t zero;
	uint16_t port;
	uint32_t ago_ms; /* the last one */
	uint64_t count;
	uint8_t addr[16];
};

/* In the same order, too: of checked ones only. */
static inline bool steer_same(const struct steer_rules *a, const struct steer_rules *b)
{
	return a->mode == b->mode && a->n == b->n && !memcmp(a->rule, b->rule, a->n * sizeof(a->rule[0]));
}

/* Checks rules as if a stranger had written them. */
int steer_check(const struct steer_rules *r, struct err *e);

/*
 * These work in the network namespace the calling thread is in, and need its CAP_NET_ADMIN (and CAP_NET_BIND_SERVICE for
 * the sockets). A kernel that lacks a piece is ERR_UNSUPPORTED, and named. One that fails leaves what it was doing half
 * done, but for steer_change(): the namespace is of no more use then.
 */
int steer_up(const struct steer_rules *r, struct err *e); /* of one with loopback, up, and nothing else */
/*
 * Other rules, in one step; what was counted stays. *ret_late: a descriptor, or -1, whose close waits until no packet can
 * be in the old rules any more, tens of milliseconds: for the caller to close when there is time. NULL: closed here.
 */
int steer_change(const struct steer_rules *r, int *ret_late, struct err *e);
/* As before steer_up(). The sockets are their holders' to close. */
int steer_down(int *ret_late, struct err *e);
/* -EADDRINUSE: those made before are still open somewhere. Not blocking, close-on-exec. */
int steer_sockets(int ret[STEER_SOCKETS], struct err *e);
/* Up to STEER_DENIED; returns how many. */
int steer_denied(struct steer_denied *ret, struct err *e);
