/* A warden behind a socket: see warden/msg.h for what is said there. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/sandbox/sandbox.h"

struct server_opts {
	struct warden_opts warden;
	int sock; /* listening, or one connection; stays the caller's */
	uid_t uid; /* besides root, who may connect to a listening socket */
	/* Readable when it is time to end; the second: and every sandbox with it, kept ones too. -1: none. */
	int stop, stop_all;
	int parent; /* a pidfd: whoever it is, we do not outlive it. -1: none */
};

/*
 * Serves until one of these is readable, then ends every sandbox, unless the warden keeps them, and returns 0.
 * Connections come and go; sandboxes stay until somebody destroys them.
 */
int server_run(const struct server_opts *o, struct err *e);
