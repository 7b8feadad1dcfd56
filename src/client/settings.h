/* The daemon's address and the caller's token, from options, environment, file or the sockets of this machine. */
#pragma once
#include "base/cleanup.h"
#include "base/err.h"
#include "client/conn.h"

struct settings {
	char *url; /* http://… or https://…, without a slash at the end */
	char *socket; /* NULL, or the unix socket's path */
	char *token; /* NULL when there is none */
	char *cacert; /* NULL, or the file of certificates to trust instead of the system's */
};

int settings_find(const struct conn_opts *o, struct settings *ret, struct err *e);
void settings_done(struct settings *s);
/* What the file says, nothing when there is none. Refuses one that others can read. */
int settings_read(const char *path, struct settings *ret, struct err *e);
