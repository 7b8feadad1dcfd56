/* The inside of a pool, for the files it is made of. */
#pragma once
#include <pthread.h>

#include "base/clock.h"
#include "engine/blank/stash.h"
#include "engine/pool/pool.h"
#include "engine/pool/prebuilt.h"

#define KEPT_MAX 64
#define WAYS 8 /* blanks in the making, of one maker */
#define MAKERS 8
#define JANITORS 16

struct cleanup {
	struct cleanup *next;
	struct blank blank;
	struct root root;
};

/* One blank in the making: while its agent works, the next is begun. */
struct way {
	struct blank_start start;
	struct pool_item item;
	uint64_t since;
	bool busy;
};

/* A thread that makes blanks (maker.c). */
struct maker {
	struct pool *pool;
	pthread_t thread;
	unsigned busy; /* of ->ways */
	struct way ways[WAYS];
};

#define SHARE_HOLDERS 4
#define SHARE_AHEAD 3U

struct share_holder {
	struct stash stash;
	char layer[ID_SIZE]; /* "": none */
	uint64_t used; /* when, by the monotonic clock */
	bool failed; /* it cannot be held: there is no process */
	uint64_t again; /* then: when that is tried again */
	bool stale; /* its layer goes */
};

/* share.c. Holders are the maker's; it changes what others look at (->layer) locked. */
struct share {
	bool on;
	bool look; /* at the holders, now */
	bool waiting; /* a request waits for one of ->spec */
	int host; /* a mount of the host's root, or -1 */
	int result; /* of the maker, for the waiting request: 0, or it cannot be done */
	struct share_holder holder[SHARE_HOLDERS];
	char many[ID_SIZE]; /* the layer that many were asked for of, last */
	struct sandbox_spec spec; /* asked for last */
	uint64_t asked; /* when */
	struct pool_item item[SHARE_AHEAD]; /* made for it */
	unsigned n;
	struct blank_start start;
};

struct pool {
	struct env *env;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* for requests that wait for a blank, and for the end of cleaning */
	pthread_cond_t work; /* for the first maker */
	pthread_cond_t help; /* for the others */
	pthread_cond_t dirt; /* for the janitors */
	uint64_t locked_at, locked_ns; /* how long ->lock was held so far */
	unsigned nmakers, nways, helpers,
		njanitors; /* ->nways: of each maker. ->helpers: makers beside the first that run */
	bool stop, idle; /* ->idle: the first maker waits */
	unsigned target; /* places in ->items */
	unsigned least, depth; /* so many are to be ready: usually, and now, since requests had to wait */
	uint64_t deepened; /* when ->depth was changed last */
	unsigned ready, cleaning;
	unsigned busy; /* places that are taken by what is in the making */
	bool filling; /* below the low-water mark: fill up again */
	uint64_t calm_until; /* not before that, while there are enough */
	int last_error; /* of the maker; 0 after a success */
	struct err why;
	struct pool_item *items; /* a ring, oldest first */
	unsigned first;
	struct cleanup *queue, **queue_end;
	bool guessed;
	struct pool_guess guess;
	struct prebuilt prebuilt; /* which requests sandboxes are prebuilt for */
	uint64_t prebuilt_due; /* when one is made for a request on layers that has none; 0 = not seen yet */
	uint64_t prebuilt_check; /* when to look whether they still have to; the maker's own */
	unsigned waiting; /* requests that found nothing for them */
	unsigned strangers; /* of these, the ones that cannot use a network namespace of the guessed tenant */
	unsigned fillers; /* callers that only wait until it is full */
	unsigned few; /* as many in the making while there is no hurry */
	struct ground kept[KEPT_MAX]; /* to be used again by the same tenant */
	unsigned nkept;
	struct share share;
	struct image_host img; /* the maker's view of image `host` */
	pthread_t janitors[JANITORS];
	struct maker makers[MAKERS];
};

static inline void pool_lock(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->locked_at = clock_mono_ns();
}

static inline void pool_unlock(struct pool *p)
{
	p->locked_ns += clock_mono_ns() - p->locked_at;
	pthread_mutex_unlock(&p->lock);
}

/* pool.c */
/* Whether a limit is in force that @want does not have. */
bool pool_lifted(bool limited, const struct cgroup_limits *have, const struct cgroup_limits *want);
void pool_item_end(struct pool *p, struct pool_item *it);
/* Waits for a signal of @what, a condition of the pool, for @ns at most; UINT64_MAX: without an end. Called locked. */
void pool_wait_for(struct pool *p, pthread_cond_t *what, uint64_t ns);
/* One that is prebuilt for a request that is no longer repeated, has more than its share, or is more than ->depth. Called locked. */
bool pool_take_stale(struct pool *p, struct pool_item *ret);
/* In how many ns ->depth is to be looked at; makes it smaller when that is due. Called locked. */
uint64_t pool_depth_wait(struct pool *p);
/* Its oldest. Called locked. */
struct pool_item pool_pop(struct pool *p);
/* Takes in one that is ready, in the place that was taken for it. */
void pool_admit(struct pool *p, const struct pool_item *it);
/* Gives that place back. */
static inline void pool_unplace(struct pool *p)
{
	pool_lock(p);
	p->busy--;
	pool_unlock(p);
}

/* maker.c */
void *pool_maker_main(void *maker);
/* For a thread of the pool: its name, and that requests go first. */
void pool_give_way(struct pool *p, const char *name);
/* A maker that waits looks for work: the first, if it waits. Called locked. */
void pool_wake(struct pool *p);
/* Starts one for @g with @start; its agent is still at work when this returns. Of a maker's thread. */
int pool_make(struct pool *p, struct blank_start *start, const struct pool_guess *g, struct pool_item *ret,
	      struct err *e);
/* Until its agent is ready; else it is ended. */
int pool_wait_ready(struct pool *p, struct pool_item *it, struct err *e);

/* pool_prebuilt.c: prebuilt sandboxes. Of the maker's thread. */
/* All that a create would do but handing it out, if a request is expected. -errno: the item is of no use any more. */
int pool_prebuild(struct pool *p, struct pool_item *it);
/* Whether there are more of them than their request's share, while others have fewer. Called locked. */
bool pool_prebuilt_surplus(struct pool *p, uint64_t number);
/* In how many ns a prebuilt sandbox on layers should be made; UINT64_MAX: none is expected. Called locked. */
uint64_t pool_prebuilt_wait(struct pool *p);
/* Gives up those that were not asked for in a while, and all when memory is short. Not locked. */
void pool_prebuilt_check(struct pool *p);
/* Makes it, of a blank that is ready. */
void pool_prebuild_layered(struct pool *p);
/* Takes a place for one that is made besides: when the pool is full, one that is ready goes. False: there is no room. */
bool pool_make_room(struct pool *p);
/* The pages of a layer of @spec's. As layers.c opens them: no process sees a path of the host. */
int pool_open_pages(const struct pool *p, const struct sandbox_spec *spec, const char *id);
bool pool_memory_short(void);

/* share.c: sandboxes that share their memory. */
void pool_share_init(struct pool *p);
void pool_share_done(struct pool *p); /* when the maker has ended */
/* For @spec, if that is worth while; false: an ordinary one does. Waits for it. */
bool pool_share_take(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret);
/* Of the maker's thread: one for @spec, ready. False: it cannot be done. */
bool pool_share_make(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret);
/* In how many ns the maker has something to do. Called locked. */
uint64_t pool_share_wait(const struct pool *p);
void pool_share_step(struct pool *p);
/* A layer goes. Called locked. */
void pool_share_forget(struct pool *p, const char *layer);
