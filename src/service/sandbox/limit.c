/* Changes the limits of a sandbox. */
#include "service/sandbox/limit.h"
#include "base/base.h"
#include "base/log.h"
#include "base/step.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/queue.h"
#include "service/internal.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"

struct limiting {
	struct sandbox *b;
	struct who who;
	struct spec_limits l;
	uint64_t handle;
	struct tenant_quota more; /* taken before it is tried */
	sandbox_done_fn *fn;
	void *arg;
	struct err e;
};

/* Stored. The answer shows the limits as they are, so the next change waits for it. */
static void on_told(void *arg, int r, const struct err *e)
{
	struct limiting *x = arg;
	struct sandbox *b = x->b;

	x->fn(x->arg, r, e);
	if (b->limiting == x)
		b->limiting = NULL;
	sandbox_rest(b);
	sandbox_unref(b);
	free(x);
}

static void finish(struct limiting *x, int r)
{
	struct sandbox *b = x->b;

	if (r < 0)
		tenant_give(b->tenant, &x->more);
	sandbox_tell(b->service, sandbox_op_new(b, &x->who, on_told, x), r, &x->e);
}

static uint64_t above(uint64_t now, uint64_t was)
{
	return now > was ? now - was : 0;
}

/* The same limits with what was asked for. */
static struct spec_limits joined(const struct limiting *x)
{
	struct spec_limits l = x->b->request->spec->limits;

	l.memory = x->l.memory ? x->l.memory : l.memory;
	l.disk = x->l.disk ? x->l.disk : l.disk;
	l.pids = x->l.pids ? x->l.pids : l.pids;
	l.cpu_milli = x->l.cpu_milli ? x->l.cpu_milli : l.cpu_milli;
	return l;
}

/*
 * Whether its memory and CPUs are charged: not while it is hibernated or stopped, nor when it was lost and its files were closed. One that
 * runs without limits has nothing charged, but a handle.
 */
static bool is_charged(const struct sandbox *b)
{
	return b->handle || b->charged.memory || b->charged.cpu_milli;
}

/* What its tenant is charged for @now beyond @was. */
static void charge(struct tenant_quota *q, const struct sandbox *b, const struct spec_limits *now,
		   const struct spec_limits *was)
{
	*q = (struct tenant_quota){ .disk = above(now->disk, was->disk) };
	if (!is_charged(b))
		return;
	q->memory = above(now->memory, was->memory);
	q->cpu_milli = above(now->cpu_milli, was->cpu_milli);
}

/* The new limits are the sandbox's, and are charged. */
static void settle(struct limiting *x)
{
	struct sandbox *b = x->b;
	struct spec_limits *l = &b->request->spec->limits;
	const struct spec_limits now = joined(x);
	struct tenant_quota less;

	charge(&less, b, l, &now);
	tenant_give(b->tenant, &less);
	b->charged.memory += x->more.memory - less.memory;
	b->charged.cpu_milli += x->more.cpu_milli - less.cpu_milli;
	b->charged.disk += x->more.disk - less.disk;
	x->more = (struct tenant_quota){ 0 };
	*l = now;
}

static void in_force(struct limiting *x)
{
	struct sandbox *b = x->b;
	struct spec_limits *l = &b->request->spec->limits;
	const struct spec_limits was = *l;
	int r;

	STEP("limits.set");
	*l = joined(x);
	r = sandbox_store(b, &x->e);
	*l = was;
	if (r == 0 || x->handle)
		settle(x);
	if (r == 0)
		sandbox_note_update(b, &x->who);
	else if (
		x->handle) /* the warden has set them: to go back might fail as well, since what is in use may have grown */
		err_wrap(&x->e, r,
			 "the new limits are in effect, but not stored: they are lost when the daemon restarts");
	finish(x, r);
}

static void on_limited(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct limiting *x = arg;

	(void)a;
	if (r < 0 && e)
		x->e = *e;
	if (r == 0 && (x->b->handle != x->handle || x->b->state == SANDBOX_ENDING))
		r = err_set(&x->e, WHY_CHANGED_MEANWHILE, -ESRCH, "sandbox '%s' was ended or restored in the meantime",
			    x->b->request->name);
	if (r < 0)
		finish(x, r);
	else
		in_force(x);
}

static int may(const struct limiting *x, struct err *e)
{
	const struct sandbox *b = x->b;
	const struct sandbox_spec *s = b->request->spec;
	const bool disk = x->l.disk && x->l.disk != s->limits.disk;

	if (b->state == SANDBOX_ENDING)
		return err_set(e, WHY_CHANGED_MEANWHILE, -ESRCH, "sandbox '%s' was deleted in the meantime",
			       b->request->name);
	if (tier_needs(tier_of(s->flags), TIER_LIMITS, e) < 0)
		return -EOPNOTSUPP;
	if (b->state == SANDBOX_LOST && !b->request->disk[0])
		return sandbox_lost(b, e);
	if (disk && b->state != SANDBOX_HIBERNATED) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "disk: cannot change while the sandbox is %s",
			sandbox_state_name(b->state));
		err_remedy(e, "hibernate it, change the limit, and let it wake up");
		return -EOPNOTSUPP;
	}
	return 0;
}

static void on_free(void *arg, int r, const struct err *e)
{
	struct limiting *x = arg;
	struct sandbox *b = x->b;
	struct spec_limits now;

	if (r < 0)
		x->e = *e;
	else
		b->limiting = x;
	if (r == 0)
		r = may(x, &x->e);
	if (r == 0) {
		now = joined(x);
		r = spec_check_limits(&now, &x->e);
	}
	if (r == 0) {
		charge(&x->more, b, &now, &b->request->spec->limits);
		r = tenant_take(b->tenant, &x->more, &x->e);
		if (r < 0)
			x->more = (struct tenant_quota){ 0 };
	}
	if (r < 0) {
		finish(x, r);
		return;
	}
	if (!b->handle) {
		in_force(x);
		return;
	}
	x->handle = b->handle;
	x->l.disk = 0;
	warden_link_limits(b->service->warden, b->handle, &x->l, on_limited, x);
}

void sandbox_limit(struct sandbox *b, const struct who *who, const struct spec_limits *l, sandbox_done_fn *fn,
		   void *arg)
{
	struct limiting *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	*x = (struct limiting){ .b = b, .who = *who, .l = *l, .fn = fn, .arg = arg };
	sandbox_ref(b);
	sandbox_use(b);
	sandbox_when_free(b, on_free, x);
}

static void on_again(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox *b = arg;

	(void)a;
	if (r < 0 && b->handle && b->state != SANDBOX_ENDING)
		log_warn("sandbox '%s': its limits may differ from the stored ones: %s", b->request->name,
			 e ? e->msg : strerror(-r));
	sandbox_unref(b);
}

void sandbox_limit_again(struct sandbox *b)
{
	const struct spec_limits *request = &b->request->spec->limits;
	const struct spec_limits l = { .memory = request->memory,
				       .pids = request->pids,
				       .cpu_milli = request->cpu_milli };

	if (tier_needs(tier_of(b->request->spec->flags), TIER_LIMITS, NULL) < 0 || !(l.memory || l.pids || l.cpu_milli))
		return;
	sandbox_ref(b);
	warden_link_limits(b->service->warden, b->handle, &l, on_again, b);
}
