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

/* A call that runs code: of a context, or in a sandbox of its own. (code_call.c) */
struct code_call {
	struct call *c;
	bool stream, begun; /* the answer is events (Accept: text/event-stream); the code runs */
	struct collected all; /* of an answer that is one object */
	struct api_stream registered;
};
void code_call_init(struct code_call *x, struct call *c);
void code_call_done(struct code_call *x); /* may be called again */
void code_call_begin(struct code_call *x); /* the code runs now; may be called again */
/* false: the client reads slowly. It gets no more until its connection has drained. */
bool code_call_event(struct code_call *x, const struct context_event *ev);
/* Whether a part of the answer was sent: an error is then an event. */
bool code_call_answered(const struct code_call *x);
/* Answers, and ends the call: what @write adds to an open object follows the events. @context: its id, or NULL. */
void code_call_end(struct code_call *x, const char *context, void (*write)(const void *arg, struct json *j),
		   const void *arg);
/* Ends the call without an answer. */
void code_call_cut(struct code_call *x);
