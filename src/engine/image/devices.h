/*
 * What the names of devices in a spec mean: asked of cloche-devices, which reads the administrator's specifications, and checked field
 * by field (docs/design/0021-devices.md).
 */
#pragma once
#include <stdbool.h>

#include "proto/device_plan.h"

struct devices_from {
	int program; /* cloche-devices, -1: not here */
	const char *
		folders; /* of specifications, with ':' between them, the last one first in rank; NULL: /etc/cdi:/var/run/cdi */
	bool host; /* for image `host` */
	bool rootless; /* of the user namespace of `cloche run` */
};

/* Some milliseconds. *ret is what the program says, unchecked. */
int devices_ask(const struct devices_from *from, const char (*names)[DEVICE_NAME], unsigned n, struct device_plan *ret,
		struct err *e);
/*
 * Whether a sandbox can be given that: every text ends, nodes are below /dev and not a sandbox's own, are what they are said to be, no
 * kernel memory, and no disk unless @names has its path. Fills in modes that were not said.
 */
int devices_check(struct device_plan *p, const char (*names)[DEVICE_NAME], unsigned n, struct err *e);
/* A path without links, O_PATH: -errno. */
int devices_open(const char *path);
