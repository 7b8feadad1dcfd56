/* Programs that a command of the client starts and waits for. */
#pragma once
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct child {
	char *const *argv; /* [0] is looked for on PATH */
	int in; /* its stdin; -1: nothing to read */
	int out; /* its stdout; -1: our own. Not used when there is @text */
	struct buf *text; /* gets its stdout; NULL: nowhere */
	struct buf *complaints; /* gets the end of its stderr; NULL: it is our own */
	bool own_mounts; /* for root: other processes do not see what it mounts and unmounts */
	const char *scratch; /* a folder that is removed with all in it when the program has ended; NULL: none */
};

/*
 * Its exit code (128 and the signal's number, when one ended it), or a negative errno: -ENOENT when there is no such program, -EINTR
 * when this process was to end: then the program and all that it has started have ended. So they do, and @scratch is removed, when
 * this process is killed.
 */
int child_run(const struct child *c, struct err *e);
