/* Another sandbox takes the place of one that is there. */
#include "base/base.h"
#include "base/clock.h"
#include "base/step.h"
#include "service/sandbox/disk.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/internal.h"
#include "service/link/warden_link.h"

/*
 * The other one, @n, is made beside the old one. When it is up everything turns to it within one turn of the loop:
 * rows, links, execs; once that is stored, the old one is ended. Dying before leaves the old one (the new one has no row and
 * is ended), dying after the new one.
 */
struct swap {
	struct sandbox *b, *n;
	struct who who;
	uint64_t old; /* handle */
	sandbox_done_fn *fn;
	void *arg;
	int r;
	struct err e;
	struct turn_wait wait;
};

static void on_revived(void *arg, struct sandbox *b)
{
	struct swap *x = arg;

	if (x->fn)
		x->fn(x->arg, x->r, x->r < 0 ? &x->e : NULL);
	sandbox_wake_waiters(b);
	sandbox_rest(b);
	sandbox_unref(b);
	free(x);
}

static void on_told(void *arg)
{
	struct swap *x = arg;
	struct sandbox *b = x->b;

	STEP("wake.stored");
	b->turning = false;
	b->service->commands->read_all(b);
	if (x->old)
		warden_link_call(b->service->warden, WARDEN_DESTROY, x->old, 0, NULL, NULL, NULL);
	if (x->r < 0)
		on_revived(x, b);
	else
		sandbox_when_revived(b, on_revived, x);
}

static void finish(struct swap *x, int r)
{
	x->r = r;
	x->b->swap = NULL;
	turn_after(x->b->service->turn, &x->wait, on_told, x);
}

/*
 * Charges the new state and releases the old one. A sandbox that wakes up is charged for what it had before it slept:
 * what a machine has besides is charged from then on, too, but cannot keep a sandbox asleep that fell asleep within its
 * quota.
 */
static int recharge(struct sandbox *b, const struct sandbox_request *request, struct err *e)
{
	struct tenant_quota had = b->charged, now = sandbox_quota(request), room = now, besides = { 0 };
	int r;

	if (request->wake)
		room.memory = request->spec->limits.memory;
	besides.memory = now.memory - room.memory;
	tenant_give(b->tenant, &had);
	r = tenant_take(b->tenant, &room, e);
	tenant_force(b->tenant, r < 0 ? &had : &besides);
	if (r == 0)
		b->charged = now;
	return r;
}

/* What is asked of it while it lives stays what it was asked last. */
static int keep_identity(const struct sandbox *b, struct sandbox_request *request, struct err *e)
{
	const struct sandbox_request *old = b->request;
	struct kv meta = { 0 };

	if (kv_copy(&meta, &old->metadata) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	kv_done(&request->metadata);
	request->metadata = meta;
	memcpy(request->name, old->name, sizeof(request->name));
	memcpy(request->key, old->key, sizeof(request->key));
	request->timeout_ms = old->timeout_ms;
	request->idle = old->idle;
	request->origin = old->origin;
	if (request->disk_again)
		request->again = json_incref(old->again);
	return 0;
}

static void turn_over(struct swap *x)
{
	struct sandbox *b = x->b, *n = x->n;
	struct sandbox_request *was = b->request;

	x->old = b->handle;
	sandbox_revive_over(b); /* callers that wait for the execs of the old one would wait for ever */
	sandbox_parts_lost(b, LOSS_TURNED);
	/* Execs that were hibernated with it continue. */
	if (!n->request->wake)
		sandbox_parts_lost(b, LOSS_REPLACED);
	sandbox_move(b, n);
	b->request = n->request;
	n->request = was; /* freed with it */
	b->opened = b->request->open;
	if (!b->opened)
		sandbox_set_state(b, SANDBOX_RUNNING);
	b->idle_paused = false;
	free(b->cut);
	b->cut = TAKE_PTR(n->cut);
	if (was->disk[0] && !b->request->disk_again)
		disk_may_go(b->service, was->disk);
	b->asleep = ASLEEP_NOT;
	if (b->request->wake)
		return;
	free(b->restored);
	b->restored = TAKE_PTR(n->restored);
}

/* In a turn of its own: nothing of the new one's link is being read. */
static void on_up(void *arg)
{
	struct swap *x = arg;
	struct sandbox *b = x->b, *n = x->n;
	int r = 0;

	if (b->state == SANDBOX_ENDING)
		r = err_set(&x->e, WHY_CHANGED_MEANWHILE, -ESRCH, "sandbox '%s' was deleted in the meantime",
			    b->request->name);
	if (r == 0)
		r = keep_identity(b, n->request, &x->e);
	if (r == 0)
		r = recharge(b, n->request, &x->e);
	if (r < 0) {
		n->maker = NULL;
		sandbox_give_up(n, r, &x->e);
		finish(x, r);
		return;
	}
	STEP("wake.made");
	b->turning = true;
	turn_over(x);
	sandbox_restored(b);
	r = sandbox_store(b, &x->e);
	if (r == 0) {
		net_names_clear(b->service->db, b->id, NULL);
		sandbox_parts_entered(b);
	}
	if (r == 0)
		sandbox_revive(b);
	if (r == 0 && !b->opened)
		sandbox_note_state(b, &x->who,
				   b->request->disk_again ? "sandbox.start" :
				   b->request->wake	  ? "sandbox.wake" :
							    "sandbox.restore");
	b->request->disk_again = b->request->open = false;
	if (r == 0)
		sandbox_parts_noted(b, &x->who);
	n->maker = NULL;
	sandbox_set_state(n, SANDBOX_ENDING);
	sandbox_leave(n);
	STEP("wake.noted");
	finish(x, r);
}

static void up(void *arg, struct sandbox *n)
{
	struct swap *x = arg;

	(void)n;
	turn_after(x->b->service->turn, &x->wait, on_up, x);
}

static void failed(void *arg, struct sandbox *n, int r, const struct err *e)
{
	struct swap *x = arg;

	(void)n;
	turn_cancel(&x->wait);
	if (e)
		x->e = *e;
	finish(x, r);
}

static const struct sandbox_maker maker = { .up = up, .failed = failed };

void sandbox_replace(struct sandbox *b, const struct who *who, struct sandbox_request *request, sandbox_done_fn *fn,
		     void *arg)
{
	struct swap *x = calloc(1, sizeof(*x));
	struct sandbox_plan plan = {
		.tenant = b->tenant, .request = request, .maker = &maker, .arg = x, .hidden = true, .like = b
	};
	int r = 0;

	if (!x)
		abort();
	*x = (struct swap){ .b = b, .who = *who, .fn = fn, .arg = arg };
	sandbox_ref(b);
	sandbox_use(b);
	sandbox_close(b);
	if (b->swap || b->sleep)
		r = err_set(&x->e, WHY_BUSY, -EBUSY, "sandbox '%s' is being %s", b->request->name,
			    b->swap ? "already restored" : "hibernated");
	if (r == 0 && !request->wake) {
		/* The policy is what was asked last: a checkpoint of an earlier, wider one does not bring that back. */
		net_request_free(request->net);
		request->net = net_request_copy(b->request->net);
	}
	if (r == 0)
		r = sandbox_begin(b->service, &plan, &x->n, &x->e);
	if (r < 0) {
		sandbox_request_free(request);
		x->r = r;
		turn_after(b->service->turn, &x->wait, on_told, x);
		return;
	}
	b->swap = x;
}
