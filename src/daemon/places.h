/* Everything the supervisor opens before it starts other processes: folder, lock, sockets, token. */
#pragma once
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"

struct places {
	struct daemon_config config; /* with the real data folder and the real ports */
	struct identity who;
	uid_t owner;
	int data, lock; /* the folder and its lock */
	bool reached; /* the API's user gets to the folder by its path */
	int listener[DAEMON_LISTENERS];
	struct stat file[DAEMON_LISTENERS]; /* of a unix socket that we made, else zeros */
	unsigned shown; /* of the listeners, those that were asked for */
	int unix_listener;
	int warden_listener, warden_place;
	int egress_listener, egress_place;
	char state[64]; /* the warden's folder */
	char token[160];
	bool first; /* never was ready on this folder */
	/* before anything is made in the folder; NULL: nothing to check */
	int (*check)(struct places *p, struct err *e);
	bool recover; /* in: --recover was given; out: the API process must rebuild the database */
	bool beside; /* see daemon.h */
	const struct manifest *layers; /* likewise */
	unsigned nlayers;
};

/*
 * ->check and ->recover are set before. @activated sockets from fd 3 on take the place of the configured ones; from then on they are ours. On an error call
 * places_close() all the same.
 */
int places_open(struct places *p, const struct daemon_config *c, int activated, struct err *e);
/* Removes the sockets' files that are still ours, and closes all. */
void places_close(struct places *p);
