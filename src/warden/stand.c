#include "warden/stand.h"
#include "base/base.h"

/* Only of image `host`: others can change while a sandbox waits, and so can what is mounted from elsewhere. */
static bool can(const struct sandbox_spec *s)
{
	return !strcmp(s->image, "host") && !s->layers && !s->nmounts && !s->ntmpfs && !s->limits.io_bps &&
	       !(s->flags & (SPEC_DISK | SPEC_MEMORY));
}

/* Byte by byte: what is equal in meaning only is made in the ordinary way. Of what can be, the rest is empty. */
static bool same(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
	const size_t from = offsetof(struct sandbox_spec, image), to = offsetof(struct sandbox_spec, layer);

	return !memcmp((const char *)a + from, (const char *)b + from, to - from) &&
	       steer_same(&a->net, &b->net);
}

bool stand_same(const struct stand *t, const struct sandbox_spec *spec)
{
	return t->number && can(spec) && same(&t->spec, spec);
}

bool stand_learn(struct stand *t, const struct sandbox_spec *spec)
{
	bool twice = t->had && can(spec) && same(&t->last, spec);

	t->had = can(spec);
	if (t->had)
		t->last = *spec;
	if (!twice || stand_same(t, spec))
		return false;
	t->spec = *spec;
	t->number = ++t->last_number;
	return true;
}

void stand_forget(struct stand *t)
{
	t->number = 0;
	t->had = false;
}
