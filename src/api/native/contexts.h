/* Between the files of the native dialect that serve contexts. */
#pragma once
#include "api/api.h"

struct context;

/* Finds the sandbox and its context; NULL: the call has been answered. The context is not referenced. */
struct context *call_context(struct call *c);

/* The events of an execution, for an answer that is one object. (collected.c) */
struct context_event;
struct collected {
	size_t *events; /* of its tenant, where these bytes count */
	size_t counted;
	bool full; /* beyond what a tenant may have; nothing is kept of it */
	struct buf out[2]; /* the inside of a JSON string each */
	struct buf results, error;
};
void collected_init(struct collected *x, size_t *events);
void collected_done(struct collected *x);
void collected_add(struct collected *x, const struct context_event *ev);
/* `results`, `stdout`, `stderr` and `error`, inside of an open object, without a comma behind them. */
void collected_write(const struct collected *x, struct buf *out);
/* -EAGAIN when it was too much to be kept. */
int collected_check(const struct collected *x, struct err *e);
