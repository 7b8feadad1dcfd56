/*
 * A WebSocket on an exec, in any dialect: binary messages begin with a byte that says what follows (1 stdout and
 * terminals, 2 stderr; 3 stdin, 4 size), texts are JSON. What dialects do differently is in the table they hand over.
 */
#pragma once
#include "api/api.h"
#include "service/exec/exec.h"

struct attach_kind {
	/* Reads the first text: what is to be run. */
	int (*request)(const struct service_opts *o, const struct sandbox *b, const char *data, size_t len,
		       struct exec_request **ret, struct err *e);
	/* A later text. NULL: they are passed over. */
	int (*text)(struct exec *x, const char *data, size_t len, struct err *e);
	/* Write one value. @gaps: some of the output was not there any more. Without ->result the end says nothing. */
	void (*result)(struct exec *x, bool gaps, struct json *j);
	/* A text before the next bytes of @s: those from @lost bytes before @offset on are gone. NULL: @gaps of the end says it. */
	void (*gap)(const struct exec *x, enum exec_stream s, uint64_t offset, uint64_t lost, struct json *j);
	void (*error)(const struct who *who, const struct err *e, struct json *j);
	bool says_started; /* a text message with the exec's id is sent as soon as it runs */
	bool json_size; /* a size may also be {"cols","rows"} */
	bool lenient; /* messages without a sense are passed over, instead of answered */
	bool refusal_ends; /* a command that cannot be run has ended like others, its stderr says why */
	bool owner; /* clients cannot attach again: when the client disconnects, stdin ends, and a terminal hangs up */
};

/* Where the output continues for a client that attaches again. */
struct attach_from {
	uint64_t out, err;
	bool given; /* ->out is; else all is sent, of a terminal the end */
};

/* Takes the call over, with its exec, or without: then the first message starts one. */
void attach_ws(struct call *c, const struct attach_kind *kind, const struct attach_from *from);
