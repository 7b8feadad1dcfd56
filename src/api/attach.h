/*
 * A WebSocket on an exec, in any dialect: a binary message starts with a byte for its kind (1 stdout and terminals, 2
 * stderr; 3 stdin, 4 size), a text message is JSON. A table contains the differences between dialects.
 */
#pragma once
#include "api/api.h"
#include "service/exec/exec.h"

struct attach_kind {
	/* Reads the first text: the command to run. */
	int (*request)(const struct sandbox *b, const char *data, size_t len, struct exec_request **ret, struct err *e);
	/* Reads a later text. NULL: later texts are ignored. */
	int (*text)(struct exec *x, const char *data, size_t len, struct err *e);
	/* Write one value. @gaps: part of the output was missing. Without ->result the last message has none. */
	void (*result)(struct exec *x, bool gaps, struct json *j);
	/*
	 * Writes a text before the next bytes of @s: the @lost bytes before @offset are missing. NULL: only ->result's
	 * @gaps reports it.
	 */
	void (*gap)(const struct exec *x, enum exec_stream s, uint64_t offset, uint64_t lost, struct json *j);
	void (*error)(const struct who *who, const struct err *e, struct json *j);
	bool says_started; /* a text message with the exec's id is sent as soon as it runs */
	bool json_size; /* a size may also be {"cols","rows"} */
	bool lenient; /* invalid messages are ignored instead of answered */
	/* a command that cannot be started is reported as one that has ended, with the reason on stderr */
	bool refusal_ends;
	bool owner; /* clients cannot attach again: when the client disconnects, stdin ends, and a terminal hangs up */
};

/* Where the output continues for a client that attaches again. */
struct attach_from {
	uint64_t out, err;
	bool given; /* ->out is given; otherwise all output is sent, of a terminal the last part */
};

/* Takes the call over, with its exec; without one, the first message starts one. */
void attach_ws(struct call *c, const struct attach_kind *kind, const struct attach_from *from);
