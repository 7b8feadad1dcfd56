/*
 * Keeps pools filled, in the background: at most two sandboxes are in the making for all pools together, and while
 * callers create sandboxes, with pauses that are longer than the making. The emptiest pool comes first. A pool whose
 * sandboxes fail waits longer each time.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/template/pool_internal.h"
#include "service/template/template.h"
#include "service/sandbox/struct.h"

#define AT_ONCE 2U
#define CALLED_NS 50000000ULL /* within this time after a call others are likely */
#define GENTLE_NS 20000000ULL /* the least time between two creates then */
#define SOON_MS 2 /* after a create that took the last one */
#define LATER_MS 10 /* after any other create: the first program in it has the processor for itself */
#define PAUSE_MS 250
#define PAUSE_MAX_MS 60000

struct refill {
	struct service *s;
	uv_timer_t timer;
	unsigned making;
	uint64_t next_ns; /* while callers create sandboxes, nothing is begun before this time */
};

struct filling {
	struct service *s;
	uint64_t begun_ns;
	char pool[ID_SIZE]; /* it may be gone by then */
};

static void on_time(uv_timer_t *t);

static bool lacks(const struct pool *p)
{
	return p->nready + p->making < p->min && (!p->max || p->alive < p->max);
}

static bool any_empty(struct service *s)
{
	struct pool *p;
	size_t at = 0;

	while ((p = map_next(&s->pools, &at)))
		if (lacks(p) && !p->nready)
			return true;
	return false;
}

void pools_soon(struct service *s)
{
	uint64_t ms = any_empty(s) ? SOON_MS : LATER_MS;
	uv_timer_t *t = s->refill ? &s->refill->timer : NULL;

	/* A timer that runs is not set again: with constant calls it would never fire. */
	if (t && (!uv_is_active((uv_handle_t *)t) || uv_timer_get_due_in(t) > ms))
		uv_timer_start(t, on_time, ms, 0);
}

void refill_again(struct pool *p)
{
	p->again_ns = 0;
	p->fails = 0;
	p->last = (struct err){ 0 };
	if (p->service->refill)
		uv_timer_start(&p->service->refill->timer, on_time, 0, 0);
}

static void failed(struct pool *p, const struct err *e)
{
	uint64_t pause = p->fails < 8 ? (uint64_t)PAUSE_MS << p->fails : PAUSE_MAX_MS;

	if (pause > PAUSE_MAX_MS)
		pause = PAUSE_MAX_MS;
	if (strcmp(p->last.msg, e->msg))
		log_warn("pool %s/%s: %s", p->template->tenant->id, p->name, e->msg);
	p->failed++;
	p->fails++;
	p->last = *e;
	p->again_ns = clock_mono_ns() + pause * 1000000ULL;
}

static void on_warm(void *arg, struct template *t, bool created, const struct err *e)
{
	(void)created;
	if (!t && e)
		log_warn("cannot make a warm image again: %s", e->msg);
	pools_soon(arg);
}

static void on_filled(void *arg, struct sandbox *b, bool found, const struct err *e)
{
	struct filling *f = arg;
	struct service *s = f->s;
	struct pool *p = map_get(&s->pools, f->pool);
	uint64_t now = clock_mono_ns();
	const char *why = NULL;

	(void)found;
	s->refill->next_ns = now + (now - f->begun_ns > GENTLE_NS / 3 ? 3 * (now - f->begun_ns) : GENTLE_NS);
	free(f);
	s->refill->making--;
	if (p)
		p->making--;
	if (p && !b) {
		failed(p, e);
		if (p->fails == 1 && template_stale(p->template, e))
			template_rewarm(p->template, on_warm, s);
	}
	if (b && (!p || p->nready >= p->min))
		sandbox_discard(b, p ? "the pool is full" : "the pool was deleted");
	else if (b && pool_fits(b, &why) == FIT_NEVER)
		sandbox_discard(b, why);
	else if (b) {
		p->fails = 0;
		p->last = (struct err){ 0 };
		pool_add_ready(p, b);
		agent_link_send(&b->link, FRAME_WARM, 0, NULL, 0, NULL, 0); /* for a warm process, if there is one */
	}
	uv_timer_start(&s->refill->timer, on_time, 0, 0);
}

static void fill(struct pool *p)
{
	struct service *s = p->service;
	const struct who daemon = { .tenant = p->template->tenant };
	struct sandbox_request *w = NULL;
	struct filling *f;
	struct err e = { 0 };

	if (template_request(p->template, &w, &e) < 0) {
		failed(p, &e);
		if (p->fails == 1 && template_stale(p->template, &e))
			template_rewarm(p->template, on_warm, s);
		return;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	f->s = s;
	f->begun_ns = clock_mono_ns();
	memcpy(f->pool, p->id, sizeof(f->pool));
	memcpy(w->origin.pool, p->id, sizeof(w->origin.pool));
	w->origin.ready = true;
	p->making++;
	s->refill->making++;
	sandbox_create(s, &daemon, w, on_filled, f);
}

/* Of those that may be filled now the emptiest; *ret_wait: when to look again for the others, in ms. */
static struct pool *neediest(struct service *s, uint64_t now, uint64_t *ret_wait)
{
	struct pool *p, *found = NULL;
	size_t at = 0;

	while ((p = map_next(&s->pools, &at))) {
		if (!lacks(p))
			continue;
		if (p->again_ns > now) {
			uint64_t ms = (p->again_ns - now) / 1000000ULL + 1;

			*ret_wait = ms < *ret_wait ? ms : *ret_wait;
			continue;
		}
		if (!found ||
		    (uint64_t)(p->nready + p->making) * found->min < (uint64_t)(found->nready + found->making) * p->min)
			found = p;
	}
	return found;
}

/* Whether one more may be begun now; else *ret_wait is lowered. */
static bool may_fill(const struct service *s, uint64_t *ret_wait)
{
	const struct refill *f = s->refill;
	uint64_t now = clock_mono_ns(), ms;

	if (s->draining || f->making >= AT_ONCE)
		return false;
	if (now - s->called_ns > CALLED_NS)
		return true;
	if (f->making)
		return false;
	if (now >= f->next_ns)
		return true;
	ms = (f->next_ns - now) / 1000000ULL + 1;
	*ret_wait = ms < *ret_wait ? ms : *ret_wait;
	return false;
}

static void on_time(uv_timer_t *t)
{
	struct service *s = t->data;
	uint64_t wait = UINT64_MAX;
	struct pool *p;

	while ((p = neediest(s, clock_mono_ns(), &wait)) && may_fill(s, &wait))
		fill(p);
	if (wait != UINT64_MAX && !s->draining && s->refill->making < AT_ONCE)
		uv_timer_start(t, on_time, wait, 0);
}

bool pools_settled(const struct service *s)
{
	return !s->refill || !s->refill->making;
}

void pools_start(struct service *s)
{
	const char *why = NULL;
	struct sandbox *b;
	size_t at = 0;

	s->refill = calloc(1, sizeof(*s->refill));
	if (!s->refill)
		abort();
	s->refill->s = s;
	uv_timer_init(s->loop, &s->refill->timer);
	uv_unref((uv_handle_t *)&s->refill->timer);
	s->refill->timer.data = s;
	while ((b = map_next(&s->sandboxes, &at))) {
		if (!b->pooled)
			continue;
		if (pool_fits(b, &why) == FIT_NEVER)
			sandbox_discard(b, why);
		else
			pool_add_ready(b->pool, b);
	}
	pools_soon(s);
}
