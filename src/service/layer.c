#include "service/layer.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/checkpoint.h"
#include "service/service_impl.h"
#include "service/wlink.h"

#define APART_NS 1000000000ULL /* between two sweeps; more, when they take long, but never so much that garbage piles up */
#define APART_MAX_NS (10ULL * 1000000000ULL)
#define NOW_AND_THEN_NS (600ULL * 1000000000ULL)

struct hold {
	unsigned n;
};

struct layer_book {
	struct service *s;
	struct map held; /* id → struct hold */
	bool due, sweeping, again;
	unsigned removed;
	char at[ID_SIZE];
	uint64_t begun_ns, next_ns;
};

int layer_book_new(struct service *s, struct layer_book **ret, struct err *e)
{
	struct layer_book *l = calloc(1, sizeof(*l));

	if (!l || map_init(&l->held) < 0) {
		free(l);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for layers");
	}
	l->s = s;
	l->due = true; /* what was half-made when we died */
	*ret = l;
	return 0;
}

void layer_hold(struct service *s, const char *id)
{
	struct hold *h = map_get(&s->layers->held, id);

	if (!h) {
		h = calloc(1, sizeof(*h));
		if (!h || map_put(&s->layers->held, id, h) < 0)
			abort(); /* a layer that is not held would be thrown away */
	}
	h->n++;
}

void layer_drop(struct service *s, const char *id)
{
	struct hold *h = map_get(&s->layers->held, id);

	assert(h && h->n);
	if (--h->n)
		return;
	map_del(&s->layers->held, id);
	free(h);
	layer_sweep_soon(s);
}

void layer_sweep_soon(struct service *s)
{
	s->layers->due = true;
	service_soon(s);
}

static void set_loose(struct tenant *t, uint64_t bytes)
{
	tenant_give(t, &(struct tenant_quota){ .checkpoint_bytes = t->loose });
	t->loose = bytes;
	tenant_force(t, &(struct tenant_quota){ .checkpoint_bytes = t->loose });
}

void layer_loose(struct service *s, struct tenant *t, uint64_t bytes)
{
	set_loose(t, t->loose + bytes);
	layer_sweep_soon(s);
}

/* Its checkpoint is deleted, or never had a name, and sandboxes or other layers stand on it. */
static void count_loose(struct layer_book *l, const struct msg_layer *x)
{
	const struct checkpoint *c = map_get(&l->s->checkpoints, l->at);

	if (!x->users || (c && c->counted))
		return;
	for (struct tenant *t = tenant_first(l->s->access); t; t = t->next)
		if (t->number == x->tenant)
			t->looser += x->size + x->memory;
}

static void ask_next(struct layer_book *l);

static void swept(struct layer_book *l)
{
	uint64_t now = clock_mono_ns(), took = now - l->begun_ns;

	l->sweeping = false;
	if (l->removed)
		log_debug("%u layers nobody needs any more are gone", l->removed);
	/* What the removed ones stood on may be free now. */
	l->due |= l->removed > 0;
	took = took < APART_MAX_NS / 10 ? took * 10 : APART_MAX_NS;
	l->next_ns = now + (took > APART_NS ? took : APART_NS);
	if (l->due)
		service_soon(l->s);
}

static void on_unsealed(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct layer_book *l = arg;

	(void)a;
	/* Gone already: by a warden that died before it could say so. */
	if (r == 0 || r == -ESRCH)
		l->removed++;
	else if (r != -EBUSY)
		log_warn("a layer could not be removed: %s", e ? e->msg : "the warden is gone");
}

static void on_layer(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct layer_book *l = arg;
	const struct warden_rep *rep = a ? a->rep : NULL;

	if (r < 0 || !rep || !rep->id[0]) {
		if (r < 0 && r != -EOPNOTSUPP)
			log_warn("could not ask for the layers: %s", e ? e->msg : "the warden is gone");
		if (r == 0)
			checkpoints_looked_at(l->s);
		for (struct tenant *t = tenant_first(l->s->access); r == 0 && t; t = t->next)
			set_loose(t, t->looser);
		swept(l);
		return;
	}
	memcpy(l->at, rep->id, ID_LEN);
	checkpoint_saw_layer(l->s, l->at, rep->layer.flags & MSG_LAYER_BAD);
	count_loose(l, &rep->layer);
	if (!rep->layer.users && !map_get(&l->held, l->at) && !l->s->o.recover)
		wlink_call_layer(l->s->warden, WARDEN_UNSEAL, 0, 0, l->at, on_unsealed, l);
	ask_next(l);
}

static void ask_next(struct layer_book *l)
{
	wlink_call_layer(l->s->warden, WARDEN_LAYERS, 0, 0, l->at[0] ? l->at : NULL, on_layer, l);
}

void layer_warden_back(struct service *s)
{
	s->layers->begun_ns = clock_mono_ns();
}

bool layer_tick(struct service *s)
{
	struct layer_book *l = s->layers;
	uint64_t now = clock_mono_ns();

	if (!s->warden || l->sweeping)
		return l->sweeping;
	if (now < l->next_ns || (!l->due && now < l->next_ns + NOW_AND_THEN_NS))
		return l->due;
	l->due = false;
	l->sweeping = true;
	l->removed = 0;
	l->begun_ns = now;
	memset(l->at, 0, sizeof(l->at));
	checkpoints_look(s);
	for (struct tenant *t = tenant_first(s->access); t; t = t->next)
		t->looser = 0;
	ask_next(l);
	return true;
}
