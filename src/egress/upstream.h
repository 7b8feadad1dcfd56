/*
 * A connection to one of several addresses, which were checked: the first that answers wins (RFC 8305). The next one
 * is tried when one fails, or has said nothing for a quarter of a second.
 */
#pragma once
#include <stdint.h>

#include "egress/loop.h"
#include "proto/net_rule.h"

#define UPSTREAM_ADDRS 8

struct upstream;
/* fd >= 0: connected, non-blocking, the receiver's, not watched; else -errno. Called once, not from within start. */
typedef void upstream_fn(void *arg, int fd, const struct net_addr *a);

/* What was learned: addresses of a family that answers late are tried second for a while. */
struct upstream_past {
	uint64_t v6_late; /* ns, until then */
};

/*
 * fd >= 0: connected at once, to *ret_addr. -EINPROGRESS: *ret continues, and calls @fn. Else -errno.
 * @n is at most UPSTREAM_ADDRS.
 */
int upstream_start(struct loop *loop, struct upstream_past *past, const struct net_addr *addr, unsigned n,
		   uint16_t port, struct net_addr *ret_addr, struct upstream **ret, upstream_fn *fn, void *arg);
void upstream_cancel(struct upstream *u); /* NULL is fine; not from within @fn */
