/*
 * Which folders of the host a sandbox may be given. A warden inside `cloche run` opens what its user names; one that
 * serves a daemon opens only what root allowed on its command line, since the daemon's word is no proof.
 */
#pragma once
#include "engine/image/path_policy.h"

#define POLICY_MOUNTS 32

/* Only what is listed: paths as root gave them, absolute and trusted. */
struct policy {
	const char *images; /* images are folders directly below; NULL: only `host` */
	const char *mounts[POLICY_MOUNTS]; /* mounts come from here or below */
	unsigned nmounts;
};

/*
 * Refers to @p, which must stay. What a path names is looked up below the allowed folder without following any
 * symbolic link, so that nobody who can write there can point elsewhere.
 */
struct env_policy policy_of(const struct policy *p);
