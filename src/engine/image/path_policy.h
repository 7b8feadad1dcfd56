/* How the paths of a spec are opened: by what this process itself may open, or by what somebody has allowed (warden/policy.h). */
#pragma once
#include "base/err.h"

/* Both return an O_PATH descriptor or -errno. */
struct env_policy {
	int (*image)(const void *arg, const char *path, struct err *e);
	int (*mount)(const void *arg, const char *path, struct err *e);
	const void *arg;
};

/* Whatever this process itself may open. */
extern const struct env_policy policy_all;
