/* A warden behind a socket: see warden/msg.h for the protocol. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/sandbox/sandbox.h"

struct server_opts {
	struct warden_opts warden;
	int sock; /* a listening socket, or one connection; stays the caller's */
	uid_t uid; /* the user that may connect to a listening socket, besides root */
	/*
	 * Readable when the server must end; the second: and end every sandbox as well, even persistent ones. -1: none.
	 */
	int stop, stop_all;
	int parent; /* a pidfd: the server ends when this process does. -1: none */
};

/*
 * Serves until one of these is readable, then ends every sandbox, unless the warden keeps them, and returns 0.
 * Connections come and go; sandboxes stay until they are destroyed.
 */
int server_run(const struct server_opts *o, struct err *e);
