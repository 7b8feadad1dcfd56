/* Remembers requests, and chooses those that sandboxes are prebuilt for. */
#include "engine/pool/prebuilt.h"
#include "base/base.h"
#include "base/clock.h"

#include <limits.h>

/* Whether @s can be prebuilt. Image folders and mounted folders cannot: they may change while a sandbox waits. */
static bool plain(const struct sandbox_spec *s)
{
	return (!strcmp(s->image, "host") || !strcmp(s->image, SPEC_SCRATCH)) && !s->nmounts && !s->ntmpfs &&
	       !s->limits.io_bps && !(s->flags & (SPEC_DISK | SPEC_TIERS | SPEC_JAIL | SPEC_KVM));
}

static bool can(const struct sandbox_spec *s)
{
	return plain(s) && !strcmp(s->image, "host") && !s->layers && !(s->flags & SPEC_MEMORY);
}

/*
 * Compares byte by byte the parts that a plain spec can have. Specs that are equal only in meaning count as different.
 */
static bool same(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	const size_t from = offsetof(struct sandbox_spec, image), to = offsetof(struct sandbox_spec, layer);

	return !memcmp((const char *)a + from, (const char *)b + from, to - from) && steer_same(&a->net, &b->net);
}

/* Layers belong to a tenant, so the tenant is compared as well; the number of layers is compared in same(). */
static bool same_layered(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	return a->tenant == b->tenant && same(a, b) && !memcmp(a->layer, b->layer, a->layers * sizeof(a->layer[0]));
}

bool prebuilt_same(const struct prebuilt *t, const struct sandbox_spec *spec)
{
	return t->number && can(spec) && same(&t->spec, spec);
}

/* Its place in ->layered; PREBUILT_KNOWN: it is not there. */
static unsigned find(const struct prebuilt *t, const struct sandbox_spec *spec)
{
	unsigned i = spec->layers ? 0 : PREBUILT_KNOWN;

	while (i < PREBUILT_KNOWN && !(t->layered[i].asked && same_layered(&t->layered[i].spec, spec)))
		i++;
	return i;
}

uint64_t prebuilt_number(const struct prebuilt *t, const struct sandbox_spec *spec)
{
	const unsigned i = find(t, spec);

	return i < PREBUILT_KNOWN ? t->layered[i].number : prebuilt_same(t, spec) ? t->number : 0;
}

bool prebuilt_current(const struct prebuilt *t, uint64_t number)
{
	bool current = number == t->number;

	for (unsigned i = 0; !current && i < PREBUILT_KNOWN; i++)
		current = t->layered[i].number == number;
	return current && number;
}

static bool is_recent(const struct prebuilt *t, uint64_t asked)
{
	return asked + PREBUILT_RECENT > t->asked;
}

/* The one that was requested longest ago first: of requests that come in turns, it is the next. */
static unsigned add_wish(struct prebuilt_wish *to, unsigned n, struct prebuilt_wish w)
{
	unsigned at;

	for (at = n; at && to[at - 1].asked > w.asked; at--)
		to[at] = to[at - 1];
	to[at] = w;
	return n + 1;
}

unsigned prebuilt_wishes(const struct prebuilt *t, unsigned places, struct prebuilt_wish ret[PREBUILT_WISHES])
{
	const bool host = t->number && is_recent(t, t->host_asked);
	unsigned n = t->number != 0, sharing = host, share;

	ret[0] = (struct prebuilt_wish){ &t->spec, t->number, host ? UINT_MAX : 1, t->host_asked };
	for (unsigned i = 0; i < PREBUILT_KNOWN; i++) {
		const struct prebuilt_layered *l = &t->layered[i];
		const bool shares = l->number && !(l->spec.flags & SPEC_MEMORY) && is_recent(t, l->asked);

		sharing += shares;
		if (l->number)
			n = add_wish(ret, n,
				     (struct prebuilt_wish){ &l->spec, l->number, shares ? l->times : 1, l->asked });
	}
	share = sharing && places / sharing ? places / sharing : 1;
	for (unsigned i = 0; i < n; i++)
		ret[i].most = ret[i].most < share ? ret[i].most : share;
	return n;
}

/* Of the entries with (or without) a number, the one that was requested longest ago, or never. */
static struct prebuilt_layered *oldest(struct prebuilt *t, bool numbered)
{
	struct prebuilt_layered *found = NULL;

	for (unsigned i = 0; i < PREBUILT_KNOWN; i++)
		if (!t->layered[i].number == !numbered && (!found || t->layered[i].asked < found->asked))
			found = &t->layered[i];
	return found;
}

static bool learn_layered(struct prebuilt *t, const struct sandbox_spec *spec)
{
	const unsigned at = find(t, spec);
	struct prebuilt_layered *l = &t->layered[at];
	unsigned n = 0;

	if (!t->most)
		return false;
	if (at < PREBUILT_KNOWN) {
		l->asked = ++t->asked;
		l->at = clock_mono_ns();
		l->times += l->times < UINT_MAX;
		if (l->number)
			return false;
		for (unsigned i = 0; i < PREBUILT_KNOWN; i++)
			n += t->layered[i].number != 0;
		if (n >= t->most)
			*oldest(t, true) = (struct prebuilt_layered){ 0 };
		l->number = ++t->last_number;
		l->times = 1;
		return true;
	}
	/* A spec that was asked for once only replaces others of that kind. */
	l = oldest(t, false);
	*l = (struct prebuilt_layered){ .spec = *spec, .asked = ++t->asked, .at = clock_mono_ns() };
	return false;
}

bool prebuilt_learn(struct prebuilt *t, const struct sandbox_spec *spec)
{
	bool twice = t->had && can(spec) && same(&t->last, spec);

	if (spec->flags & SPEC_ONCE)
		return false;
	if (spec->layers && plain(spec))
		return learn_layered(t, spec);
	t->had = can(spec);
	if (t->had)
		t->last = *spec;
	if (prebuilt_same(t, spec)) {
		t->host_asked = ++t->asked;
		return false;
	}
	if (!twice)
		return false;
	t->spec = *spec;
	t->host_asked = ++t->asked;
	t->number = ++t->last_number;
	return true;
}

void prebuilt_forget(struct prebuilt *t, uint64_t number)
{
	if (t->number == number)
		t->number = t->had = 0;
	for (unsigned i = 0; number && i < PREBUILT_KNOWN; i++)
		if (t->layered[i].number == number)
			t->layered[i] = (struct prebuilt_layered){ 0 };
}

void prebuilt_expire(struct prebuilt *t, uint64_t time)
{
	for (unsigned i = 0; i < PREBUILT_KNOWN; i++)
		if (t->layered[i].number && t->layered[i].at < time)
			t->layered[i] = (struct prebuilt_layered){ 0 };
}

bool prebuilt_forget_layer(struct prebuilt *t, const char *layer)
{
	bool any = false;

	for (unsigned i = 0; i < PREBUILT_KNOWN; i++) {
		struct prebuilt_layered *l = &t->layered[i];

		for (uint32_t k = 0; l->asked && k < l->spec.layers; k++) {
			if (strcmp(l->spec.layer[k], layer) != 0)
				continue;
			any = any || l->number;
			*l = (struct prebuilt_layered){ 0 };
		}
	}
	return any;
}
