/* The inside of a pool, for the files it is made of. */
#pragma once
#include <pthread.h>

#include "engine/blank/stash.h"
#include "engine/pool/pool.h"
#include "engine/pool/prebuilt.h"

#define KEPT_MAX 64
#define WAYS 8

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
	bool waiting; /* somebody does, for one of ->spec */
	int host; /* a mount of the host's root, or -1 */
	int result; /* of the maker, for who waits: 0, or it cannot be done */
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
	pthread_cond_t changed; /* for who waits for a blank or for the end of cleaning */
	pthread_cond_t work; /* for the maker */
	pthread_cond_t dirt; /* for the janitor */
	pthread_t maker, janitor;
	bool stop;
	unsigned target, low, ready, cleaning;
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
	unsigned strangers; /* of these, who cannot have a network namespace of the guessed tenant */
	unsigned fillers; /* who waits until it is full, and for nothing else */
	unsigned few; /* as many in the making while there is no hurry */
	struct ground kept[KEPT_MAX]; /* to be used again by the same tenant */
	unsigned nkept;
	struct share share;
	struct image_host img; /* the maker's view of image `host` */
	struct way ways[WAYS];
};

static inline void pool_lock(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
}

static inline void pool_unlock(struct pool *p)
{
	pthread_mutex_unlock(&p->lock);
}

/* pool.c */
void pool_item_end(struct pool *p, struct pool_item *it);
/* Its oldest. Called locked. */
struct pool_item pool_pop(struct pool *p);
/* Starts one for @g with @start; its agent is still at work when this returns. Of the maker's thread. */
int pool_make(struct pool *p, struct blank_start *start, const struct pool_guess *g, struct pool_item *ret, struct err *e);
/* Until its agent is ready; else it is ended. */
int pool_wait_ready(struct pool *p, struct pool_item *it, struct err *e);
/* How many are in the making. Each has its place in the pool already. Of the maker's thread. */
unsigned pool_busy(const struct pool *p);
/* By the maker alone, who leaves room for it. */
void pool_admit(struct pool *p, const struct pool_item *it);

/* pool_prebuilt.c: prebuilt sandboxes. Of the maker's thread. */
/* All that a create would do but handing it out, if there is for whom. -errno: the item is of no use any more. */
int pool_prebuild(struct pool *p, struct pool_item *it);
/* In how many ns one for who is on layers should be made; UINT64_MAX: there is nobody. Called locked. */
uint64_t pool_prebuilt_wait(struct pool *p);
/* Lets go of those nobody has asked for in a while, and of all when memory is short. Not locked. */
void pool_prebuilt_check(struct pool *p);
/* Makes it, of a blank that is ready. */
void pool_prebuild_layered(struct pool *p);
/* For one that is made besides: when the pool is full, one that is ready goes. False: there is no room. */
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
