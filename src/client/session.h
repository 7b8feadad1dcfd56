/*
 * One exec, connected live: stdio on this side, a WebSocket on the other. Used by `exec` and `shell`. With a terminal,
 * all input but the detach keys is forwarded; without one, received signals are. A connection that breaks is made again
 * for some seconds, and continues at the byte where it broke.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "client/conn.h"
#include "client/keys.h"

#define SESSION_ID_MAX 64

struct session_opts {
	const char *sandbox;
	const char *exec; /* attach to it; NULL starts one */
	const json_t *body; /* what is started */
	bool tty;
	bool input; /* our stdin goes inside */
	uint64_t offset; /* of an attach */
	struct keys keys; /* that detach */
};

enum session_how {
	SESSION_ENDED, /* see ->result */
	SESSION_DETACHED, /* the exec continues to run */
};

struct session_end {
	enum session_how how;
	json_t *result; /* owned by the caller */
	char exec[SESSION_ID_MAX]; /* "" when it never started */
	int signal; /* that made us detach; 0: the keys */
};

/* The terminal is as it was when this returns, whatever happened. */
int session_run(struct conn *c, const struct session_opts *o, struct session_end *ret, struct err *e);
/* After it: says on stderr what a limit did, or how to come back to what was left running. Our exit code; frees @end. */
int session_finish(const struct session_opts *o, struct session_end *end);
/* The exit code of a result. */
int session_exit_code(const json_t *result);
/* Asks for a terminal like ours in the @body that starts an exec. */
void session_set_tty(json_t *body);
/* A program that could not be started: 126 or 127, or 125 when @e is about something else. */
int session_error_code(const struct err *e);
