/*
 * Which folders of the host a sandbox may be given. The warden of `cloche run` opens what its user names; one that
 * serves a daemon opens only what root allowed on its command line, since the daemon is not trusted.
 */
#pragma once
#include <stdbool.h>

#include "engine/image/path_policy.h"

#define POLICY_MOUNTS 32
#define POLICY_DEVICES 32

/* The allowed folders: paths as root gave them, absolute and trusted. */
struct policy {
	const char *images; /* images are folders directly in it; NULL: only `host` */
	const char *mounts[POLICY_MOUNTS]; /* mounts may be these folders, or below them */
	unsigned nmounts;
	const char *devices[POLICY_DEVICES]; /* names of devices (policy_device_fits()) */
	unsigned ndevices;
};
/* Whether @name is @allowed: the same; or as its part before a `*` at the end; or a GPU, for `gpu`. */
bool policy_device_fits(const char *allowed, const char *name);

/*
 * Refers to @p, which must stay. Paths are looked up below the allowed folder without following any symbolic link, so
 * that a user with write access there cannot redirect them.
 */
struct env_policy policy_of(const struct policy *p);
