/* Counts the bytes of images that each tenant needs. */
#include "service/image/usage.h"
#include "base/base.h"
#include "service/access/struct.h"
#include "service/image/blob_store.h"
#include "service/image/book.h"
#include "service/image/struct.h"
#include "service/struct.h"

#include <sys/stat.h>

#define METER_MS 100
#define KEY_MAX (OCI_DIGEST_SIZE + 24)

/* A chain that a tenant needs. In a map, by the tenant's number and the chain's id. */
struct use {
	char chain[OCI_DIGEST_SIZE];
	struct tenant *tenant;
	uint64_t n; /* how often: by rows, by sandboxes and checkpoints, by work, and by chains above it */
	uint64_t size;
};

static void key_of(const struct tenant *t, const char *chain, char ret[KEY_MAX])
{
	snprintf(ret, KEY_MAX, "%llu/%s", (unsigned long long)t->number, chain);
}

static struct use *find(const struct service *s, const struct tenant *t, const char *chain)
{
	char key[KEY_MAX];

	key_of(t, chain, key);
	return map_get(&s->images->uses, key);
}

/* --- the quota --- */

static void remedy(struct err *e)
{
	err_remedy(
		e,
		"remove images (`cloche image rm`) or forget steps of builds (`cloche image prune --builds`), or have the quota raised");
}

int image_bytes_take(struct tenant *t, uint64_t bytes, struct err *e)
{
	int r = tenant_take(t, &(struct tenant_quota){ .image_bytes = bytes }, e);

	if (r == -EDQUOT && e) {
		e->remedy[0] = '\0';
		remedy(e);
	}
	return r;
}

int image_bytes_take_in(struct service *s, struct tenant *t, uint64_t bytes, struct err *e)
{
	int r = image_bytes_take(t, bytes, e);

	if (r == -EDQUOT && blob_store_forget(s, t))
		r = image_bytes_take(t, bytes, e);
	return r;
}

void image_bytes_give(struct tenant *t, uint64_t bytes)
{
	tenant_give(t, &(struct tenant_quota){ .image_bytes = bytes });
}

int image_bytes_check(struct tenant *t, uint64_t bytes, struct err *e)
{
	int r = image_bytes_take(t, bytes, e);

	if (r == 0)
		image_bytes_give(t, bytes);
	return r;
}

uint64_t image_bytes_room(const struct tenant *t, uint64_t max)
{
	const uint64_t quota = t->quota.image_bytes, used = t->used.image_bytes;

	if (!quota)
		return max;
	return used >= quota ? 0 : quota - used < max ? quota - used : max;
}

void image_bytes_explain(const struct tenant *t, uint64_t given, uint64_t max, struct err *e)
{
	if (given >= max)
		return;
	err_set(e, WHY_QUOTA, -EDQUOT,
		"tenant '%s': its quota of image_bytes is %llu bytes, of which %llu were left, and more were needed",
		t->id, (unsigned long long)t->quota.image_bytes, (unsigned long long)given);
	remedy(e);
}

/* --- chains --- */

static void add(struct service *s, struct tenant *t, const char *chain)
{
	for (const struct image_chain *c = image_chain_find(s, chain); c; c = image_chain_find(s, c->parent)) {
		struct use *u = find(s, t, c->id);
		char key[KEY_MAX];

		if (u) {
			u->n++;
			return;
		}
		u = malloc(sizeof(*u));
		key_of(t, c->id, key);
		if (!u || map_put(&s->images->uses, key, u) < 0)
			abort(); /* some hundred bytes */
		*u = (struct use){ .tenant = t, .n = 1, .size = c->size };
		memcpy(u->chain, c->id, sizeof(u->chain));
	}
}

/* Bytes of @chain that @t does not need yet. */
static uint64_t more_of(struct service *s, const struct tenant *t, const char *chain)
{
	uint64_t sum = 0;

	for (const struct image_chain *c = image_chain_find(s, chain); c && !find(s, t, c->id);
	     c = image_chain_find(s, c->parent))
		sum += c->size;
	return sum;
}

int image_use(struct service *s, struct tenant *t, const char *chain, struct err *e)
{
	int r = image_bytes_take_in(s, t, more_of(s, t, chain), e);

	if (r == 0)
		add(s, t, chain);
	return r;
}

void image_use_force(struct service *s, struct tenant *t, const char *chain)
{
	tenant_force(t, &(struct tenant_quota){ .image_bytes = more_of(s, t, chain) });
	add(s, t, chain);
}

void image_unuse(struct service *s, struct tenant *t, const char *chain)
{
	const struct image_chain *c = image_chain_find(s, chain);

	for (; c; c = image_chain_find(s, c->parent)) {
		struct use *u = find(s, t, c->id);
		char key[KEY_MAX];

		if (!u) /* the tenant was removed meanwhile */
			return;
		assert(u->n);
		if (--u->n)
			return;
		image_bytes_give(t, u->size);
		key_of(t, c->id, key);
		map_del(&s->images->uses, key);
		free(u);
	}
}

void image_uses_forget(struct service *s, const struct tenant *t)
{
	struct use *u;
	size_t at = 0;

	while ((u = map_next(&s->images->uses, &at))) {
		char key[KEY_MAX];

		if (u->tenant != t)
			continue;
		image_bytes_give(u->tenant, u->size);
		key_of(t, u->chain, key);
		map_del(&s->images->uses, key);
		free(u);
	}
}

const char *image_use_next(struct service *s, size_t *at)
{
	const struct use *u = map_next(&s->images->uses, at);

	return u ? u->chain : NULL;
}

/* Whether another tenant's public image has @chain, so that it counts for that one. */
static bool is_shared(struct service *s, const struct tenant *t, const struct image_chain *chain)
{
	const struct image *i;
	size_t at = 0;

	while ((i = map_next(&s->images->images, &at)))
		for (const struct image_chain *c = i->public && i->tenant != t ? image_chain_find(s, i->chain) : NULL;
		     c; c = image_chain_find(s, c->parent))
			if (c == chain)
				return true;
	return false;
}

static struct image_chain *chain_with(struct service *s, const struct sandbox_spec *of, uint32_t n)
{
	struct image_chain *c;
	size_t at = 0;

	while ((c = map_next(&s->images->chains, &at)))
		if (c->layers == n && !memcmp(c->layer, of->layer, n * sizeof(c->layer[0])))
			return c;
	return NULL;
}

bool image_is_had(struct service *s, const struct tenant *t, const struct image_chain *c)
{
	return find(s, t, c->id) || is_shared(s, t, c);
}

void image_hold(struct service *s, struct tenant *t, const struct sandbox_spec *of, uint32_t n, char **held)
{
	const struct image_chain *c = n ? chain_with(s, of, n) : NULL;
	AUTO_FREE char *was = TAKE_PTR(*held);

	if (c && (find(s, t, c->id) || !is_shared(s, t, c))) {
		*held = strdup(c->id);
		if (!*held)
			abort();
		image_use_force(s, t, c->id);
	}
	if (!was)
		return;
	image_unuse(s, t, was);
	if (!find(s, t, was))
		image_sweep(s, NULL);
}

/* --- growing files --- */

struct image_meter {
	struct tenant *tenant;
	int fd[METER_FILES];
	uint64_t taken;
	uv_timer_t *timer;
	image_meter_fn *full;
	void *arg;
};

static void on_closed(uv_handle_t *h)
{
	free(h);
}

static void on_look(uv_timer_t *timer)
{
	struct image_meter *m = timer->data;
	uint64_t now = 0;
	struct err e = { 0 };
	struct stat st;

	for (unsigned i = 0; i < METER_FILES; i++)
		if (m->fd[i] >= 0 && fstat(m->fd[i], &st) == 0)
			now += (uint64_t)st.st_size;
	if (now <= m->taken) {
		image_bytes_give(m->tenant, m->taken - now);
		m->taken = now;
		return;
	}
	if (image_bytes_take(m->tenant, now - m->taken, &e) < 0) {
		uv_timer_stop(timer);
		m->full(m->arg, &e);
		return;
	}
	m->taken = now;
}

int image_meter_new(struct service *s, struct tenant *t, const int fd[METER_FILES], image_meter_fn *full, void *arg,
		    struct image_meter **ret, struct err *e)
{
	struct image_meter *m = calloc(1, sizeof(*m));
	int r = image_bytes_check(t, 1, e);

	if (!m || !(m->timer = calloc(1, sizeof(*m->timer))))
		abort();
	if (r < 0) {
		free(m->timer);
		free(m);
		return r;
	}
	m->tenant = t;
	memcpy(m->fd, fd, sizeof(m->fd));
	m->full = full;
	m->arg = arg;
	m->timer->data = m;
	uv_timer_init(s->loop, m->timer);
	uv_timer_start(m->timer, on_look, METER_MS, METER_MS);
	*ret = m;
	return 0;
}

void image_meter_drop(struct image_meter *m, unsigned i)
{
	m->fd[i] = -1;
	on_look(m->timer);
}

void image_meter_free(struct image_meter *m)
{
	if (!m)
		return;
	uv_close((uv_handle_t *)m->timer, on_closed);
	image_bytes_give(m->tenant, m->taken);
	free(m);
}

/* --- shown --- */

struct sum {
	uint64_t images, layers, bytes, build_layers, build_bytes;
};

static struct sum sum_of(struct service *s, const struct tenant *t)
{
	struct sum sum = { 0 };
	struct image_chain *c;
	const struct image *i;
	size_t at = 0;

	while ((c = map_next(&s->images->chains, &at)))
		c->marked = false;
	at = 0;
	while ((i = map_next(&s->images->images, &at))) {
		if (i->tenant != t)
			continue;
		sum.images++;
		for (c = image_chain_find(s, i->chain); c && !c->marked; c = image_chain_find(s, c->parent)) {
			c->marked = true;
			sum.layers++;
			sum.bytes += c->size;
		}
	}
	at = 0;
	while ((c = map_next(&s->images->chains, &at))) {
		if (c->marked || !find(s, t, c->id))
			continue;
		sum.build_layers++;
		sum.build_bytes += c->size;
	}
	return sum;
}

static void write_tenant(struct service *s, const struct tenant *t, struct json *j)
{
	const struct sum sum = sum_of(s, t);
	const uint64_t layers = sum.bytes + sum.build_bytes;

	jout_object(j, NULL);
	jout_str(j, "tenant", t->id);
	jout_u64(j, "images", sum.images);
	jout_u64(j, "layers", sum.layers);
	jout_u64(j, "bytes", sum.bytes);
	jout_u64(j, "build_layers", sum.build_layers);
	jout_u64(j, "build_bytes", sum.build_bytes);
	jout_u64(j, "pending_bytes", t->used.image_bytes > layers ? t->used.image_bytes - layers : 0);
	jout_u64(j, "used", t->used.image_bytes);
	jout_u64(j, "quota", t->quota.image_bytes);
	jout_end(j);
}

void image_usage_write(struct service *s, struct tenant *t, struct json *j)
{
	const struct image_chain *c;
	uint64_t layers = 0, bytes = 0;
	size_t at = 0;

	jout_object(j, NULL);
	jout_array(j, "tenants");
	for (struct tenant *x = t ? t : tenant_first(s->access); x; x = t ? NULL : tenant_next(x))
		write_tenant(s, x, j);
	jout_end(j);
	while (!t && (c = map_next(&s->images->chains, &at))) {
		layers++;
		bytes += c->size;
	}
	if (t) {
		jout_null(j, "disk");
	} else {
		jout_object(j, "disk");
		jout_u64(j, "layers", layers);
		jout_u64(j, "bytes", bytes);
		jout_end(j);
	}
	jout_end(j);
}
