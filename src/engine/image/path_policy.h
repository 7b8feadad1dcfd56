/*
 * How the paths of a spec are opened: with the rights of this process, or as an administrator allows
 * (warden/policy.h).
 */
#pragma once
#include "base/err.h"

/* The first two return an O_PATH descriptor or -errno. */
struct env_policy {
	int (*image)(const void *arg, const char *path, struct err *e);
	int (*mount)(const void *arg, const char *path, struct err *e);
	int (*device)(const void *arg, const char *name, struct err *e); /* 0: a sandbox may be given it */
	const void *arg;
};

/* Whatever this process itself may open. */
extern const struct env_policy policy_all;
