/* The inside of a pool, for the files it is made of. */
#pragma once
#include <pthread.h>

#include "base/clock.h"
#include "engine/blank/stash.h"
#include "engine/pool/pool.h"
#include "engine/pool/prebuilt.h"
#include "proto/memory.h"

#define KEPT_MAX 64
#define WAYS 8 /* blanks that one maker makes at the same time */
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
	unsigned busy; /* how many of ->ways are in use */
	struct way ways[WAYS];
};

#define SHARE_HOLDERS 4
#define SHARE_AHEAD 3U

struct share_holder {
	struct stash stash;
	char layer[ID_SIZE]; /* the layer whose pages it holds; "": none */
	uint64_t used; /* when it was last used, by the monotonic clock */
	bool failed; /* the layer's memory cannot be held, and there is no holder process */
	uint64_t again; /* with ->failed: the time of the next try */
	bool stale; /* its layer is being deleted */
};

/*
 * State of share.c. Only the first maker uses the holders; it changes ->layer, which others read, under the pool's
 * lock.
 */
struct share {
	bool on;
	bool look; /* the maker shall look at the holders at once */
	bool waiting; /* a request waits for a sandbox of ->spec */
	int host; /* a mount of the host's root, or -1 */
	int result; /* the maker's answer to the waiting request: 0, or -errno: it cannot be done */
	struct share_holder holder[SHARE_HOLDERS];
	char many[ID_SIZE]; /* the layer that was last requested for many sandboxes at once */
	struct sandbox_spec spec; /* the spec that was requested last */
	uint64_t asked; /* time of that request */
	struct pool_item item[SHARE_AHEAD]; /* sandboxes that were made ahead for ->spec */
	unsigned n;
	struct blank_start start;
};

struct pool {
	struct env *env;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* wakes requests that wait for a blank or for the end of cleaning */
	pthread_cond_t work; /* wakes the first maker */
	pthread_cond_t help; /* wakes the other makers */
	pthread_cond_t dirt; /* wakes the janitors */
	uint64_t locked_at, locked_ns; /* how long ->lock was held so far */
	unsigned nmakers, nways, helpers,
		/* ->nways: blanks that each maker makes at a time. ->helpers: running makers beside the first */
		njanitors;
	bool stop, idle; /* ->idle: the first maker waits */
	unsigned target; /* number of places in ->items */
	/* how many blanks should be ready: usually, and at present, after requests had to wait */
	unsigned least, depth;
	uint64_t deepened; /* time of the last change of ->depth */
	unsigned ready, cleaning;
	unsigned busy; /* places reserved for blanks that are being made */
	bool filling; /* the pool fell below its low-water mark, and is being filled again */
	uint64_t calm_until; /* while enough are ready, no blank is begun before this time */
	int last_error; /* error of the last blank; 0 after a success */
	struct err why;
	struct pool_item *items; /* a ring, oldest first */
	unsigned first;
	struct cleanup *queue, **queue_end;
	bool guessed;
	struct pool_guess guess;
	struct prebuilt prebuilt; /* the requests that sandboxes are prebuilt for */
	/* when a sandbox is made for a request on layers that has none; 0: no such request was seen yet */
	uint64_t prebuilt_due;
	/* when to check whether prebuilt sandboxes are still needed; used by the first maker only */
	uint64_t prebuilt_check;
	unsigned waiting; /* requests that wait for a blank */
	unsigned strangers; /* how many of ->waiting cannot use a network namespace of the guessed tenant */
	unsigned fillers; /* callers that wait until the pool is full */
	unsigned few; /* how many blanks are made at a time while no request waits */
	struct ground kept[KEPT_MAX]; /* what ended sandboxes have left for later ones of their tenant */
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
void pool_item_end(struct pool *p, struct pool_item *it);
/* Waits for a signal of @what, a condition of the pool, for @ns at most; UINT64_MAX: without an end. Called locked. */
void pool_wait_for(struct pool *p, pthread_cond_t *what, uint64_t ns);
/*
 * Takes out an item that should be ended: prebuilt for a request that is no longer repeated, more than its request's
 * share, or more than ->depth. Called locked.
 */
bool pool_take_stale(struct pool *p, struct pool_item *ret);
/* Returns in how many ns to check ->depth again, and lowers it when that is due. Called locked. */
uint64_t pool_depth_wait(struct pool *p);
/* Takes out the item at @i, counted from the oldest one, which gets its place. Called locked. */
struct pool_item pool_pop(struct pool *p, unsigned i);
static inline struct pool_item *pool_at(const struct pool *p, unsigned i)
{
	return &p->items[(p->first + i) % p->target];
}
/* Puts a ready item into the place that was reserved for it. */
void pool_admit(struct pool *p, const struct pool_item *it);
/* Frees a place that was reserved. */
static inline void pool_unplace(struct pool *p)
{
	pool_lock(p);
	p->busy--;
	pool_unlock(p);
}

/* maker.c */
void *pool_maker_main(void *maker);
/* Names the calling thread, a thread of the pool, and gives requests priority over it. */
void pool_give_way(struct pool *p, const char *name);
/* Wakes a maker that waits: the first one, if it does. Called locked. */
void pool_wake(struct pool *p);
/*
 * Starts a blank for @g (NULL: no request is expected) with @start; its agent is still setting up when this returns.
 * @old: a recycled slot may be used. In a maker's thread.
 */
int pool_make(struct pool *p, struct blank_start *start, const struct pool_guess *g, bool old, struct pool_item *ret,
	      struct err *e);
/* Waits until the agent is ready. On failure the item is ended. */
int pool_wait_ready(struct pool *p, struct pool_item *it, struct err *e);

/* pool_prebuilt.c: prebuilt sandboxes. These functions run in a maker's thread. */
/*
 * If a request is expected that fits the item: does all that a create does except handing it out. -errno: the item
 * cannot be used any more.
 */
int pool_prebuild(struct pool *p, struct pool_item *it);
/* Whether request @number has more prebuilt sandboxes than its share, while another has fewer. Called locked. */
bool pool_prebuilt_surplus(struct pool *p, uint64_t number);
/* In how many ns a prebuilt sandbox on layers should be made; UINT64_MAX: none is expected. Called locked. */
uint64_t pool_prebuilt_wait(struct pool *p);
/*
 * Ends prebuilt sandboxes that were not requested for a while, and all of them when memory is short. Not called locked.
 */
void pool_prebuilt_check(struct pool *p);
/* Makes a prebuilt sandbox on layers from a ready blank. */
void pool_prebuild_layered(struct pool *p);
/*
 * Reserves a place for a sandbox that is not made from a blank of the pool. If the pool is full, a ready blank is ended
 * for it. False: there is no room.
 */
bool pool_make_room(struct pool *p);
/*
 * Opens the memory image of @spec's newest layer: META, its pages, and those of the images that it is based on. Returns
 * the number of descriptors, or -errno. @fds has room for 1 + MEM_PAGE_FILES; what is open is the caller's in any case.
 */
int pool_open_image(const struct pool *p, const struct sandbox_spec *spec, int *fds, struct mem_head *ret);
bool pool_memory_short(void);

/* share.c: sandboxes that share their memory. */
void pool_share_init(struct pool *p);
void pool_share_done(struct pool *p); /* call it after the makers have ended */
/* Takes a sandbox of @spec that shares its memory, and waits for it. False: an ordinary sandbox is as good. */
bool pool_share_take(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret);
/* In the maker's thread: makes a ready sandbox of @spec that shares its memory. False: it cannot be done. */
bool pool_share_make(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret);
/* In how many ns the maker has to call pool_share_step(). Called locked. */
uint64_t pool_share_wait(const struct pool *p);
void pool_share_step(struct pool *p);
/* The layer is being deleted. Called locked. */
void pool_share_forget(struct pool *p, const char *layer);
