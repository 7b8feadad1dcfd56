/* The user of the API process, and the change to it. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * The uid when the configuration names no user and there is none called "cloche", so that `cloche serve` works without
 * any setup. It is below the range that systemd assigns dynamically, and above the uids of ordinary users.
 */
#define IDENTITY_FALLBACK 61987
#define IDENTITY_DEFAULT "cloche"
/* The user of cloche-egress only: the process that sends data for sandboxes must not access the API's files. */
#define IDENTITY_EGRESS_FALLBACK 61988
#define IDENTITY_EGRESS "cloche-egress"

struct identity {
	uid_t uid;
	gid_t gid;
};

/* @user is a name, a number, or "UID:GID". Root is refused. ERR_NOT_FOUND when there is no such user. */
int identity_find(const char *user, struct identity *ret, struct err *e);

/* The user that started this process, as far as it is known: the caller of sudo. */
uid_t identity_owner(void);

/*
 * Changes to @who irrevocably, without other groups. The process dies with @parent (the change of ids clears that
 * setting, so it is set again). Verified; any failure is fatal to the caller. The change drops capabilities.
 */
int identity_become(const struct identity *who, pid_t parent, struct err *e);

/*
 * Between these two calls files are accessed as @who, without root's privileges, so that links in a folder of @who cannot
 * lead to files of root.
 */
int identity_files_as(const struct identity *who, struct err *e);
void identity_files_back(void);
