/* A sandbox's limits, as its control groups take them. */
#pragma once
#include "base/err.h"
#include "engine/blank/blank.h"
#include "engine/rootfs/root.h"
#include "engine/spec.h"
#include "linux/cgroup.h"

struct cgroup_limits limit_groups(const struct spec_limits *want);
/* Before anything is made: a limit that this host cannot enforce is refused. */
int limit_check(struct env *v, const struct spec_limits *l, struct err *e);
/* Writes what is not in force already. @root: has the layers that are on disks, for the I/O limit. */
int limit_set(struct env *v, struct blank *s, const struct root *root, const struct spec_limits *want, struct err *e);
