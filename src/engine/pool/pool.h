/*
 * Makes blanks before requests need them, and cleans up after sandboxes that ended, both in threads of its own, so that
 * no request waits for it. A blank leaves the pool once and never comes back.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "engine/blank/blank.h"
#include "engine/blank/env.h"
#include "engine/rootfs/premount.h"
#include "engine/rootfs/root.h"

struct pool;

struct pool_item {
	struct blank blank;
	struct premount premount; /* mounts that the agent was sent already, or empty */
	/*
	 * 0, or the number of the request that it is prebuilt for: then all mounts were sent, and ->root has them,
	 * those of ->premount too
	 */
	uint64_t prebuilt;
	struct root root;
};

/* What the next sandbox will probably be like. A wrong guess costs that sandbox a little time, nothing else. */
struct pool_guess {
	struct cgroup_limits limits;
	uint64_t size, inodes;
	unsigned cpus;
	uint64_t tenant;
	bool net; /* with a network that has ->rules */
	struct steer_rules rules;
};

struct pool_counts {
	unsigned ready, cleaning;
	uint64_t locked_ns; /* how long the pool's lock was held */
};

int pool_new(struct env *v, unsigned target, struct pool **ret, struct err *e);
/* Ends every ready blank and waits for the cleaning. */
void pool_free(struct pool *p);
unsigned pool_makers(const struct pool *p); /* threads that make blanks; NULL: 0 */
/*
 * Takes a blank for @spec, and waits for one if none is ready. A blank that died in the pool is never handed out. The
 * blank has a new slot, or a recycled one that a sandbox of the same tenant has left: user ids, empty cgroups, a
 * network namespace in which nothing was ever sent. No process, mount or file of another sandbox is ever in it.
 */
int pool_take(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret, struct err *e);
/* After two equal requests in a row sandboxes are prebuilt for @spec; on layers, one is. */
void pool_learn(struct pool *p, const struct pool_guess *g, const struct sandbox_spec *spec);
/* Announces many requests for @spec: their memory should be shared. */
void pool_share_many(struct pool *p, const struct sandbox_spec *spec);
/* Drops all prebuilt sandboxes that use @layer, which is being deleted. They end soon after this returns. */
void pool_drop_prebuilt(struct pool *p, const char *layer);
/* Whether a limit is in force that @l does not have. A limit that was set once cannot be removed. */
bool pool_limits_lifted(const struct ground *s, const struct cgroup_limits *l);
/* Whether the limits in force are exactly @l. */
bool pool_limits_same(const struct blank *s, const struct cgroup_limits *l);
/* Ends an item that was taken and does not fit after all; it is empty afterwards. */
void pool_give_up(struct pool *p, struct pool_item *it);
/* Has a thread end @s and close @r, which it takes over. -ENOMEM: they stay the caller's. */
int pool_clean(struct pool *p, struct blank *s, struct root *r);
void pool_counts(struct pool *p, struct pool_counts *ret);
void pool_wait(struct pool *p, unsigned ready);
/* Removes what is kept for the next sandboxes; ready blanks stay. */
void pool_trim(struct pool *p);
