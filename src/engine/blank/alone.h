/*
 * What an engine needs that has no daemon and makes a few sandboxes: `cloche run`, also without root, and the first process of a
 * machine. A warden that serves others is not linked with it.
 */
#pragma once
#include <stddef.h>

#include "base/err.h"

struct device_plan;
struct env;
struct env_policy;
struct guard;
struct net_ahead;

struct env_alone {
	/* A network namespace that is made while the rest is opened. NULL: it could not be begun. */
	struct net_ahead *(*net_start)(void);
	/* Waits for it: its descriptor, or -1. Frees @a. */
	int (*net_take)(struct net_ahead *a);
	/* Without root: enters a user namespace in which this process is root, and which maps its own user only. */
	int (*become_root)(struct err *e);
	/* Without mknod: the host's own nodes, each bound to a file: the usual ones, and @more (NULL: none). */
	int (*stage_devices)(struct env *v, const struct device_plan *more, int *ret, struct err *e);
	/* The default cache folder of a user. */
	int (*cache)(char *buf, size_t size, struct err *e);
	const struct env_policy *policy; /* how it opens the paths of a spec */
	int (*guard_start)(const struct env *v, const char *name, unsigned controllers, struct guard *g, struct err *e);
};
extern const struct env_alone env_alone;

/* See struct guard (blank.h). */
int guard_start(const struct env *v, const char *name, unsigned controllers, struct guard *g, struct err *e);
