/*
 * All that cloche-egress has. Turns: the loop only notes what is ready; then each sandbox that has work gets a turn, a
 * few new streams, queries and a bounded number of bytes, one sandbox after the other. So a sandbox that floods waits
 * for itself.
 */
#pragma once
#include "egress/budget.h"
#include "egress/link.h"
#include "egress/loop.h"
#include "egress/policy.h"
#include "egress/relay.h"
#include "egress/resolve.h"
#include "egress/sched_batch.h"
#include "egress/trust.h"
#include "egress/upstream.h"

#define EGRESS_BUCKETS 1024U
#define EGRESS_ASKED 64U /* WHOs without an answer */

struct sandbox;

struct egress {
	struct loop loop;
	struct link link;
	struct relay relay;
	struct sched_batch sched_batch;
	struct resolve *resolve;
	struct policy *outer; /* of mode observe */
	struct trust *trust;
	bool confined; /* by confine(): files are given up with the first CONFIG, which was what they were for */
	char *config; /* the CONFIG in force, as it came */
	size_t config_len;
	struct own own;
	struct upstream_past past;
	struct sandbox *sandbox[EGRESS_BUCKETS]; /* by number */
	struct tree *tree;
	struct tenant *tenants;
	uint32_t ports; /* for connections that we make to one server */
	uint32_t sandboxes;
	struct sandbox *run_first, **run_last; /* those with work */
	struct sandbox *dirty; /* counts changed */
	struct sandbox *folding; /* refusals are folded */
	struct loop_timer counts_timer, fold_timer;
	uint32_t seq, asked;
	uint32_t most; /* streams of one sandbox, whatever its budget says */
	uint32_t buffer_most[2]; /* receive buffers that we may ask for: in sandboxes, and here; see room.c */
	uint32_t streams, files; /* of all; descriptors there may be */
	int spare; /* a descriptor to give when there are none left */
};

/* @listen_fd or @owner_fd, the other -1; see link_init(). */
int egress_init(struct egress *g, int listen_fd, int owner_fd, struct err *e);
void egress_done(struct egress *g);
/* One round: waits no longer than @most_ms (-1: for ever). 0 or -errno. */
int egress_turn(struct egress *g, int most_ms);

uint32_t egress_room(const struct egress *g); /* streams that all can have together */
/* Streams that a sandbox may have now: an eighth of what all have left, so that a few cannot take it all. */
uint32_t egress_share(const struct egress *g);
/* No descriptors are left: refuses the connections that wait in @listener, which would wake the loop without end. */
void egress_give_spare(struct egress *g, int listener);
struct sandbox *egress_sandbox(const struct egress *g, uint64_t number);
