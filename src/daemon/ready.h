/* Reports that the daemon serves: to systemd by its datagram, to users by lines on stdout. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "daemon/daemon.h"

/*
 * Sends @state ("READY=1") to NOTIFY_SOCKET, a path or (with @) an abstract name. 1 when sent, 0 when it is not set,
 * -errno when it could not be. Never blocks.
 */
int ready_notify(const char *state);

struct ready_text {
	const struct daemon_config *config; /* with the addresses that are really listened on */
	unsigned shown; /* how many of the addresses are printed */
	const char *token; /* known, or "" */
};
/* The lines that are printed when serving begins. */
int ready_lines(const struct ready_text *t, struct buf *to);
