/*
 * Blanks made ahead, and sandboxes cleaned up behind, each by a thread of its own, so that neither is ever on a
 * request's path. A blank leaves the pool once and never comes back.
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
	struct premount premount; /* sent already, or empty */
	/* 0, or for which request: then all of it was sent, and ->root has the rest of it, ->premount too */
	uint64_t prebuilt;
	struct root root;
};

/* What the next sandbox will probably be like. A wrong guess costs that sandbox a little time, nothing else. */
struct pool_guess {
	struct cgroup_limits limits;
	uint64_t size, inodes;
	unsigned cpus;
	uint64_t tenant;
	bool net; /* with a way out, of ->rules */
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
 * For @spec. Waits for one if none is ready. A blank that died waiting is never handed out. It has new ids, or those that a
 * sandbox of the same tenant left: user ids, empty cgroups, a network namespace in which nothing was ever sent.
 * No process, mount or file of another is ever in it.
 */
int pool_take(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret, struct err *e);
/* After two equal requests in a row sandboxes are prebuilt for @spec; on layers, one is. */
void pool_learn(struct pool *p, const struct pool_guess *g, const struct sandbox_spec *spec);
/* More of these will be asked for, at once: their memory is to be shared. */
void pool_share_many(struct pool *p, const struct sandbox_spec *spec);
/* A layer is being deleted: in a moment no prebuilt sandbox uses it. */
void pool_drop_prebuilt(struct pool *p, const char *layer);
/* Whether a limit is in force that @l does not have: written once, it cannot be unwritten. */
bool pool_limits_lifted(const struct blank *s, const struct cgroup_limits *l);
/* Whether these are the limits in force. */
bool pool_limits_same(const struct blank *s, const struct cgroup_limits *l);
/* Ends an item that was taken and does not fit after all; it is empty afterwards. */
void pool_give_up(struct pool *p, struct pool_item *it);
/* Takes both over; -ENOMEM leaves them with the caller. */
int pool_clean(struct pool *p, struct blank *s, struct root *r);
void pool_counts(struct pool *p, struct pool_counts *ret);
void pool_wait(struct pool *p, unsigned ready);
/* Removes what is kept for the next sandboxes; ready blanks stay. */
void pool_trim(struct pool *p);
