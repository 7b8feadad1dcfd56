/* Where the daemon is and who we are, from options, environment, file or the sockets of this machine. */
#pragma once
#include "base/cleanup.h"
#include "base/err.h"
#include "client/conn.h"

struct settings {
	char *url; /* http://… or https://…, without a slash at the end */
	char *socket; /* NULL, or the unix socket's path */
	char *token; /* NULL when there is none */
};

int settings_find(const struct conn_opts *o, struct settings *ret, struct err *e);
void settings_done(struct settings *s);
/* The file's path, and what it says; either may come back NULL. Refuses a file that others can read. */
int settings_read(const char *path, char **ret_url, char **ret_token, struct err *e);
