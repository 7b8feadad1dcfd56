/* Cached steps of builds: removed on request, or after a long time without use. */
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/image/build.h"
#include "service/image/usage.h"

#define KEPT_NS (14ULL * 24 * 3600 * 1000000000)

struct forgetting {
	const char *tenant;
	uint64_t before_ns; /* steps used since then stay */
	struct forgotten {
		char key[65], chain[OCI_DIGEST_SIZE];
	} * step;
	size_t n;
	bool out_of_memory;
};

static int look(void *arg, const struct build_cache_row *x)
{
	struct forgetting *f = arg;

	if (strcmp(x->tenant, f->tenant) != 0 || x->used_ns >= f->before_ns || strlen(x->key) != 64)
		return 0;
	if ((f->n & (f->n - 1)) == 0) {
		void *more = realloc(f->step, (f->n ? 2 * f->n : 1) * sizeof(*f->step));

		f->out_of_memory = !more;
		if (!more)
			return 0;
		f->step = more;
	}
	memcpy(f->step[f->n].key, x->key, 65);
	snprintf(f->step[f->n++].chain, OCI_DIGEST_SIZE, "%s", x->chain);
	return 0;
}

static int forget(struct service *s, struct tenant *t, uint64_t before_ns, struct build_forgotten *ret, struct err *e)
{
	struct forgetting f = { .tenant = t->id, .before_ns = before_ns };
	struct image_freed freed = { 0 };
	int r = build_cache_each(s->db, look, &f, e);

	for (size_t i = 0; r == 0 && i < f.n; i++) {
		r = build_cache_delete(s->db, t->id, f.step[i].key, e);
		if (r == 0)
			image_unuse(s, t, f.step[i].chain);
	}
	free(f.step);
	if (f.n) {
		turn_dirty(s->turn);
		image_sweep(s, &freed);
	}
	*ret = (struct build_forgotten){ .steps = f.n, .layers = freed.chains, .bytes = freed.bytes };
	return r;
}

int build_cache_forget(struct service *s, const struct who *who, struct build_forgotten *ret, struct err *e)
{
	return forget(s, who->tenant, UINT64_MAX, ret, e);
}

void build_cache_expire(struct service *s, struct tenant *t)
{
	uint64_t now = clock_real_ns();
	struct build_forgotten gone;

	if (now > KEPT_NS)
		forget(s, t, now - KEPT_NS, &gone, NULL);
}

int build_cache_keep(struct service *s, struct tenant *t, const char *key, const char *chain, struct err *e)
{
	const struct image_chain *c = image_chain_find(s, chain);
	const struct build_cache_row row = { .tenant = t->id,
					     .key = key,
					     .chain = chain,
					     .config = "",
					     .size = c ? c->size : 0,
					     .used_ns = clock_real_ns() };
	char old[OCI_DIGEST_SIZE] = "";
	struct err why = { 0 };
	uint64_t used_ns;
	int r = image_use(s, t, chain, e);

	if (r < 0)
		return r;
	build_cache_get(s->db, t->id, key, old, sizeof(old), &used_ns);
	/* If this fails, only the next build is slower. */
	if (build_cache_put(s->db, &row, &why) < 0) {
		log_warn("a step of a build cannot be stored: %s", why.msg);
		image_unuse(s, t, chain);
		return 0;
	}
	image_unuse(s, t, old);
	turn_dirty(s->turn);
	return 0;
}

struct loading {
	struct service *s;
	struct step {
		struct tenant *tenant;
		char key[65];
	} * lost; /* steps whose layers do not exist */
	size_t n;
};

static int load_step(void *arg, const struct build_cache_row *x)
{
	struct loading *l = arg;
	struct tenant *t = tenant_find(l->s->access, x->tenant);

	if (!t)
		return 0;
	if (!*x->chain || image_chain_find(l->s, x->chain)) {
		image_use_force(l->s, t, x->chain);
		return 0;
	}
	if ((l->n & (l->n - 1)) == 0) {
		void *more = realloc(l->lost, (l->n ? 2 * l->n : 1) * sizeof(*l->lost));

		if (!more)
			return -ENOMEM;
		l->lost = more;
	}
	l->lost[l->n].tenant = t;
	snprintf(l->lost[l->n++].key, sizeof(l->lost->key), "%s", x->key);
	return 0;
}

int build_cache_load(struct service *s, struct err *e)
{
	struct loading l = { .s = s };
	int r = build_cache_each(s->db, load_step, &l, e);

	for (size_t i = 0; r == 0 && i < l.n; i++)
		r = build_cache_delete(s->db, l.lost[i].tenant->id, l.lost[i].key, e);
	free(l.lost);
	return r;
}
