/*
 * Chains of layers. A row lists the layers of a chain in the warden's store, and the uppermost is held as long as the
 * row exists: so sweeps leave it, and those below, alone. A row is deleted when nothing needs it.
 */
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/spec.h"
#include "oci/manifest.h"
#include "service/checkpoint/layer.h"
#include "service/image/book.h"
#include "service/image/chain.h"
#include "service/image/usage.h"
#include "service/sandbox/request.h"

struct image_chain *image_chain_find(struct service *s, const char *id)
{
	return *id ? map_get(&s->images->chains, id) : NULL;
}

static const char *top(const struct image_chain *c)
{
	return c->layer[c->layers - 1];
}

void image_chain_pin(struct image_chain *c)
{
	c->pins++;
}

static void sweep_again(void *arg)
{
	image_sweep(arg, NULL);
}

void image_chain_unpin(struct image_chain *c)
{
	struct image_book *b = c->service->images;

	assert(c->pins);
	if (--c->pins || !b->again)
		return;
	b->again = false;
	turn_after(c->service->turn, &b->sweep, sweep_again, c->service);
}

static int list(struct service *s, const struct image_chain *from, struct image_chain **ret, struct err *e)
{
	struct image_chain *c = malloc(sizeof(*c));

	if (!c || (*c = *from, map_put(&s->images->chains, c->id, c) < 0)) {
		free(c);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a layer of an image");
	}
	c->service = s;
	layer_hold(s, top(c));
	*ret = c;
	return 0;
}

struct stored {
	struct turn_wait wait;
	struct service *s;
	char layer[ID_SIZE];
};

static void on_stored(void *arg)
{
	struct stored *x = arg;

	layer_must_stay(x->s, x->layer);
	free(x);
}

/* A row names the layer, once this turn is stored. */
static void keep(struct service *s, const char *layer)
{
	struct stored *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	x->s = s;
	memcpy(x->layer, layer, ID_LEN);
	turn_after(s->turn, &x->wait, on_stored, x);
}

int image_chain_put(struct service *s, const struct image_chain_new *n, struct image_chain **ret, struct err *e)
{
	struct image_chain c = { .blob_size = n->blob_size, .size = n->size, .files = n->files };
	struct sandbox_spec spec = { .layers = n->spec->layers };
	char layers[LAYERS_TEXT];
	struct image_layer_row row = { .chain = c.id,
				       .parent = n->parent,
				       .layers = layers,
				       .diff = n->diff,
				       .blob = n->blob,
				       .blob_size = n->blob_size,
				       .size = n->size,
				       .files = n->files };
	int r;

	oci_chain_id(n->parent, n->diff, c.id);
	snprintf(c.parent, sizeof(c.parent), "%s", n->parent);
	snprintf(c.diff, sizeof(c.diff), "%s", n->diff);
	snprintf(c.blob, sizeof(c.blob), "%s", n->blob);
	c.created_ns = row.created_ns = clock_real_ns();
	c.layers = n->spec->layers;
	memcpy(c.layer, n->spec->layer, sizeof(c.layer));
	memcpy(spec.layer, n->spec->layer, sizeof(spec.layer));
	layers_text(&spec, 0, layers);
	r = image_layers_put(s->db, &row, e);
	if (r < 0)
		return r;
	r = list(s, &c, ret, e);
	if (r < 0) {
		image_layers_delete(s->db, c.id, NULL);
		return r;
	}
	image_chain_pin(*ret);
	keep(s, top(*ret));
	turn_dirty(s->turn);
	return 0;
}

int image_chain_load(struct service *s, const struct image_layer_row *row)
{
	struct image_chain c = {
		.blob_size = row->blob_size, .size = row->size, .files = row->files, .created_ns = row->created_ns
	};
	struct sandbox_spec spec = { 0 };
	struct image_chain *made;
	struct err e = { 0 };
	uint32_t image;
	int r = layers_parse(row->layers, &spec, &image, &e);

	if (r == 0 && (!spec.layers || !oci_digest_ok(row->chain) || strlen(row->parent) >= sizeof(c.parent)))
		r = err_set(&e, ERR_INTERNAL, -EBADMSG, "its row is invalid");
	if (r == 0) {
		snprintf(c.id, sizeof(c.id), "%s", row->chain);
		snprintf(c.parent, sizeof(c.parent), "%s", row->parent);
		snprintf(c.diff, sizeof(c.diff), "%s", row->diff);
		snprintf(c.blob, sizeof(c.blob), "%s", row->blob);
		c.layers = spec.layers;
		memcpy(c.layer, spec.layer, sizeof(c.layer));
		r = list(s, &c, &made, &e);
	}
	if (r < 0)
		log_error("layer %s of an image cannot be read from the store and is not touched: %s", row->chain,
			  e.msg);
	else
		layer_must_stay(s, top(made)); /* an earlier process may have died before that was noted */
	/* The lower layers belong to others, so they are not removed. */
	for (uint32_t i = 0; r < 0 && i < spec.layers; i++)
		layer_hold(s, spec.layer[i]);
	return 0;
}

uint64_t image_chain_bytes(struct service *s, const char *id)
{
	uint64_t sum = 0;

	for (const struct image_chain *c = image_chain_find(s, id); c; c = image_chain_find(s, c->parent))
		sum += c->size;
	return sum;
}

int image_chain_room(const struct image_chain *c, unsigned more, struct err *e)
{
	unsigned n = more;

	for (; c; c = image_chain_find(c->service, c->parent))
		n++;
	if (n <= OCI_LAYERS_MAX)
		return 0;
	err_set(e, ERR_TOO_LARGE, -E2BIG, "the image would have %u layers, and at most %u are allowed", n,
		OCI_LAYERS_MAX);
	err_remedy(e, "do more in one step, so that fewer layers are made");
	return -E2BIG;
}

struct image_chain *image_chain_of(struct service *s, const struct sandbox_spec *spec)
{
	struct image_chain *c, *best = NULL;
	size_t at = 0;

	while ((c = map_next(&s->images->chains, &at)))
		if (c->layers <= spec->layers && (!best || c->layers > best->layers) &&
		    !memcmp(c->layer, spec->layer, c->layers * sizeof(c->layer[0])))
			best = c;
	return best;
}

void image_layers_of(struct service *s, const struct sandbox_spec *of, struct sandbox_spec *ret)
{
	const struct image_chain *c = image_chain_of(s, of);

	ret->layers = c ? c->layers : 0;
	memset(ret->layer, 0, sizeof(ret->layer));
	if (c)
		memcpy(ret->layer, c->layer, c->layers * sizeof(c->layer[0]));
}

/* --- unused chains --- */

static void mark(struct service *s, const char *id)
{
	for (struct image_chain *c = image_chain_find(s, id); c && !c->marked; c = image_chain_find(s, c->parent))
		c->marked = true;
}

struct removal {
	struct turn_wait wait;
	struct service *s;
	char layer[ID_SIZE];
};

/* No row names it any more: the store's next sweep removes it, unless a sandbox or a checkpoint is based on it. */
static void on_removed(void *arg)
{
	struct removal *x = arg;

	layer_drop(x->s, x->layer);
	free(x);
}

static int remove_chain(struct image_chain *c)
{
	struct service *s = c->service;
	struct removal *x = calloc(1, sizeof(*x));
	struct err e = { 0 };

	if (!x)
		abort();
	x->s = s;
	memcpy(x->layer, top(c), ID_SIZE);
	layer_may_go(s, x->layer);
	if (image_layers_delete(s->db, c->id, &e) < 0) {
		log_error("cannot remove a layer of an image: %s", e.msg);
		layer_must_stay(s, x->layer);
		free(x);
		return -EIO;
	}
	turn_after(s->turn, &x->wait, on_removed, x);
	turn_dirty(s->turn);
	return 0;
}

void image_sweep(struct service *s, struct image_freed *ret)
{
	struct image_freed freed = { 0 };
	struct image_chain *c;
	const char *id;
	size_t at = 0;

	while ((c = map_next(&s->images->chains, &at)))
		c->marked = false;
	at = 0;
	while ((id = image_use_next(s, &at)))
		mark(s, id);
	at = 0;
	while ((c = map_next(&s->images->chains, &at))) {
		if (!c->pins || c->marked)
			continue;
		s->images->again = true;
		mark(s, c->id);
	}
	at = 0;
	while ((c = map_next(&s->images->chains, &at))) {
		if (c->marked || remove_chain(c) < 0)
			continue;
		freed.chains++;
		freed.bytes += c->size;
		map_del(&s->images->chains, c->id);
		free(c);
	}
	if (ret)
		*ret = freed;
}
