/* Creates and ends hidden sandboxes. */
#include "service/sandbox/scratch_sandbox.h"
#include "base/base.h"
#include "service/sandbox/internal.h"
#include "tier/tiers.h"

#define AT_ONCE_TENANT 8U
#define AT_ONCE 32U
/*
 * Memory and disks of one promotion are not charged to the tenant. Further ones are: a hostile guest may use all of a
 * clone's memory for as long as it is asked, and the list that it sends decides the size of a mirror.
 */
#define FREE_CLONES 1U
#define FREE_MIRRORS 3U

struct scratch_sandbox {
	struct service *s;
	struct tenant *tenant;
	struct sandbox *sandbox; /* referenced; NULL: gone */
	bool up, vm;
	scratch_sandbox_fn *fn;
	void *arg;
};

static void on_up(void *arg, struct sandbox *b)
{
	struct scratch_sandbox *h = arg;

	h->up = true;
	h->fn(h->arg, b, NULL);
}

static void on_failed(void *arg, struct sandbox *b, int r, const struct err *e)
{
	struct scratch_sandbox *h = arg;
	struct err why = { 0 };

	(void)b;
	sandbox_unref(TAKE_PTR(h->sandbox));
	if (h->up)
		return; /* the reader of its files notices */
	if (e && e->msg[0])
		why = *e;
	else
		err_set(&why, WHY_SANDBOX_LOST, r < 0 ? r : -EIO, "the scratch sandbox for the files has ended");
	h->fn(h->arg, NULL, &why);
}

static const struct sandbox_maker maker = { .up = on_up, .failed = on_failed };

static void strip(struct sandbox_request *w)
{
	w->name[0] = w->key[0] = w->idem[0] = '\0';
	w->timeout_ms = 0;
	w->idle = (struct idle_request){ 0 };
	secret_uses_done(&w->secrets);
	if (net_request_on(w->net) && tier_is_machine(w->spec->flags))
		w->spec->flags |= SPEC_NET;
	net_request_free(w->net);
	w->net = NULL;
	json_decref(w->start);
	w->start = NULL;
}

int scratch_sandbox_make(struct service *s, struct tenant *t, struct sandbox_request *request, scratch_sandbox_fn *fn,
			 void *arg, struct scratch_sandbox **ret, struct err *e)
{
	struct sandbox_plan p = { .tenant = t, .request = request, .maker = &maker, .hidden = true };
	struct scratch_sandbox *h;
	const bool vm = tier_is_machine(request->spec->flags);
	int r;

	if (s->scratch_sandboxes >= AT_ONCE || t->scratch_sandboxes >= AT_ONCE_TENANT) {
		err_set(e, ERR_EXHAUSTED, -EAGAIN, "too many comparisons are in progress");
		err_remedy(e, "try again in a moment");
		return -EAGAIN;
	}
	h = calloc(1, sizeof(*h));
	if (!h)
		abort();
	*h = (struct scratch_sandbox){ .s = s, .tenant = t, .vm = vm, .fn = fn, .arg = arg };
	p.counted = vm ? t->clones >= FREE_CLONES : t->scratch_sandboxes - t->clones >= FREE_MIRRORS;
	p.arg = h;
	strip(request);
	r = sandbox_begin(s, &p, &h->sandbox, e);
	if (r < 0) {
		free(h);
		return r;
	}
	sandbox_ref(h->sandbox);
	s->scratch_sandboxes++;
	t->scratch_sandboxes++;
	t->clones += vm;
	*ret = h;
	return 0;
}

struct sandbox *scratch_sandbox_get(const struct scratch_sandbox *h)
{
	return h->up ? h->sandbox : NULL;
}

void scratch_sandbox_free(struct scratch_sandbox *h)
{
	struct sandbox *b;

	if (!h)
		return;
	b = h->sandbox;
	h->s->scratch_sandboxes--;
	h->tenant->scratch_sandboxes--;
	h->tenant->clones -= h->vm;
	if (b && b->state != SANDBOX_ENDING) {
		b->maker = NULL;
		sandbox_give_up(b, 0, NULL);
	}
	if (b)
		sandbox_unref(b);
	free(h);
}
