/* What a sandbox and its tree of forks may still use, and how fast. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "egress/msg.h"
#include "egress/names.h"

/* A bucket of bytes that fills at a rate. Bytes that were in transit may overdraw it; then it has to recover first. */
struct bucket {
	int64_t bytes;
	uint64_t at; /* ns */
};

struct meter { /* of a sandbox, or of a tree */
	struct egress_budget budget;
	struct egress_counts counts;
	struct bucket bucket;
};

struct tree {
	struct tree *next;
	uint64_t number;
	uint32_t sandboxes;
	struct meter meter;
	struct names names; /* for ->requests of its budget only */
};

/* NULL: another stream may begin. Else why not: a constant text. */
const char *meter_stream(const struct meter *m, const struct meter *tree);
const char *meter_dns(const struct meter *m, const struct meter *tree);
/* How many bytes may move now: 0 and *ret_why when a budget is used up, 0 and *ret_wait (ns) when it is too early. */
uint64_t meter_bytes(struct meter *m, struct meter *tree, bool out, uint64_t now, uint64_t *ret_wait,
		     const char **ret_why);
void meter_used(struct meter *m, bool out, uint64_t bytes);
/* Counts one request to @name. False: too many within the last minute, to 5 seconds. @most 0: no limit. */
bool meter_request(struct name *n, uint32_t most, uint64_t now);
