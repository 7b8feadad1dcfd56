/* Does the changes of a sandbox one after the other. */
#include "service/sandbox/queue.h"
#include "base/base.h"
#include "base/clock.h"
#include "service/internal.h"
#include "service/sandbox/struct.h"

#define LOOK_MS 5
#define WAIT_S 60ULL

struct sandbox_queued {
	struct sandbox_queued *next;
	struct sandbox *b;
	uv_timer_t timer;
	uint64_t end_ns;
	sandbox_done_fn *fn;
	void *arg;
};

/* ->turning: what it has become is not stored yet. ->limiting: its new limits are not in force, stored and answered yet. */
static bool is_busy(const struct sandbox *b)
{
	return b->swap || b->sleep || b->waking || b->turning || b->sealing || b->limiting;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

static void leave(struct sandbox_queued *q, int r, const struct err *e)
{
	struct sandbox *b = q->b;
	struct sandbox_queued **p = &b->queue;

	while (*p != q)
		p = &(*p)->next;
	*p = q->next;
	uv_timer_stop(&q->timer);
	uv_close((uv_handle_t *)&q->timer, on_closed);
	q->fn(q->arg, r, e);
	sandbox_rest(b);
	sandbox_unref(b);
}

static void on_look(uv_timer_t *t)
{
	struct sandbox_queued *q = t->data;
	struct sandbox *b = q->b;
	struct err e = { 0 };
	int r = 0;

	if (b->state == SANDBOX_ENDING)
		r = err_set(&e, WHY_CHANGED_MEANWHILE, -ESRCH, "sandbox '%s' was deleted in the meantime",
			    b->request->name);
	else if (b->service->draining)
		r = err_set(&e, WHY_STOPPING, -ESHUTDOWN, "the daemon is stopping");
	else if (b->queue == q && !is_busy(b))
		r = 0;
	else if (clock_mono_ns() < q->end_ns)
		return;
	else
		r = err_set(&e, WHY_BUSY, -EBUSY,
			    "sandbox '%s' has been in the middle of a restore, hibernation, wake, checkpoint or change "
			    "of limits for %llu s",
			    b->request->name, WAIT_S);
	leave(q, r, r < 0 ? &e : NULL);
}

void sandbox_when_free(struct sandbox *b, sandbox_done_fn *fn, void *arg)
{
	struct sandbox_queued *q, **last = &b->queue;

	if (!b->queue && !is_busy(b)) {
		fn(arg, 0, NULL);
		return;
	}
	q = calloc(1, sizeof(*q));
	if (!q)
		abort();
	*q = (struct sandbox_queued){
		.b = b, .fn = fn, .arg = arg, .end_ns = clock_mono_ns() + WAIT_S * 1000000000ULL
	};
	sandbox_ref(b);
	sandbox_use(b);
	while (*last)
		last = &(*last)->next;
	*last = q;
	uv_timer_init(b->service->loop, &q->timer);
	q->timer.data = q;
	uv_timer_start(&q->timer, on_look, LOOK_MS, LOOK_MS);
}
