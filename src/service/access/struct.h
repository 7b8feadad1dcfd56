/* The members of a tenant: for the rooms of service/, which charge it for what they keep. */
#pragma once
#include "service/access/access.h"
#include "service/exec/spool.h"

struct exec;

struct tenant {
	char id[TENANT_NAME_MAX + 1];
	uint64_t number;
	struct tenant_quota quota, used; /* ->used counts what lives now */
	struct rate_rule rate; /* of its tokens that have none */
	uint64_t created_ns;
	bool gone; /* removed: nothing can be taken any more */
	struct tenant_calls calls;
	unsigned comparing, scratch_sandboxes,
		clones; /* likewise: service/checkpoint/compare.h, scratch_sandbox.h; those of them that are machines */
	struct spool_room spooled; /* output of its execs, in files */
	size_t pending, history, kept; /* bytes of its execs in memory: service/exec/kept.c; of their output: end.c */
	struct exec *history_first, **history_last;
	/* bytes of layers that no checkpoint of its has; being counted anew: service/checkpoint/layer.h */
	uint64_t loose, looser;
	/* the module's own below */
	struct tenant *next;
	size_t events; /* tenant_events() */
};
