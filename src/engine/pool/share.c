/*
 * Sandboxes whose processes share their memory: made by holders (engine/blank/stash.h), of which the maker starts one
 * for each layer that is asked for again. A request for many at once is marked (SPEC_MANY); a repeated request gets a
 * prebuilt sandbox (pool_prebuilt.c), which is made by a holder, too. What a holder cannot do is done without it: then
 * the agent is an ordinary one, and reads the image.
 *
 * Holders take memory that no quota counts, so they are few. They end when they were not asked for in a while, when
 * memory is short, or when their layer is removed. The sandboxes that they made continue.
 */
#include "engine/pool/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pidfd.h"
#include "base/sys.h"
#include "engine/image/procfs.h"
#include "engine/pool/limit.h"
#include "layers/memory.h"
#include "linux/mount.h"

#include <sys/stat.h>
#include <unistd.h>

#define IDLE_NS 60000000000ULL /* a holder without requests ends */
#define BURST_NS 100000000ULL /* further requests for the same layer are expected within this time */
#define LEFT_NS 500000000ULL /* sandboxes that were made ahead for them, and not taken, are ended after this time */
#define AGAIN_NS 30000000000ULL /* time until a layer that could not be held is tried again */
#define KILLED_NS 1000000000ULL /* the same, if its holder was killed */
#define WAIT_NS 2000000000ULL /* other requests wait meanwhile; after this time the image is read instead */
#define LOOK_NS 1000000000ULL
#define ONE_MAX (512ULL * MIB) /* bytes that one holder may hold */
#define PART 8U /* all holders together may have this part of the machine's memory */

static const char *newest(const struct sandbox_spec *spec)
{
	return spec->layer[spec->layers - 1];
}

/* Called locked, or by the maker. */
static struct share_holder *find_holder(struct pool *p, const char *layer)
{
	for (unsigned i = 0; i < SHARE_HOLDERS; i++)
		if (!strcmp(p->share.holder[i].layer, layer))
			return &p->share.holder[i];
	return NULL;
}

/* ---- holders: the maker's --------------------------------------------------------------------------------------- */

static void end_holder(struct pool *p, struct share_holder *h)
{
	struct stash s = h->stash;

	pool_lock(p);
	*h = (struct share_holder){ 0 };
	stash_init(&h->stash);
	pool_unlock(p);
	stash_end(p->env, &s);
}

/* Makes room for a holder of @bytes by ending holders that were not requested for longest. NULL: it is too large. */
static struct share_holder *make_room(struct pool *p, uint64_t bytes)
{
	const uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / PART;

	if (bytes > most || bytes > ONE_MAX)
		return NULL;
	for (;;) {
		struct share_holder *oldest = NULL, *free = NULL;
		uint64_t sum = bytes;

		for (unsigned i = 0; i < SHARE_HOLDERS; i++) {
			struct share_holder *h = &p->share.holder[i];

			sum += h->stash.bytes;
			if (!h->layer[0])
				free = h;
			else if (!oldest || h->used < oldest->used)
				oldest = h;
		}
		if (free && sum <= most)
			return free;
		end_holder(p, oldest);
	}
}

/* A free place to note an image that cannot be held. No holder is ended for it. NULL: there is none. */
static struct share_holder *spare_place(struct pool *p)
{
	struct share_holder *found = NULL;

	for (unsigned i = 0; i < SHARE_HOLDERS; i++) {
		struct share_holder *h = &p->share.holder[i];

		if (!h->layer[0])
			return h;
		if (h->failed && (!found || h->used < found->used))
			found = h;
	}
	return found;
}

static int start_holder(struct pool *p, const struct sandbox_spec *spec, struct share_holder **ret, struct err *e)
{
	int fds[1 + MEM_PAGE_FILES], n, r;
	struct share_holder *h = NULL;
	uint64_t bytes = 0;
	struct mem_head head;
	struct stash s;
	struct stat st = { 0 };

	stash_init(&s);
	r = n = pool_open_image(p, spec, fds, &head);
	for (int i = 1; r >= 0 && i < n; i++, bytes += (uint64_t)st.st_size)
		r = fstat(fds[i], &st) < 0 ? -errno : r;
	if (r < 0)
		err_sys(e, ERR_INTERNAL, r, "open a memory image");
	else
		h = make_room(p, bytes);
	if (r >= 0 && !h)
		r = err_set(e, ERR_TOO_LARGE, -E2BIG, "a memory image of %llu MiB is too large to be shared",
			    (unsigned long long)(bytes / MIB));
	if (r >= 0)
		r = stash_start(p->env, fds, (uint32_t)n - 1, p->share.host, bytes, &s, e);
	fd_close_many(fds, ARRAY_LEN(fds));
	if (!h)
		h = spare_place(p); /* it is remembered that it cannot be held */
	if (r < 0)
		log_info("layer %s: its memory is not shared: %s", newest(spec), e->msg);
	if (!h)
		return r;
	pool_lock(p);
	snprintf(h->layer, sizeof(h->layer), "%s", newest(spec));
	h->used = clock_mono_ns();
	h->stash = s;
	h->failed = r < 0;
	h->again = h->used + (r == -EPIPE ? KILLED_NS : AGAIN_NS);
	pool_unlock(p);
	*ret = h;
	return r;
}

static int get_holder(struct pool *p, const struct sandbox_spec *spec, struct share_holder **ret, struct err *e)
{
	struct share_holder *h = find_holder(p, newest(spec));

	if (h && ((h->failed && clock_mono_ns() > h->again) || (!h->failed && pidfd_ended(h->stash.pidfd)))) {
		end_holder(p, h);
		h = NULL;
	}
	if (!h)
		return start_holder(p, spec, ret, e);
	*ret = h;
	return h->failed ? err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this image cannot be shared") : 0;
}

/* ---- sandboxes -------------------------------------------------------------------------------------------------- */

static int make_item(struct pool *p, struct share_holder *h, const struct sandbox_spec *spec, struct pool_item *it,
		     struct err *e)
{
	struct pool_guess g = {
		.limits = limit_groups(&spec->limits),
		.cpus = procfs_cpus(spec->limits.cpu_milli),
		.tenant = spec->tenant,
		.net = spec->flags & SPEC_NET,
	};
	struct blank_start *start = &p->share.start;
	int r;

	root_limits(spec, &g.size, &g.inodes);
	if (g.net)
		g.rules = spec->net;
	start->stash = &h->stash;
	r = pool_make(p, start, &g, true, it, e);
	if (r == 0)
		r = pool_wait_ready(p, it, e);
	if (r == 0)
		it->blank.tenant = spec->tenant;
	/* A holder that does not answer any more cannot be used. */
	if (r == -EPIPE || r == -ETIMEDOUT)
		end_holder(p, h);
	else
		h->used = clock_mono_ns();
	return r;
}

static bool can_share(const struct pool *p, const struct sandbox_spec *spec)
{
	return p->share.on && spec->flags & SPEC_MEMORY && spec->layers &&
	       !(spec->flags & (SPEC_TIERS | SPEC_JAIL | SPEC_KVM));
}

bool pool_share_make(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret)
{
	struct share_holder *h = NULL;
	struct err e = { 0 };
	int r;

	if (!can_share(p, spec))
		return false;
	r = get_holder(p, spec, &h, &e);
	if (r < 0)
		return false;
	r = make_item(p, h, spec, ret, &e);
	if (r < 0)
		log_warn("layer %s: a sandbox does not share its memory: %s", newest(spec), e.msg);
	return r == 0;
}

/* Whether both specs are the same request: a sandbox that was made for another one cannot be used. */
static bool same(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	return a->tenant == b->tenant && a->layers == b->layers && a->flags == b->flags &&
	       !memcmp(a->layer, b->layer, a->layers * sizeof(a->layer[0])) &&
	       !memcmp(&a->limits, &b->limits, sizeof(a->limits)) && steer_same(&a->net, &b->net);
}

static void drop_left(struct pool *p)
{
	struct pool_item it;
	bool more;

	do {
		pool_lock(p);
		more = p->share.n;
		if (more)
			it = p->share.item[--p->share.n];
		pool_unlock(p);
		if (more)
			pool_give_up(p, &it);
	} while (more);
}

/* Whether a sandbox of @spec should share its memory. Called locked. */
static bool wanted(struct pool *p, const struct sandbox_spec *spec)
{
	const struct share_holder *h = find_holder(p, newest(spec));
	const uint64_t number = prebuilt_number(&p->prebuilt, spec);

	for (unsigned i = 0; number && i < p->ready; i++)
		if (pool_at(p, i)->prebuilt == number)
			return false; /* nothing is quicker */
	return h && (!h->failed || clock_mono_ns() <= h->again) ? !h->failed && !h->stale :
								  !strcmp(p->share.many, newest(spec));
}

bool pool_share_take(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret)
{
	struct share *s = &p->share;
	bool got = false, other;
	uint64_t until;

	if (!can_share(p, spec))
		return false;
	pool_lock(p);
	if (!wanted(p, spec)) {
		pool_unlock(p);
		return false;
	}
	other = !same(&s->spec, spec);
	/* From here on the maker drops what it makes for the previous request, which may be another tenant's. */
	s->spec = *spec;
	s->result = 0;
	pool_unlock(p);
	if (other)
		drop_left(p);
	pool_lock(p);
	s->asked = clock_mono_ns();
	until = s->asked + WAIT_NS;
	while (!got && s->result == 0 && clock_mono_ns() < until && !p->stop) {
		got = s->n;
		if (got)
			*ret = s->item[--s->n];
		if (got && pidfd_ended(ret->blank.pidfd)) {
			got = false;
			pool_unlock(p);
			pool_item_end(p, ret);
			pool_lock(p);
			continue;
		}
		s->waiting = !got;
		pthread_cond_signal(&p->work);
		if (!got)
			pool_wait_for(p, &p->changed, LOOK_NS);
	}
	s->waiting = false;
	s->asked = clock_mono_ns();
	pool_unlock(p);
	return got;
}

/* Whether another sandbox should be made ahead now. Called locked. */
static bool lacks(const struct pool *p, uint64_t now)
{
	const struct share *s = &p->share;

	return (s->waiting && !s->n) ||
	       (s->asked && s->result == 0 && s->n < SHARE_AHEAD && now - s->asked < BURST_NS && s->spec.layers &&
		!strcmp(s->many, newest(&s->spec)));
}

uint64_t pool_share_wait(const struct pool *p)
{
	const uint64_t now = clock_mono_ns();
	const struct share *s = &p->share;
	uint64_t wait = UINT64_MAX;

	if (!s->on)
		return UINT64_MAX;
	if (lacks(p, now) || s->look)
		return 0;
	if (s->n)
		wait = now - s->asked < LEFT_NS ? LEFT_NS - (now - s->asked) : 0;
	for (unsigned i = 0; i < SHARE_HOLDERS; i++) {
		const struct share_holder *h = &s->holder[i];

		if (h->layer[0] && wait > IDLE_NS)
			wait = IDLE_NS;
	}
	return wait;
}

static void look_at_holders(struct pool *p)
{
	const bool tight = pool_memory_short();
	const uint64_t now = clock_mono_ns();

	for (unsigned i = 0; i < SHARE_HOLDERS; i++) {
		struct share_holder *h = &p->share.holder[i];

		if (h->layer[0] &&
		    (h->stale || tight || now - h->used > IDLE_NS || (!h->failed && pidfd_ended(h->stash.pidfd))))
			end_holder(p, h);
	}
}

void pool_share_step(struct pool *p)
{
	struct share *s = &p->share;
	struct sandbox_spec spec;
	struct pool_item it;
	bool make, left;
	uint64_t now;

	if (!s->on)
		return;
	pool_lock(p);
	now = clock_mono_ns();
	make = lacks(p, now);
	left = !make && s->n && now - s->asked >= LEFT_NS;
	spec = s->spec;
	s->look = false;
	pool_unlock(p);
	if (left)
		drop_left(p);
	if (!make) {
		look_at_holders(p);
		return;
	}
	make = pool_share_make(p, &spec, &it);
	pool_lock(p);
	if (make && s->n < SHARE_AHEAD && same(&spec, &s->spec)) {
		s->item[s->n++] = it;
		make = false;
	} else if (!make) {
		s->result = -EAGAIN;
	}
	pthread_cond_broadcast(&p->changed);
	pool_unlock(p);
	if (make)
		pool_give_up(p, &it);
}

void pool_share_many(struct pool *p, const struct sandbox_spec *spec)
{
	pool_lock(p);
	if (can_share(p, spec))
		snprintf(p->share.many, sizeof(p->share.many), "%s", newest(spec));
	pool_unlock(p);
}

void pool_share_forget(struct pool *p, const char *layer)
{
	struct share_holder *h = find_holder(p, layer);

	if (h)
		h->stale = p->share.look = true;
	if (!strcmp(p->share.many, layer))
		p->share.many[0] = '\0';
}

void pool_share_init(struct pool *p)
{
	struct share *s = &p->share;

	for (unsigned i = 0; i < SHARE_HOLDERS; i++)
		stash_init(&s->holder[i].stash);
	s->on = p->env->persist && p->env->layers >= 0 && !p->env->rootless && !p->env->stage && !p->env->no_share;
	/* While we are in the host's own mount namespace. Without it only anonymous memory is shared. */
	s->host = s->on ? mount_clone(AT_FDCWD, "/", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, -1) : -1;
}

void pool_share_done(struct pool *p)
{
	while (p->share.n)
		pool_item_end(p, &p->share.item[--p->share.n]);
	for (unsigned i = 0; i < SHARE_HOLDERS; i++)
		stash_end(p->env, &p->share.holder[i].stash);
	fd_close(p->share.host);
}
