/*
 * What checkpoints have to do at each step of a sandbox's life: the newest layer that it is based on is held for as long as the
 * warden does not know that, and while it is hibernated.
 */
#include "base/base.h"
#include "service/checkpoint/checkpoint.h"
#include "service/checkpoint/layer.h"
#include "service/sandbox/part.h"

static const char *newest(const struct sandbox_request *w)
{
	return w->spec->layer[w->spec->layers - 1];
}

static void on_begun(struct sandbox *b, const struct sandbox_plan *p, struct sandbox_spec *spec)
{
	(void)p;
	if (spec->layers)
		layer_hold(b->service, spec->layer[spec->layers - 1]);
}

static void on_answered(struct sandbox *b)
{
	if (b->request->spec->layers)
		layer_drop(b->service, newest(b->request));
}

static int refused(struct sandbox *b, int r, struct err *e)
{
	return b->request->spec->layers ? checkpoint_blame(b->service, newest(b->request), r, e) : r;
}

static void on_moved(struct sandbox *b, struct sandbox *from)
{
	if (b->asleep)
		layer_drop(b->service, newest(b->request));
	if (!from->request->wake && b->request->spec->layers)
		layer_sweep_soon(b->service);
}

static bool tick(struct service *s, uint64_t now)
{
	(void)now;
	return layer_tick(s);
}

static void on_loaded(struct sandbox *b)
{
	if (b->asleep)
		layer_hold(b->service, newest(b->request));
}

static void on_lost(struct sandbox *b, enum sandbox_loss how)
{
	if (how == LOSS_ASLEEP)
		layer_hold(b->service, newest(b->request));
}

static void on_ended(struct sandbox *b)
{
	if (b->asleep)
		layer_drop(b->service, newest(b->request));
	if (b->request->spec->layers)
		layer_sweep_soon(b->service);
}

const struct sandbox_part checkpoint_part = {
	.name = "checkpoint",
	.begun = on_begun,
	.answered = on_answered,
	.refused = refused,
	.moved = on_moved,
	.save = checkpoint_make_hidden,
	.tick = tick,
	.loaded = on_loaded,
	.lost = on_lost,
	.ended = on_ended,
};
