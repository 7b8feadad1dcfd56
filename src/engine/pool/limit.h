/* A sandbox's limits, as its control groups take them. */
#pragma once
#include "base/err.h"
#include "engine/blank/blank.h"
#include "engine/rootfs/root.h"
#include "engine/spec.h"
#include "linux/cgroup.h"

struct cgroup_limits limit_groups(const struct spec_limits *want);
/* Refuses a limit that this host cannot enforce. Call it before anything is made. */
int limit_check(struct env *v, const struct spec_limits *l, struct err *e);
/* Sets the limits that are not in force already. @root: has the layers on disks, to which the I/O limit applies. */
int limit_set(struct env *v, struct blank *s, const struct root *root, const struct spec_limits *want, struct err *e);
