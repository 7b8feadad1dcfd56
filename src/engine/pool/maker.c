/*
 * The threads that make blanks, as many as the processors make useful. Each has some blanks in the making, and all of them
 * share one mount namespace. The first one also does what is not for the next best request: prebuilt sandboxes on
 * layers, holders, and giving up what became stale. The others are woken one by the other, when there is more to begin
 * than is begun already: on a machine with little to do, one makes everything.
 */
#include "engine/pool/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pidfd.h"
#include "base/sys.h"
#include "engine/blank/minimal_mntns.h"
#include "engine/blank/score.h"
#include "engine/rootfs/writable.h"
#include "linux/sched_slice.h"
#include "proto/frame.h"

#include <linux/prctl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READY_NS 10000000000ULL
/* A failed make is tried again after this, so that a host that is out of something is not hammered. */
#define PAUSE_NS 200000000ULL
#define WRITABLE_SIZE (64 * MIB) /* size of the writable layer for requests without a limit */
#define WRITABLE_INODES 4096U

/* Takes what the last ended sandbox of this tenant has left. */
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

/* Waits until the agent is dead, so that its struct blank_start can be reused. */
static void wait_start(const struct blank *s)
{
	sys_pidfd_send_signal(s->pidfd, SIGKILL);
	pidfd_wait(s->pidfd, -1);
}

/* Prepares for the expected request all that a create then need not wait for. */
static int prepare(struct pool *p, const struct pool_guess *g, struct pool_item *it, struct err *e)
{
	/* A size limit can be raised later, but cannot be added to a layer that was made without one. */
	const struct writable_opts o = { .size = g->size ? g->size : WRITABLE_SIZE,
					 .inodes = g->inodes ? g->inodes : WRITABLE_INODES,
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

int pool_make(struct pool *p, struct blank_start *start, const struct pool_guess *g, bool old, struct pool_item *ret,
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
	if (ground.valid && pool_limits_lifted(&ground, &g->limits))
		ground_end(p->env, &ground);
	start->ground = &ground;
	start->keep_net = true;
	start->cpus = g ? g->cpus : 0;
	start->steer = g && g->net ? &g->rules : NULL;
	start->image = p->img.base >= 0 ? &p->img : &p->env->image;
	r = blank_make(p->env, start, p->env->controllers, 0, &it.blank, e);
	/*
	 * A sandbox without a network must not suffer when a network cannot be made; one with a network gets the error
	 * in its request.
	 */
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

/* Starts a blank; its agent is still setting up when this returns. */
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
	r = pool_make(p, &w->start, guessed ? &g : NULL, old, &w->item, e);
	if (r < 0)
		return r;
	w->since = clock_mono_ns();
	w->busy = true;
	return 0;
}

/*
 * The agent's first frame, which is left on the socket for the later client: 1 = READY, 0 = none yet, or the reason of
 * its failure. A socket whose other end is closed is readable as well, so poll() is not enough.
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
	struct pollfd polls[] = { { .fd = it->blank.sock, .events = POLLIN },
				  { .fd = it->blank.pidfd, .events = POLLIN } };
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

/*
 * Moves blanks whose agents are ready to the pool; waits up to @wait_ms for one. Returns 0, or -errno of a blank that
 * failed.
 */
static int collect(struct maker *m, int wait_ms, struct err *e)
{
	struct pollfd polls[2 * WAYS];
	struct pool *p = m->pool;
	int r = 0;

	for (unsigned i = 0; i < WAYS; i++) {
		const struct way *w = &m->ways[i];

		polls[i] = (struct pollfd){ .fd = w->busy ? w->item.blank.sock : -1, .events = POLLIN };
		/*
		 * We have a copy of the agent's end, so the agent's death does not close the socket; its pidfd shows
		 * it.
		 */
		polls[WAYS + i] = (struct pollfd){ .fd = w->busy ? w->item.blank.pidfd : -1, .events = POLLIN };
	}
	if (poll(polls, 2 * WAYS, wait_ms) < 0)
		return errno == EINTR ? 0 : -errno;
	for (unsigned i = 0; i < WAYS; i++) {
		struct way *w = &m->ways[i];
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
		m->busy--;
		if (said > 0 && pool_prebuild(p, &w->item) == 0) {
			pool_admit(p, &w->item);
			continue;
		}
		pool_unplace(p);
		r = said < 0 ? said : r;
		pool_item_end(p, &w->item);
		blank_start_release(p->env, &w->start);
	}
	return r;
}

static struct way *free_way(struct maker *m)
{
	for (unsigned i = 0; i < m->pool->nways; i++)
		if (!m->ways[i].busy)
			return &m->ways[i];
	return NULL;
}

/*
 * How long to make nothing, because sandboxes are being restored and enough blanks are ready. 0: make more. Called
 * locked.
 */
static uint64_t calm(const struct pool *p)
{
	const uint64_t now = clock_mono_ns();

	return p->calm_until <= now || p->waiting || p->fillers || p->ready <= p->depth / 4 ? 0 : p->calm_until - now;
}

/* Whether one more should be started. Called locked. */
static bool wants_more(struct pool *p)
{
	if (p->ready + p->busy <= p->depth / 2 || p->waiting > p->busy)
		p->filling = true;
	if (p->ready >= p->depth)
		p->filling = false;
	if (!p->filling || p->ready + p->busy >= p->depth || calm(p))
		return false;
	/*
	 * Making blanks competes with requests for the processors. Made one after the other, they take no longer, and a
	 * command finds a free CPU. Many are made at once only when few are left.
	 */
	return p->busy < p->few || p->waiting || p->fillers || p->ready <= p->depth / 4;
}

void pool_wake(struct pool *p)
{
	pthread_cond_signal(p->idle || !p->helpers ? &p->work : &p->help);
}

/* Reserves a place if another blank should be made, and wakes another maker if even more are wanted. */
static bool take_place(struct maker *m)
{
	struct pool *p = m->pool;
	bool more = free_way(m) && wants_more(p);

	p->busy += more;
	if (p->helpers && wants_more(p))
		pthread_cond_signal(&p->help);
	return more;
}

/* Starts a blank in its reserved place; its agent is still setting up when this returns. */
static int fill_place(struct maker *m, struct err *e)
{
	struct way *w = free_way(m);
	int r = start_one(m->pool, w, e);

	if (r < 0)
		pool_unplace(m->pool);
	else
		m->busy++;
	return r;
}

/* One step of a maker: start a blank, take in a finished one, or wait. The first maker does all other work, too. */
static int step(struct maker *m, struct err *e)
{
	struct pool *p = m->pool;
	const bool first = m == p->makers;
	uint64_t wait = UINT64_MAX, share = UINT64_MAX, rest = UINT64_MAX, deep;
	struct pool_item stale;
	bool more, drop = false;
	int r = 0;

	if (first)
		pool_prebuilt_check(p);
	pool_lock(p);
	more = take_place(m);
	if (first) {
		drop = pool_take_stale(p, &stale);
		deep = pool_depth_wait(p);
		wait = p->waiting ? UINT64_MAX : pool_prebuilt_wait(p);
		wait = deep < wait ? deep : wait;
		share = pool_share_wait(p);
		rest = p->filling ? calm(p) : 0;
		rest = rest && rest < wait ? rest : wait;
		rest = rest < share ? rest : share;
	}
	p->idle = p->idle || first;
	if (!more && !m->busy && !drop && !p->stop && rest)
		pool_wait_for(p, first ? &p->work : &p->help, rest);
	p->idle = p->idle && !first;
	pool_unlock(p);
	if (drop)
		pool_give_up(p, &stale);
	if (share != UINT64_MAX)
		pool_share_step(p);
	if (!wait)
		pool_prebuild_layered(p);
	if (more)
		r = fill_place(m, e);
	if (r == 0 && m->busy)
		r = collect(m, (more && free_way(m)) || !share ? 0 : (int)(READY_NS / 1000000), e);
	return r;
}

/*
 * A request that comes goes first. Neither step is needed. With us in their group, sandboxes compete with what is made for
 * them as equals, one against one; outside, all of them together would have to wait for us whenever they had their part.
 */
void pool_give_way(struct pool *p, const char *name)
{
	sys_prctl(PR_SET_NAME, (unsigned long)(uintptr_t)name, 0, 0, 0);
	cgroup_host_join_cpu(&p->env->cgroups);
	sched_slice_long();
}

/* The others begin in the first maker's mount namespace, because it starts them. One that does not start is not missed. */
static int start_helpers(struct pool *p, struct err *e)
{
	/* Mounts in the stage can only be copied in the mount namespace where they are attached. */
	int r = p->env->stage ? 0 : minimal_mntns_enter(p->env, &p->img, e);
	unsigned n = 1;

	while (r == 0 && n < p->nmakers &&
	       pthread_create(&p->makers[n].thread, NULL, pool_maker_main, &p->makers[n]) == 0)
		n++;
	pool_lock(p);
	p->helpers = n - 1;
	pool_unlock(p);
	return r;
}

void *pool_maker_main(void *arg)
{
	struct maker *m = arg;
	struct pool *p = m->pool;
	struct err e = { 0 };
	int r;

	pool_give_way(p, "maker");
	r = m == p->makers ? start_helpers(p, &e) : 0;
	pool_lock(p);
	while (!p->stop) {
		if (r < 0) {
			p->last_error = r;
			p->why = e;
			pthread_cond_broadcast(&p->changed);
			pool_wait_for(p, m == p->makers ? &p->work : &p->help, PAUSE_NS);
		}
		pool_unlock(p);
		r = step(m, &e);
		pool_lock(p);
	}
	pool_unlock(p);
	for (unsigned i = 0; i < WAYS; i++) {
		if (!m->ways[i].busy)
			continue;
		wait_start(&m->ways[i].item.blank);
		pool_item_end(p, &m->ways[i].item);
	}
	if (m != p->makers)
		return NULL;
	for (unsigned i = 1; i <= p->helpers; i++)
		pthread_join(p->makers[i].thread, NULL);
	image_host_done(&p->img);
	return NULL;
}
