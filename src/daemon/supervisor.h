/*
 * Three children, kept alive: the warden (another program, root), egress (another program, a user of its own) and the
 * API process (a fork of this one). It opens everything first, starts them, and from then on reads nothing but signals,
 * deaths and the one byte that says ready.
 */
#pragma once
#include "base/err.h"
#include "daemon/daemon.h"
#include "daemon/places.h"

#define SUPERVISOR_DRAIN_MS 35000 /* the API takes at most 30 s by itself */

struct supervisor_opts {
	const struct daemon_config *config; /* finished */
	int activated; /* sockets from fd 3 on */
	int (*serve)(const struct daemon_start *s); /* the API process: daemon_serve() */
	const char *warden, *egress; /* their programs */
	int (*check)(struct places *p, struct err *e); /* of the database: see places.h */
	bool recover;
	int out; /* where the lines of ready.h go */
};

/*
 * Needs root and a process without other threads. Returns 0 after SIGTERM, SIGINT or SIGHUP ended all, or an error
 * when something could not be opened or a child does not stay alive.
 */
int supervisor_run(const struct supervisor_opts *o, struct err *e);
