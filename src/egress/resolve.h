/* Names to addresses: the administrator's hosts, then c-ares. Nothing is checked here: see policy_addr_open(). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "egress/loop.h"
#include "egress/msg.h"
#include "proto/net_rule.h"

#define RESOLVE_MAX 8 /* addresses of a name that are looked at */

struct resolve_answer {
	struct net_addr addr[RESOLVE_MAX];
	uint32_t n;
	const char *why; /* of none: a constant text */
};

struct resolve;
struct resolve_query;

/*
 * Accounts for the queries of one sandbox: a sandbox with many running queries, including abandoned ones, gets at most
 * what others have left. Each query takes some kilobytes for up to 14 seconds and one of 65536 ids: c-ares 1.18 uses an
 * id twice when they run out, other versions search for a free one without end.
 */
struct resolve_asker {
	uint32_t running;
	bool gone;
};
void resolve_asker_free(struct resolve_asker *a); /* from malloc; NULL is fine; its queries continue without it */
typedef void resolve_fn(void *arg, const struct resolve_answer *a);

/* @resolver as in struct egress_config. ERR_INVALID: not so written. */
int resolve_new(struct loop *loop, const char *resolver, const char *const *host, uint32_t hosts, struct resolve **ret,
		struct err *e);
void resolve_free(struct resolve *r); /* running queries are answered with none */
/*
 * 1: known, and in *ret. 0: *ret_query runs, and @fn will be called once, never from within this call, unless it is
 * cancelled. -errno: it cannot be asked (-EBUSY: now).
 */
int resolve_name(struct resolve *r, struct resolve_asker *a, const char *name, struct resolve_answer *ret,
		 struct resolve_query **ret_query, resolve_fn *fn, void *arg);
void resolve_cancel(struct resolve_query *q);
