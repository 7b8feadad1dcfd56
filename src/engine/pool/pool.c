/* The threads that make sandboxes ahead and clean up behind them. */
#include "engine/pool/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pidfd.h"
#include "engine/image/procfs.h"

/* for so long after a sandbox with memory was taken, nothing is made: the restore needs the processors */
#define CALM_NS 30000000ULL
#define DEEPEN_NS 50000000ULL
#define SHALLOW_NS 5000000000ULL

bool pool_limits_lifted(const struct ground *s, const struct cgroup_limits *l)
{
	return s->limited && ((s->limits.memory && !l->memory) || (s->limits.pids && !l->pids) ||
			      (s->limits.cpu_milli && !l->cpu_milli));
}

bool pool_limits_same(const struct blank *s, const struct cgroup_limits *l)
{
	return s->limited && s->limits.memory == l->memory && s->limits.pids == l->pids &&
	       s->limits.cpu_milli == l->cpu_milli;
}

/* Takes @g over if there is room. */
static void keep_ground(struct pool *p, struct ground *g)
{
	if (!g->valid || p->nkept == KEPT_MAX || p->nkept >= p->target || p->stop)
		return;
	p->kept[p->nkept++] = *g;
	ground_init(g);
}

void pool_item_end(struct pool *p, struct pool_item *it)
{
	blank_end(p->env, &it->blank, NULL);
	premount_done(&it->premount);
	root_done(&it->root);
}

void pool_admit(struct pool *p, const struct pool_item *it)
{
	pool_lock(p);
	assert(p->ready < p->target && p->busy); /* else the ring would have it twice, and two sandboxes would be one */
	p->last_error = 0;
	*pool_at(p, p->ready) = *it;
	p->ready++;
	p->busy--;
	pthread_cond_broadcast(&p->changed);
	pool_unlock(p);
}

void pool_wait_for(struct pool *p, pthread_cond_t *what, uint64_t ns)
{
	struct timespec ts;

	p->locked_ns += clock_mono_ns() - p->locked_at;
	if (ns == UINT64_MAX) {
		pthread_cond_wait(what, &p->lock);
	} else {
		clock_gettime(CLOCK_MONOTONIC, &ts);
		ns += (uint64_t)ts.tv_nsec;
		ts.tv_sec += (time_t)(ns / 1000000000ULL);
		ts.tv_nsec = (long)(ns % 1000000000ULL);
		pthread_cond_timedwait(what, &p->lock, &ts);
	}
	p->locked_at = clock_mono_ns();
}

struct pool_item pool_pop(struct pool *p, unsigned i)
{
	struct pool_item it = *pool_at(p, i);

	*pool_at(p, i) = *pool_at(p, 0);
	p->first = (p->first + 1) % p->target;
	p->ready--;
	return it;
}

/*
 * Requests that come faster than blanks are made find none, however many makers there are: each has to wait for its agent.
 * So the pool is made deeper when that happens, and as deep as before when it did not for a while.
 */
static void deepen(struct pool *p)
{
	const uint64_t now = clock_mono_ns();

	if (p->depth == p->target || now - p->deepened < DEEPEN_NS)
		return;
	p->deepened = now;
	p->depth = 2 * p->depth < p->target ? 2 * p->depth : p->target;
}

uint64_t pool_depth_wait(struct pool *p)
{
	const uint64_t now = clock_mono_ns();

	if (p->depth == p->least)
		return UINT64_MAX;
	if (now - p->deepened >= SHALLOW_NS) {
		p->deepened = now;
		p->depth = p->depth / 2 > p->least ? p->depth / 2 : p->least;
	}
	return p->deepened + SHALLOW_NS - now;
}

bool pool_take_stale(struct pool *p, struct pool_item *ret)
{
	if (p->ready > p->depth) {
		*ret = pool_pop(p, 0);
		return true;
	}
	for (unsigned i = 0; i < p->ready; i++) {
		const uint64_t number = pool_at(p, i)->prebuilt;

		if (!number || (prebuilt_current(&p->prebuilt, number) && !pool_prebuilt_surplus(p, number)))
			continue;
		*ret = pool_pop(p, i);
		return true;
	}
	return false;
}

/* Ends a sandbox. A step that fails is retried, counted and logged. */
static void clean_one(struct pool *p, struct cleanup *c)
{
	struct err e = { 0 };
	struct ground left;
	int r;

	/* Its files are removed first, since they are charged to the memory group. */
	root_done(&c->root);
	r = blank_end_keep(p->env, &c->blank, &left, &e);
	pool_lock(p);
	keep_ground(p, &left);
	pool_unlock(p);
	ground_end(p->env, &left);
	if (r < 0)
		log_error("cleaning up a sandbox: %s", e.msg);
	pool_lock(p);
	p->cleaning--;
	pthread_cond_broadcast(&p->changed);
	pool_unlock(p);
	free(c);
}

static void *janitor_main(void *arg)
{
	struct pool *p = arg;

	pool_give_way(p, "janitor");
	pool_lock(p);
	for (;;) {
		struct cleanup *c = p->queue;

		if (!c) {
			if (p->stop)
				break;
			pool_wait_for(p, &p->dirt, UINT64_MAX);
			continue;
		}
		p->queue = c->next;
		if (!p->queue)
			p->queue_end = &p->queue;
		pool_unlock(p);
		clean_one(p, c);
		pool_lock(p);
	}
	pool_unlock(p);
	return NULL;
}

static void unreserve(struct pool *p)
{
	for (unsigned i = 0; i < p->nmakers; i++)
		for (unsigned k = 0; k < WAYS; k++)
			blank_start_done(&p->makers[i].ways[k].start);
}

/* Waits end in time, also when the wall clock is set back meanwhile. */
static void open_conds(struct pool *p)
{
	pthread_condattr_t steady;

	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &steady);
	pthread_cond_init(&p->work, &steady);
	pthread_cond_init(&p->help, &steady);
	pthread_cond_init(&p->dirt, NULL);
	pthread_condattr_destroy(&steady);
}

/*
 * How many threads. Janitors wait more than they run: for the end of processes, which waits for other processors, and for the
 * kernel's locks. On two processors one of each is busy enough.
 */
static void set_numbers(struct pool *p, unsigned target)
{
	unsigned cores = procfs_cpus(0), half;

#ifdef CLOCHE_FAULTS
	if (getenv("CLOCHE_CORES")) /* as many threads as on a larger machine */
		cores = (unsigned)strtoul(getenv("CLOCHE_CORES"), NULL, 10);
#endif
	half = cores / 2 ? cores / 2 : 1;
	/* Mounts that are staged have places in this process's mount namespace, which one maker can use. */
	p->nmakers = p->env->stage ? 1 : half < MAKERS ? half : MAKERS;
	p->njanitors = cores < 4 ? 1 : cores < JANITORS ? cores : JANITORS;
	p->nways = WAYS / p->nmakers > 2 ? WAYS / p->nmakers : 2;
	p->least = p->depth = target;
	p->target = cores < 8 ? target : cores < 32 ? target * cores / 4 : target * 8;
	/* A CPU is left for requests, where there is another. */
	p->few = cores > 1 ? cores - 1 : 1;
	p->few = p->few < p->nmakers * p->nways ? p->few : p->nmakers * p->nways;
	p->prebuilt.most = target / 8 < PREBUILT_LAYERED ? target / 8 : PREBUILT_LAYERED;
}

static void stop(struct pool *p)
{
	pool_lock(p);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->help);
	pthread_cond_broadcast(&p->dirt);
	pool_unlock(p);
}

static void join_janitors(struct pool *p)
{
	for (unsigned i = 0; i < p->njanitors; i++)
		pthread_join(p->janitors[i], NULL);
}

int pool_new(struct env *v, unsigned target, struct pool **ret, struct err *e)
{
	struct pool *p = calloc(1, sizeof(*p));
	unsigned n = 0;

	if (p) {
		p->env = v;
		set_numbers(p, target);
		p->items = calloc(p->target, sizeof(*p->items));
	}
	if (!p || !p->items) {
		free(p);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a pool");
	}
	p->queue_end = &p->queue;
	image_host_init(&p->img);
	pool_share_init(p);
	/* Reserves low descriptor numbers while they are still free. Without them, making blanks is only slower. */
	for (unsigned i = 0; i < p->nmakers; i++) {
		p->makers[i].pool = p;
		for (unsigned k = 0; k < p->nways; k++)
			blank_start_reserve(v, &p->makers[i].ways[k].start);
	}
	pthread_mutex_init(&p->lock, NULL);
	open_conds(p);
	while (n < p->njanitors && pthread_create(&p->janitors[n], NULL, janitor_main, p) == 0)
		n++;
	p->njanitors = n;
	if (!n || pthread_create(&p->makers[0].thread, NULL, pool_maker_main, &p->makers[0])) {
		stop(p);
		join_janitors(p);
		unreserve(p);
		free(p->items);
		free(p);
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "cannot start the pool's threads");
	}
	*ret = p;
	return 0;
}

unsigned pool_makers(const struct pool *p)
{
	return p ? p->nmakers : 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	stop(p);
	pthread_join(p->makers[0].thread, NULL);
	join_janitors(p);
	while (p->ready) {
		struct pool_item it = pool_pop(p, 0);

		pool_item_end(p, &it);
	}
	pool_share_done(p);
	while (p->nkept)
		ground_end(p->env, &p->kept[--p->nkept]);
	unreserve(p);
	pthread_cond_destroy(&p->changed);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->help);
	pthread_cond_destroy(&p->dirt);
	pthread_mutex_destroy(&p->lock);
	free(p->items);
	free(p);
}

/* How well an item fits the request: a prebuilt one is best, and changing network rules costs most. */
static unsigned worth(const struct pool_item *it, const struct sandbox_spec *spec)
{
	const bool net = spec->flags & SPEC_NET;
	const bool same = it->blank.steered == net && (!net || steer_same(&it->blank.rules, &spec->net));

	return (it->prebuilt ? 1U : 0U) + (same ? 2U : 0U);
}

/* Finds the oldest item that fits, prebuilt ones first; ->ready: none does. @number: that of items prebuilt for @spec. */
static unsigned find_fit(const struct pool *p, const struct sandbox_spec *spec, uint64_t number)
{
	unsigned best = p->ready;

	for (unsigned i = 0; i < p->ready; i++) {
		const struct pool_item *it = pool_at(p, i);

		if (it->blank.used && it->blank.tenant != spec->tenant)
			continue;
		if (it->prebuilt && it->prebuilt != number)
			continue;
		if (best == p->ready || worth(it, spec) > worth(pool_at(p, best), spec))
			best = i;
	}
	return best;
}

int pool_take(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret, struct err *e)
{
	const uint64_t tenant = spec->tenant;
	struct pool_item it;
	unsigned stranger;
	int r = 0;

	if (pool_share_take(p, spec, ret))
		return 0;
	pool_lock(p);
	if (spec->flags & SPEC_MEMORY)
		p->calm_until = clock_mono_ns() + CALM_NS;
	for (;;) {
		const unsigned best = find_fit(p, spec, prebuilt_number(&p->prebuilt, spec));
		const bool fit = best < p->ready;

		/* If the pool is full of items that this request cannot have, one of them is ended to make room. */
		if (fit || p->ready >= p->depth) {
			it = pool_pop(p, fit ? best : 0);
			if (it.prebuilt && spec->layers)
				pthread_cond_signal(&p->work);
			else if (p->ready <= p->depth / 2)
				pool_wake(p);
			if (fit && !pidfd_ended(it.blank.pidfd))
				break;
			pool_unlock(p);
			pool_item_end(p, &it);
			pool_lock(p);
			continue;
		}
		if (p->last_error) {
			*e = p->why;
			r = p->last_error;
			p->last_error = 0;
			break;
		}
		stranger = !p->guessed || p->guess.tenant != tenant;
		p->waiting++;
		p->strangers += stranger;
		p->filling = true;
		deepen(p);
		pool_wake(p);
		pool_wait_for(p, &p->changed, UINT64_MAX);
		p->waiting--;
		p->strangers -= stranger;
	}
	pool_unlock(p);
	if (r < 0)
		return r;
	it.blank.tenant = tenant;
	*ret = it;
	return 0;
}

void pool_learn(struct pool *p, const struct pool_guess *g, const struct sandbox_spec *spec)
{
	pool_lock(p);
	p->guess = *g;
	p->guessed = true;
	if (prebuilt_learn(&p->prebuilt, spec))
		pthread_cond_signal(&p->work);
	pool_unlock(p);
}

int pool_clean(struct pool *p, struct blank *s, struct root *r)
{
	struct cleanup *c = malloc(sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = (struct cleanup){ .blank = *s, .root = *r };
	blank_init(s);
	root_init(r);
	pool_lock(p);
	*p->queue_end = c;
	p->queue_end = &c->next;
	p->cleaning++;
	pthread_cond_signal(&p->dirt);
	pool_unlock(p);
	return 0;
}

void pool_give_up(struct pool *p, struct pool_item *it)
{
	if (!it->prebuilt)
		it->root.premount = it->premount;
	premount_init(&it->premount);
	if (pool_clean(p, &it->blank, &it->root) < 0)
		pool_item_end(p, it);
}

void pool_counts(struct pool *p, struct pool_counts *ret)
{
	pool_lock(p);
	*ret = (struct pool_counts){ p->ready, p->cleaning, p->locked_ns };
	pool_unlock(p);
}
