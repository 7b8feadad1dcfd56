/* Keeps sandboxes of a template ready. */
#include "service/template/pool.h"
#include "service/sandbox/part.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/state/event.h"
#include "service/exec/struct.h"
#include "service/template/pool_internal.h"
#include "service/template/template.h"

#include <poll.h>

static void scoped(const struct tenant *t, const char *name, char *to, size_t size)
{
	snprintf(to, size, "%s/%s", t->id, name);
}

/* --- what is ready --- */

void pool_add_ready(struct pool *p, struct sandbox *b)
{
	/* The first exec need not wait for it then. */
	if (b->group < 0 && b->handle)
		sandbox_ask_for_group(b);
	b->ready_next = NULL;
	b->ready_prev = p->ready_last;
	*p->ready_last = b;
	p->ready_last = &b->ready_next;
	p->nready++;
}

static void not_ready(struct pool *p, struct sandbox *b)
{
	if (!b->ready_prev)
		return;
	*b->ready_prev = b->ready_next;
	if (b->ready_next)
		b->ready_next->ready_prev = b->ready_prev;
	else
		p->ready_last = b->ready_prev;
	b->ready_next = NULL;
	b->ready_prev = NULL;
	p->nready--;
}

/* Its first process may have died a moment ago, and we only hear of it after this turn. */
static bool agent_lives(const struct sandbox *b)
{
	struct pollfd p = { .fd = b->link.sock, .events = POLLRDHUP };

	return poll(&p, 1, 0) >= 0 && !(p.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL));
}

/* In a ready sandbox, only its template has started execs. */
static bool start_is_lost(const struct sandbox *b)
{
	for (const struct exec *x = b->execs; x; x = x->next)
		if (x->lost || (x->state == EXEC_ENDED && x->verdict.cause == VERDICT_LOST))
			return true;
	return false;
}

enum fitness pool_fits(const struct sandbox *b, const char **ret_why)
{
	const struct template *t = b->pool ? b->pool->template : NULL;

	if (!t)
		*ret_why = "its pool was deleted";
	else if (b->request->origin.version != t->version || strcmp(b->request->origin.template, t->name))
		*ret_why = "the template was changed";
	else if (!t->request || !request_like(b->request, t->request))
		*ret_why = "the configuration was changed";
	else if (b->state != SANDBOX_RUNNING || !b->handle)
		*ret_why = "it has ended";
	else if (start_is_lost(b))
		*ret_why = "its start command did not survive a restart";
	else if (!b->link.poll || !b->synced)
		return FIT_LATER;
	else if (!agent_lives(b))
		*ret_why = "its first process has ended";
	else
		return FIT;
	return FIT_NEVER;
}

static struct sandbox *take_ready(struct pool *p)
{
	const char *why = NULL;
	struct sandbox *b, *next;

	for (b = p->ready; b; b = next) {
		enum fitness fit = pool_fits(b, &why);

		next = b->ready_next;
		if (fit == FIT_NEVER)
			sandbox_discard(b, why);
		if (fit != FIT)
			continue;
		not_ready(p, b);
		p->served++;
		pools_soon(p->service);
		return b;
	}
	return NULL;
}

int pools_take(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
	       struct err *e)
{
	struct template *t = template_find(s, who->tenant, request->origin.template, NULL);
	struct pool *room = NULL;

	/* What the body asks for beyond the template is made for it alone, and is no pool's. */
	if (!t || !t->pools || !t->request || request->origin.version != t->version ||
	    !request_like(request, t->request))
		return 0;
	for (struct pool *p = t->pools; p; p = p->next) {
		*ret = take_ready(p);
		if (*ret) {
			memcpy(request->origin.pool, p->id, sizeof(request->origin.pool));
			request->origin.pooled = true;
			return 1;
		}
		if (!p->max || p->alive < p->max)
			room = room ? room : p;
	}
	if (!room) {
		err_set(e, WHY_LIMIT, -EDQUOT, "pool '%s' has reached its limit of %u sandboxes", t->pools->name,
			t->pools->alive);
		err_remedy(e, "delete some, or raise the pool's `max`");
		return -EDQUOT;
	}
	room->missed++;
	pools_soon(s);
	memcpy(request->origin.pool, room->id, sizeof(request->origin.pool));
	return 0;
}

bool pool_yield(struct service *s, const struct tenant *t)
{
	struct pool *p, *most = NULL;
	size_t at = 0;

	while ((p = map_next(&s->pools, &at)))
		if ((!t || p->template->tenant == t) && p->nready && (!most || p->nready > most->nready))
			most = p;
	if (!most)
		return false;
	sandbox_discard(most->ready, "its place was needed");
	return true;
}

void pool_joined(struct sandbox *b)
{
	struct pool *p = b->request->origin.pool[0] ? map_get(&b->service->pools, b->request->origin.pool) : NULL;

	b->pool = p;
	if (p)
		p->alive++;
}

void pool_left(struct sandbox *b)
{
	struct pool *p = b->pool;

	if (!p)
		return;
	not_ready(p, b);
	p->alive--;
	b->pool = NULL;
	pools_soon(b->service);
}

static void drop_ready(struct pool *p, unsigned keep, const char *why)
{
	while (p->nready > keep)
		sandbox_discard(p->ready, why);
}

void pool_renew(struct pool *p)
{
	drop_ready(p, 0, "the template was changed");
	refill_again(p);
}

/* --- put, remove --- */

static struct pool *pool_find(struct service *s, const struct tenant *tenant, const char *name, struct err *e)
{
	struct pool *p;
	char key[256];

	scoped(tenant, name, key, sizeof(key));
	p = map_get(&s->pool_names, key);
	if (!p)
		err_set(e, WHY_POOL_MISSING, -ENOENT, "no pool '%.64s'", name);
	return p;
}

static int store(const struct pool *p, struct err *e)
{
	struct pool_row row = {
		.id = p->id,
		.tenant = p->template->tenant->id,
		.name = p->name,
		.template = p->template->name,
		.min = p->min,
		.max = p->max,
		.created_ns = p->created_ns,
	};

	return pools_put(p->service->db, &row, e);
}

static void note(const struct pool *p, const struct who *who, const char *kind)
{
	struct service *s = p->service;
	struct audit_rec rec = who_rec(who, kind);
	char fields[256], event[40];
	struct json *j;

	rec.tenant = p->template->tenant->id;
	j = audit_begin(s->audit, &rec);
	jout_str(j, "pool", p->name);
	jout_str(j, "template", p->template->name);
	jout_u64(j, "min", p->min);
	jout_u64(j, "max", p->max);
	audit_end(s->audit, NULL);
	snprintf(event, sizeof(event), "%sd", kind);
	snprintf(fields, sizeof(fields), "\"pool\":\"%s\",\"template\":\"%s\",\"min\":%u,\"max\":%u", p->name,
		 p->template->name, p->min, p->max);
	event_of(s, p->template->tenant, "", event, fields);
	turn_dirty(s->turn);
}

static void link_pool(struct pool *p)
{
	struct pool **last = &p->template->pools;

	while (*last)
		last = &(*last)->next;
	p->next = NULL;
	*last = p;
}

static void unlink_pool(struct pool *p)
{
	struct pool **at = &p->template->pools;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
}

/* By id and by name. */
static int list(struct pool *p)
{
	struct service *s = p->service;
	char key[256];
	int r = map_put(&s->pools, p->id, p);

	scoped(p->template->tenant, p->name, key, sizeof(key));
	if (r == 0) {
		r = map_put(&s->pool_names, key, p);
		if (r < 0)
			map_del(&s->pools, p->id);
	}
	if (r == 0)
		link_pool(p);
	return r;
}

static void unlist(struct pool *p)
{
	struct service *s = p->service;
	char key[256];

	scoped(p->template->tenant, p->name, key, sizeof(key));
	map_del(&s->pool_names, key);
	map_del(&s->pools, p->id);
	unlink_pool(p);
}

static struct pool *pool_new(struct service *s, struct template *t, const char *name)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct pool){ .service = s, .template = t };
	p->ready_last = &p->ready;
	snprintf(p->name, sizeof(p->name), "%s", name);
	return p;
}

static int add(struct service *s, struct template *t, const char *name, uint32_t min, uint32_t max, struct pool **ret,
	       struct err *e)
{
	AUTO_FREE struct pool *p = NULL;
	unsigned n = 0;
	size_t at = 0;
	int r = name_check(name, e);

	while (r == 0 && (p = map_next(&s->pools, &at)))
		n += p->template->tenant == t->tenant;
	p = NULL;
	if (r < 0)
		return r;
	if (n >= POOLS_MAX)
		return err_set(e, WHY_LIMIT, -EDQUOT, "tenant '%s' has reached its limit of %u pools", t->tenant->id,
			       n);
	p = pool_new(s, t, name);
	if (!p)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a pool");
	p->min = min;
	p->max = max;
	p->created_ns = clock_real_ns();
	r = id_new(p->id, sizeof(p->id));
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make an id");
	r = store(p, e);
	if (r < 0)
		return r;
	if (list(p) < 0) {
		pools_delete(s->db, p->id, NULL);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a pool");
	}
	*ret = TAKE_PTR(p);
	return 0;
}

static int change(struct pool *p, struct template *t, uint32_t min, uint32_t max, struct err *e)
{
	struct pool old = *p;
	int r;

	unlink_pool(p);
	p->template = t;
	link_pool(p);
	p->min = min;
	p->max = max;
	r = store(p, e);
	if (r < 0) {
		unlink_pool(p);
		p->template = old.template;
		link_pool(p);
		p->min = old.min;
		p->max = old.max;
		return r;
	}
	drop_ready(p, t == old.template ? min : 0, "the pool was changed");
	return 0;
}

int pool_put(struct service *s, const struct who *who, struct tenant *tenant, const char *name, const char *template,
	     uint32_t min, uint32_t max, struct pool **ret, bool *ret_new, struct err *e)
{
	struct template *t = template_find(s, tenant, template, e);
	struct pool *p;
	int r;

	if (!t)
		return -ENOENT;
	if (max && max < min)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'max' must not be less than `min`");
	p = pool_find(s, tenant, name, NULL);
	*ret_new = !p;
	r = p ? change(p, t, min, max, e) : add(s, t, name, min, max, &p, e);
	if (r < 0)
		return r;
	note(p, who, *ret_new ? "pool.create" : "pool.update");
	refill_again(p);
	*ret = p;
	return 0;
}

/* Sandboxes that were handed out do not belong to the pool any more. */
static void let_go(struct pool *p)
{
	struct sandbox *b;
	size_t at = 0;

	drop_ready(p, 0, "the pool was deleted");
	while ((b = map_next(&p->service->sandboxes, &at)))
		if (b->pool == p)
			b->pool = NULL;
	unlist(p);
	free(p);
}

static int remove_one(void *x, const struct who *who, struct err *e)
{
	struct pool *p = x;
	int r = pools_delete(p->service->db, p->id, e);

	if (r < 0)
		return r;
	note(p, who, "pool.delete");
	let_go(p);
	return 0;
}

void pools_clear(struct service *s, const struct tenant *t)
{
	struct pool *p;
	size_t at = 0;

	while ((p = map_next(&s->pools, &at)))
		if (p->template->tenant == t)
			drop_ready(p, 0, "its tenant is being removed");
}

bool pools_only(struct service *s, const struct tenant *t)
{
	uint64_t ready = 0;
	struct pool *p;
	size_t at = 0;

	while ((p = map_next(&s->pools, &at)))
		ready += p->template->tenant == t ? p->nready : 0;
	return strcmp(t->id, TENANT_DEFAULT) && t->used.sandboxes == ready;
}

void pools_forget(struct service *s, const struct tenant *t)
{
	struct pool *p;
	size_t at = 0;

	while ((p = map_next(&s->pools, &at)))
		if (p->template->tenant == t)
			let_go(p);
}

/* --- shown --- */

static void write_one(const void *x, struct json *j)
{
	const struct pool *p = x;
	char when[32];

	clock_iso(p->created_ns, when);
	jout_object(j, NULL);
	jout_str(j, "name", p->name);
	jout_str(j, "tenant", p->template->tenant->id);
	jout_str(j, "template", p->template->name);
	jout_u64(j, "min", p->min);
	jout_u64(j, "max", p->max);
	jout_u64(j, "ready", p->nready);
	jout_u64(j, "alive", p->alive);
	jout_u64(j, "served", p->served);
	jout_u64(j, "missed", p->missed);
	jout_u64(j, "failed", p->failed);
	jout_str(j, "last_error", p->last.msg[0] ? p->last.msg : NULL);
	jout_str(j, "created_at", when);
	jout_end(j);
}

static void *find(struct service *s, const struct tenant *t, const char *name, struct err *e)
{
	return pool_find(s, t, name, e);
}

static struct named next(const struct service *s, size_t *at)
{
	struct pool *p = map_next(&s->pools, at);

	return p ? (struct named){ p, p->template->tenant, p->name } : (struct named){ 0 };
}

const struct named_kind pool_kind = {
	.plural = "pools",
	.find = find,
	.next = next,
	.write = write_one,
	.remove = remove_one,
};

unsigned pools_ready(const struct service *s)
{
	const struct pool *p;
	unsigned n = 0;
	size_t at = 0;

	while ((p = map_next(&s->pools, &at)))
		n += p->nready;
	return n;
}

/* --- found again --- */

static int on_row(void *arg, const struct pool_row *row)
{
	struct service *s = arg;
	struct tenant *tenant = tenant_find(s->access, row->tenant);
	struct template *t = tenant ? template_find(s, tenant, row->template, NULL) : NULL;
	struct pool *p;

	if (!t) {
		log_error("pool %s/%s is not touched: its template cannot be read", row->tenant, row->name);
		return 0;
	}
	p = pool_new(s, t, row->name);
	if (!p)
		abort();
	snprintf(p->id, sizeof(p->id), "%s", row->id);
	p->min = row->min;
	p->max = row->max;
	p->created_ns = row->created_ns;
	if (list(p) < 0)
		abort();
	return 0;
}

int pools_load(struct service *s, struct err *e)
{
	return pools_each(s->db, on_row, s, e);
}

static void on_begun(struct sandbox *b, const struct sandbox_plan *p, struct sandbox_spec *spec)
{
	(void)p;
	(void)spec;
	pool_joined(b);
}

const struct sandbox_part template_part = {
	.name = "template",
	.begun = on_begun,
	.start = template_start,
	.take = sandbox_from_pool,
	.yield = pool_yield,
	.based = template_based,
	.images_changed = templates_image_changed,
	.loaded = pool_joined,
	.left = pool_left,
};
