/*
 * R as the interpreter of a session: it runs src/interpreter/r/kernel.R, which evaluates cells. Its output comes through pipes as a
 * shell's does; what cells give comes as messages, "KIND LENGTH\n" and as many bytes, on the status descriptor.
 */
#pragma once
#include "base/json.h"
#include "interpreter/shell/session.h"

#define R_PARTS_MAX 16

struct r_part {
	char type[96]; /* its MIME type */
	struct buf content;
};

struct r {
	struct session *session;
	uint64_t result_max;
	struct buf in; /* of messages */
	uint64_t skip; /* bytes of a message that is too large */
	struct r_part part[R_PARTS_MAX],
		left_out[R_PARTS_MAX]; /* of the result that comes; of the latter the content is a size */
	size_t parts, parts_left_out, bytes;
	struct buf data, rows;
	struct buf name, value, traceback, place; /* of the cell's error */
	uint64_t results, result_bytes; /* of the cell */
	bool too_many, ended, up;
	unsigned interrupted; /* SIGINTs sent to this cell */
	unsigned silent; /* looks since the last one at which there was nothing */
	int status;
};

/* Starts nothing yet. */
int r_init(struct r *r, struct session *s, struct events *ev, struct err *e);
void r_done(struct r *r);
/* A new R, without variables, in the session's folder. */
int r_start(struct r *r, struct err *e);
/* As session_run(). The error of the cell has been sent when it returns. */
int r_run(struct r *r, const struct request *q, int signals, int requests, enum session_end *ret, struct err *e);
/* Asks @kind: complete, is_complete or inspect. The members of the answer go to @j. */
int r_ask(struct r *r, const char *kind, const struct request *q, struct json *j, struct err *e);
/* Ends this process as R has ended, if it has: the daemon sees why. */
void r_die(struct r *r);
