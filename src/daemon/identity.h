/* Whom the API process runs as, and becoming it. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * Used when the configuration names no user and there is none called "cloche": `cloche serve` works on a machine where
 * nobody set anything up. Below the range that systemd hands out by itself, above what distributions give to people.
 */
#define IDENTITY_FALLBACK 61987
#define IDENTITY_DEFAULT "cloche"
/* Whom cloche-egress runs as, and no one else: what may speak for sandboxes may not touch the API's files. */
#define IDENTITY_EGRESS_FALLBACK 61988
#define IDENTITY_EGRESS "cloche-egress"

struct identity {
	uid_t uid;
	gid_t gid;
};

/* @user is a name, a number, or "UID:GID". Root is refused. ERR_NOT_FOUND when there is no such user. */
int identity_find(const char *user, struct identity *ret, struct err *e);

/* Who started us, as far as can be told: behind sudo the one who typed it. */
uid_t identity_owner(void);

/*
 * Becomes @who for good: no other groups, no way back, dies with @parent (the change of ids takes that away, so it is
 * set anew). Checked; any failure is fatal to the caller. Capabilities go with the ids.
 */
int identity_become(const struct identity *who, pid_t parent, struct err *e);

/*
 * What is done to files between the two is done as @who, without root's privileges: in a folder of theirs nobody can
 * lead us astray.
 */
int identity_files_as(const struct identity *who, struct err *e);
void identity_files_back(void);
