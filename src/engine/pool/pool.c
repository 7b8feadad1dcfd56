#include "engine/pool/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/blank/minimal_mntns.h"
#include "engine/blank/persist.h"
#include "engine/blank/score.h"
#include "engine/image/procfs.h"
#include "engine/pool/limit.h"
#include "engine/rootfs/writable.h"
#include "linux/sched_slice.h"
#include "proto/frame.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#define READY_NS 10000000000ULL
/* A failed make is tried again after this, so that a host that is out of something is not hammered. */
#define PAUSE_NS 200000000ULL
#define CALM_NS 30000000ULL /* since a sandbox was taken that is then restored: its processes need the processors */
#define WRITABLE_SIZE (64 * MIB) /* of the layer for who asked for no limit */
#define WRITABLE_INODES 4096U

static bool lifted(bool limited, const struct cgroup_limits *have, const struct cgroup_limits *want)
{
	return limited && ((have->memory && !want->memory) || (have->pids && !want->pids) ||
			   (have->cpu_milli && !want->cpu_milli));
}

bool pool_limits_lifted(const struct blank *s, const struct cgroup_limits *l)
{
	return lifted(s->limited, &s->limits, l);
}

bool pool_limits_same(const struct blank *s, const struct cgroup_limits *l)
{
	return s->limited && s->limits.memory == l->memory && s->limits.pids == l->pids &&
	       s->limits.cpu_milli == l->cpu_milli;
}

/* The last one this tenant left. */
static void find_ground(struct pool *p, uint64_t tenant, struct ground *ret)
{
	for (unsigned i = p->nkept; i-- > 0;) {
		if (p->kept[i].tenant != tenant)
			continue;
		*ret = p->kept[i];
		p->kept[i] = p->kept[--p->nkept];
		return;
	}
}

/* Takes @g over as far as there is room. */
static void keep_ground(struct pool *p, struct ground *g)
{
	if (!g->valid || p->nkept == KEPT_MAX || p->nkept >= p->target || p->stop)
		return;
	p->kept[p->nkept++] = *g;
	ground_init(g);
}

/* Until the agent is dead: what it started on is in use no longer. */
static void wait_start(const struct blank *s)
{
	struct pollfd p = { .fd = s->pidfd, .events = POLLIN };

	sys_pidfd_send_signal(s->pidfd, SIGKILL);
	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

void pool_item_end(struct pool *p, struct pool_item *it)
{
	blank_end(p->env, &it->blank, NULL);
	premount_done(&it->premount);
	root_done(&it->root);
}

/* Everything a create does not have to wait for, for whom the guess says. */
static int prepare(struct pool *p, const struct pool_guess *g, struct pool_item *it, struct err *e)
{
	/* A limit can be lifted later, but none be set where there was none. */
	const struct writable_opts o = { .size = g->size ? g->size : WRITABLE_SIZE, .inodes = g->inodes ? g->inodes : WRITABLE_INODES,
				      .uid_base = it->blank.uid_base };
	int r;

	/* A staged mount must be made in the namespace that will use it, which this thread is not in. */
	if (!p->env->stage) {
		r = premount_make(p->env, &p->img, &it->blank, &o, g->cpus, &it->premount, e);
		if (r < 0)
			return r;
	}
	if (pool_limits_same(&it->blank, &g->limits))
		return 0;
	r = cgroup_limit(&p->env->cgroups, &it->blank.cgroup, &g->limits, e);
	it->blank.limits = g->limits;
	it->blank.limited = r == 0;
	return r;
}

/* @g: NULL when nothing is known of who will have it. @old: what others have left may be used. */
static int make(struct pool *p, struct blank_start *start, const struct pool_guess *g, bool old, struct pool_item *ret,
		struct err *e)
{
	struct pool_item it = { 0 };
	struct ground ground;
	int r;

	premount_init(&it.premount);
	root_init(&it.root);
	ground_init(&ground);
	if (g && old) {
		pool_lock(p);
		find_ground(p, g->tenant, &ground);
		pool_unlock(p);
	}
	if (ground.valid && lifted(ground.limited, &ground.limits, &g->limits))
		ground_end(p->env, &ground);
	start->ground = &ground;
	start->keep_net = true;
	start->steer = g && g->net ? &g->rules : NULL;
	start->image = p->img.base >= 0 ? &p->img : &p->env->image;
	r = blank_make(p->env, start, p->env->controllers, 0, &it.blank, e);
	/* Who has no use for a network must not suffer from one that cannot be made; who has is told when asking. */
	if (r < 0 && start->steer && r != -EPIPE && r != -ETIMEDOUT) {
		log_warn("cannot prepare a network: %s", e->msg);
		start->steer = NULL;
		r = blank_make(p->env, start, p->env->controllers, 0, &it.blank, e);
	}
	if (r < 0)
		return r;
	if (g)
		r = prepare(p, g, &it, e);
	if (r < 0) {
		wait_start(&it.blank);
		blank_start_release(p->env, start);
		pool_item_end(p, &it);
		return r;
	}
	*ret = it;
	return 0;
}

int pool_make(struct pool *p, struct blank_start *start, const struct pool_guess *g, struct pool_item *ret, struct err *e)
{
	return make(p, start, g, true, ret, e);
}

/* Starts one; its agent is still at work when this returns. */
static int start_one(struct pool *p, struct way *w, struct err *e)
{
	struct pool_guess g;
	bool guessed, old;
	int r;

	pool_lock(p);
	guessed = p->guessed;
	g = p->guess;
	old = !p->strangers;
	pool_unlock(p);
	r = make(p, &w->start, guessed ? &g : NULL, old, &w->item, e);
	if (r < 0)
		return r;
	w->since = clock_mono_ns();
	w->busy = true;
	return 0;
}

/*
 * What its agent said first, left on the socket for who will have the sandbox: 1 = READY, 0 = nothing yet, or why it
 * gave up. A socket whose other end is closed can be read as well, so that it can be read says nothing.
 */
static int first_frame(const struct blank *s, int started, struct err *e)
{
	uint8_t data[64];
	struct iovec iov = { data, sizeof(data) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n = sys_recvmsg(s->sock, &m, MSG_PEEK | MSG_DONTWAIT);
	struct frame_failed x = { 0 };
	struct frame f;

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n > 0 && frame_decode(data, (size_t)n, &f) > 0) {
		if (f.type == FRAME_READY)
			return 1;
		if (f.type == FRAME_FAILED && frame_failed_decode(&f, &x) == 0 && x.errnum)
			return err_sys(e, ERR_UNSUPPORTED, -(int)x.errnum, "make a sandbox: %s",
				       frame_stage_text(x.stage));
	}
	if (n >= 0)
		n = started < 0 ? started : -EPIPE;
	return err_sys(e, ERR_LOST, (int)n, "the agent did not start");
}

int pool_wait_ready(struct pool *p, struct pool_item *it, struct err *e)
{
	struct pollfd polls[] = { { .fd = it->blank.sock, .events = POLLIN }, { .fd = it->blank.pidfd, .events = POLLIN } };
	const uint64_t until = clock_mono_ns() + READY_NS;
	int said = 0;

	while (said == 0 && clock_mono_ns() < until)
		if (poll(polls, ARRAY_LEN(polls), 1000) > 0)
			said = first_frame(&it->blank, 0, e);
	if (said > 0 && score_set(&it->blank, e) == 0)
		return 0;
	said = said > 0 ? -ECHILD : said;
	pool_item_end(p, it);
	return said < 0 ? -ECHILD : err_sys(e, ERR_LOST, -EAGAIN, "the agent did not start");
}

void pool_admit(struct pool *p, const struct pool_item *it)
{
	pool_lock(p);
	assert(p->ready < p->target); /* else the ring would have it twice, and two sandboxes would be one */
	p->last_error = 0;
	p->items[(p->first + p->ready) % p->target] = *it;
	p->ready++;
	pthread_cond_broadcast(&p->changed);
	pool_unlock(p);
}

/* Takes in whose agents are ready, waiting for one when @wait_ms says so. Returns 0, or -errno of one that failed. */
static int collect(struct pool *p, int wait_ms, struct err *e)
{
	struct pollfd polls[2 * WAYS];
	int r = 0;

	for (unsigned i = 0; i < WAYS; i++) {
		const struct way *w = &p->ways[i];

		polls[i] = (struct pollfd){ .fd = w->busy ? w->item.blank.sock : -1, .events = POLLIN };
		/* We have a copy of the agent's end: its death alone does not close it. */
		polls[WAYS + i] = (struct pollfd){ .fd = w->busy ? w->item.blank.pidfd : -1, .events = POLLIN };
	}
	if (poll(polls, 2 * WAYS, wait_ms) < 0)
		return errno == EINTR ? 0 : -errno;
	for (unsigned i = 0; i < WAYS; i++) {
		struct way *w = &p->ways[i];
		int said;

		if (!w->busy)
			continue;
		said = 0;
		if (polls[i].revents || polls[WAYS + i].revents) {
			blank_start_release(p->env, &w->start);
			said = first_frame(&w->item.blank, w->start.error, e);
			if (said > 0 && score_set(&w->item.blank, e) < 0)
				said = -ECHILD;
		}
		if (said == 0 && clock_mono_ns() - w->since > READY_NS)
			said = err_sys(e, ERR_LOST, -ETIMEDOUT, "the agent did not start");
		if (said == 0)
			continue;
		w->busy = false;
		if (said > 0 && pool_prebuild(p, &w->item) == 0) {
			pool_admit(p, &w->item);
			continue;
		}
		r = said < 0 ? said : r;
		pool_item_end(p, &w->item);
		blank_start_release(p->env, &w->start);
	}
	return r;
}

static struct way *free_way(struct pool *p)
{
	for (unsigned i = 0; i < WAYS; i++)
		if (!p->ways[i].busy)
			return &p->ways[i];
	return NULL;
}

unsigned pool_busy(const struct pool *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < WAYS; i++)
		n += p->ways[i].busy;
	return n;
}

static void pause_for(struct pool *p, uint64_t ns)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ns += (uint64_t)ts.tv_nsec;
	ts.tv_sec += (time_t)(ns / 1000000000ULL);
	ts.tv_nsec = (long)(ns % 1000000000ULL);
	pthread_cond_timedwait(&p->work, &p->lock, &ts);
}

/* A prebuilt sandbox may have taken the place by now. */
static bool has_room(struct pool *p)
{
	bool room;

	pool_lock(p);
	room = p->ready + pool_busy(p) < p->target;
	pool_unlock(p);
	return room;
}

/* How long nothing is made, since sandboxes are being restored and there are enough for others. 0: it is. Called locked. */
static uint64_t calm(const struct pool *p)
{
	const uint64_t now = clock_mono_ns();

	return p->calm_until <= now || p->waiting || p->fillers || p->ready <= p->low / 2 ? 0 : p->calm_until - now;
}

/* Whether one more should be started. Called locked. */
static bool wants_more(struct pool *p, unsigned busy)
{
	if (p->ready + busy <= p->low || p->waiting > busy)
		p->filling = true;
	if (p->ready >= p->target)
		p->filling = false;
	if (!p->filling || p->ready + busy >= p->target || calm(p))
		return false;
	/*
	 * What is in the making competes with the requests it is made for. One after the other it takes no longer, and a
	 * command finds a free CPU; many at once are for when nothing is left.
	 */
	return busy < p->few || p->waiting || p->fillers || p->ready <= p->low / 2;
}

struct pool_item pool_pop(struct pool *p)
{
	struct pool_item it = p->items[p->first];

	p->first = (p->first + 1) % p->target;
	p->ready--;
	return it;
}

/* One that is prebuilt for a request that is no longer repeated. Called locked. */
static bool take_stale(struct pool *p, struct pool_item *ret)
{
	for (unsigned i = 0; i < p->ready; i++) {
		struct pool_item *it = &p->items[(p->first + i) % p->target];

		if (!it->prebuilt || prebuilt_current(&p->prebuilt, it->prebuilt))
			continue;
		*ret = *it;
		*it = p->items[p->first];
		pool_pop(p);
		return true;
	}
	return false;
}

/* One step of the maker: start one, take one in, or wait. */
static int step(struct pool *p, struct err *e)
{
	unsigned busy = pool_busy(p);
	struct way *way = free_way(p);
	struct pool_item stale;
	bool more, drop;
	uint64_t wait, share, rest;
	int r = 0;

	pool_prebuilt_check(p);
	pool_lock(p);
	more = wants_more(p, busy);
	drop = take_stale(p, &stale);
	wait = p->waiting ? UINT64_MAX : pool_prebuilt_wait(p);
	share = pool_share_wait(p);
	rest = p->filling ? calm(p) : 0;
	rest = rest ? rest : UINT64_MAX;
	if (!more && !busy && !drop && !p->stop && wait == UINT64_MAX && share == UINT64_MAX && rest == UINT64_MAX)
		pthread_cond_wait(&p->work, &p->lock);
	else if (!more && !busy && !drop && !p->stop && wait && share) {
		rest = rest < wait ? rest : wait;
		pause_for(p, rest < share ? rest : share);
	}
	pool_unlock(p);
	if (drop)
		pool_give_up(p, &stale);
	if (share != UINT64_MAX)
		pool_share_step(p);
	if (!wait)
		pool_prebuild_layered(p);
	if (more && way && has_room(p))
		r = start_one(p, way, e);
	if (r == 0 && pool_busy(p))
		r = collect(p, (more && free_way(p)) || !share ? 0 : (int)(READY_NS / 1000000), e);
	return r;
}

/*
 * A request that comes goes first. Neither step is needed. With us in their group, sandboxes compete with what is made for
 * them as equals, one against one; outside, all of them together would have to wait for us whenever they had their part.
 */
static void give_way(struct pool *p)
{
	cgroup_host_join_cpu(&p->env->cgroups);
	sched_slice_long();
}

static void *maker_main(void *arg)
{
	struct pool *p = arg;
	struct err e = { 0 };
	int r = 0;

	give_way(p);
	/* What is staged can only be copied where it is attached. */
	if (!p->env->stage)
		r = minimal_mntns_enter(p->env, &p->img, &e);
	pool_lock(p);
	while (!p->stop) {
		if (r < 0) {
			p->last_error = r;
			p->why = e;
			pthread_cond_broadcast(&p->changed);
			pause_for(p, PAUSE_NS);
		}
		pool_unlock(p);
		r = step(p, &e);
		pool_lock(p);
	}
	pool_unlock(p);
	for (unsigned i = 0; i < WAYS; i++) {
		if (!p->ways[i].busy)
			continue;
		wait_start(&p->ways[i].item.blank);
		pool_item_end(p, &p->ways[i].item);
	}
	image_host_done(&p->img);
	return NULL;
}

/* Ends one; a step that fails is tried again, and never forgotten silently. */
static void clean_one(struct pool *p, struct cleanup *c)
{
	struct err e = { 0 };
	struct ground left;
	int r;

	/* Its files first: they are charged to the memory group. */
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

	give_way(p);
	pool_lock(p);
	for (;;) {
		struct cleanup *c = p->queue;

		if (!c) {
			if (p->stop)
				break;
			pthread_cond_wait(&p->dirt, &p->lock);
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
	for (unsigned i = 0; i < WAYS; i++)
		blank_start_done(&p->ways[i].start);
}

/* Waits end in time, also when the wall clock is set back meanwhile. */
static void open_conds(struct pool *p)
{
	pthread_condattr_t steady;

	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &steady);
	pthread_cond_init(&p->work, &steady);
	pthread_cond_init(&p->dirt, NULL);
	pthread_condattr_destroy(&steady);
}

int pool_new(struct env *v, unsigned target, struct pool **ret, struct err *e)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (p)
		p->items = calloc(target, sizeof(*p->items));
	if (!p || !p->items) {
		free(p);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a pool");
	}
	p->env = v;
	p->target = target;
	p->low = target / 2;
	p->prebuilt.most = target / 8 < PREBUILT_LAYERED ? target / 8 : PREBUILT_LAYERED;
	/* A CPU is left for requests, where there is another. */
	p->few = procfs_cpus(0) > 1 ? procfs_cpus(0) - 1 : 1;
	p->few = p->few < WAYS ? p->few : WAYS;
	p->queue_end = &p->queue;
	image_host_init(&p->img);
	pool_share_init(p);
	/* Now, while the numbers are low. Without them it is only slower. */
	for (unsigned i = 0; i < WAYS; i++)
		blank_start_reserve(v, &p->ways[i].start);
	pthread_mutex_init(&p->lock, NULL);
	open_conds(p);
	if (pthread_create(&p->janitor, NULL, janitor_main, p)) {
		unreserve(p);
		free(p->items);
		free(p);
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "cannot start the pool's threads");
	}
	if (pthread_create(&p->maker, NULL, maker_main, p)) {
		pool_lock(p);
		p->stop = true;
		pthread_cond_broadcast(&p->dirt);
		pool_unlock(p);
		pthread_join(p->janitor, NULL);
		unreserve(p);
		free(p->items);
		free(p);
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "cannot start the pool's threads");
	}
	*ret = p;
	return 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	pool_lock(p);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_cond_broadcast(&p->dirt);
	pool_unlock(p);
	pthread_join(p->maker, NULL);
	pthread_join(p->janitor, NULL);
	while (p->ready) {
		struct pool_item it = pool_pop(p);

		pool_item_end(p, &it);
	}
	pool_share_done(p);
	while (p->nkept)
		ground_end(p->env, &p->kept[--p->nkept]);
	unreserve(p);
	pthread_cond_destroy(&p->changed);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->dirt);
	pthread_mutex_destroy(&p->lock);
	free(p->items);
	free(p);
}

static bool dead(const struct blank *s)
{
	struct pollfd p = { .fd = s->pidfd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* How little is left to do: a prebuilt one is the best, and other network rules cost most. */
static unsigned worth(const struct pool_item *it, const struct sandbox_spec *spec)
{
	const bool net = spec->flags & SPEC_NET;
	const bool same = it->blank.steered == net && (!net || steer_same(&it->blank.rules, &spec->net));

	return (it->prebuilt ? 1U : 0U) + (same ? 2U : 0U);
}

/* Brings the oldest that fits to the front, a prebuilt one before others. @number: of those prebuilt for @spec. */
static bool find_fit(struct pool *p, const struct sandbox_spec *spec, uint64_t number)
{
	struct pool_item *best = NULL, first;

	for (unsigned i = 0; i < p->ready; i++) {
		struct pool_item *it = &p->items[(p->first + i) % p->target];

		if (it->blank.used && it->blank.tenant != spec->tenant)
			continue;
		if (it->prebuilt && it->prebuilt != number)
			continue;
		if (!best || worth(it, spec) > worth(best, spec))
			best = it;
	}
	if (!best)
		return false;
	first = p->items[p->first];
	p->items[p->first] = *best;
	*best = first;
	return true;
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
		bool fit = find_fit(p, spec, prebuilt_number(&p->prebuilt, spec));

		/* Full of what only others may have: one of them makes room. */
		if (fit || p->ready == p->target) {
			it = pool_pop(p);
			if (p->ready <= p->low || (it.prebuilt && spec->layers))
				pthread_cond_signal(&p->work);
			if (fit && !dead(&it.blank))
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
		pthread_cond_signal(&p->work);
		pthread_cond_wait(&p->changed, &p->lock);
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
	*ret = (struct pool_counts){ p->ready, p->cleaning };
	pool_unlock(p);
}

void pool_wait(struct pool *p, unsigned ready)
{
	if (ready > p->target)
		ready = p->target;
	pool_lock(p);
	p->fillers++;
	if (p->ready < ready) {
		p->filling = true;
		pthread_cond_signal(&p->work);
	}
	while (p->ready < ready && !p->last_error)
		pthread_cond_wait(&p->changed, &p->lock);
	while (p->cleaning)
		pthread_cond_wait(&p->changed, &p->lock);
	p->fillers--;
	pool_unlock(p);
}

void pool_trim(struct pool *p)
{
	for (;;) {
		struct ground g;

		ground_init(&g);
		pool_lock(p);
		if (p->nkept)
			g = p->kept[--p->nkept];
		pool_unlock(p);
		if (!g.valid)
			return;
		ground_end(p->env, &g);
	}
}
