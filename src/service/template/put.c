/* How templates come, change and go. */
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/state/event.h"
#include "service/template/pool.h"
#include "service/secret/give.h"
#include "service/template/internal.h"
#include "service/template/warm.h"

#define REWARM_NS (60ULL * 1000000000)

static void note(const struct template *t, const struct who *who, const char *kind)
{
	struct service *s = t->service;
	struct audit_rec rec = who_rec(who, kind);
	char fields[128], event[40];
	struct json *j;

	rec.tenant = t->tenant->id;
	j = audit_begin(s->audit, &rec);
	jout_str(j, "template", t->name);
	jout_u64(j, "version", t->version);
	if (t->image[0])
		jout_str(j, "image", t->image);
	audit_end(s->audit, NULL);
	snprintf(event, sizeof(event), "%s%s", kind, kind[strlen(kind) - 1] == 'e' ? "d" : "ed");
	snprintf(fields, sizeof(fields), "\"template\":\"%s\",\"version\":%llu", t->name,
		 (unsigned long long)t->version);
	event_of(s, t->tenant, "", event, fields);
	turn_dirty(s->turn);
}

/* A call that waits for a template to be stored, or to be warm again. */
struct put_op {
	struct put_op *next; /* the next call that waits for the same image */
	struct service *s;
	struct tenant *tenant;
	struct who who;
	struct template *draft; /* what is to be, ours until it is put; NULL: it is made warm again */
	uint64_t version; /* then: of which */
	struct template *t;
	char name[NAME_MAX_LEN + 1];
	bool created;
	struct err err;
	template_put_fn *fn;
	void *arg;
	struct turn_wait wait;
};

static void on_told(void *arg)
{
	struct put_op *op = arg;

	op->fn(op->arg, op->t, op->created, op->t ? NULL : &op->err);
	template_free(op->draft);
	free(op);
}

static void tell(struct put_op *op)
{
	turn_after(op->s->turn, &op->wait, on_told, op);
}

static struct put_op *op_new(struct service *s, const struct who *who, struct tenant *tenant, const char *name,
			     template_put_fn *fn, void *arg)
{
	struct put_op *op = calloc(1, sizeof(*op));

	if (!op)
		abort();
	*op = (struct put_op){ .s = s, .tenant = tenant, .who = *who, .fn = fn, .arg = arg };
	snprintf(op->name, sizeof(op->name), "%s", name);
	return op;
}

/* --- put --- */

static unsigned count(struct service *s, const struct tenant *tenant)
{
	struct template *t;
	unsigned n = 0;
	size_t at = 0;

	while ((t = map_next(&s->templates, &at)))
		n += t->tenant == tenant;
	return n;
}

static bool same_json(const json_t *a, const json_t *b)
{
	return a == b || (a && b && json_equal(a, b));
}

/* The image of the one serves the other. */
static bool same_image(const struct template *a, const struct template *b)
{
	return same_json(a->config, b->config) && same_json(a->warm, b->warm) && a->admin == b->admin;
}

/* What sandboxes get is the same: those that are ready stay so. */
static bool same(const struct template *a, const struct template *b)
{
	return same_image(a, b) && same_json(a->start, b->start) && !strcmp(a->image, b->image);
}

static int add(struct service *s, struct template *t, struct err *e)
{
	char key[TEMPLATE_KEY];
	int r;

	if (count(s, t->tenant) >= TEMPLATES_MAX)
		return err_set(e, WHY_LIMIT, -EDQUOT, "tenant '%s' has reached its limit of %u templates",
			       t->tenant->id, TEMPLATES_MAX);
	template_key(t->tenant, t->name, key);
	if (map_put(&s->templates, key, t) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
	r = template_store(t, e);
	if (r < 0)
		map_del(&s->templates, key);
	return r;
}

static void renew_pools(struct template *t)
{
	for (struct pool *p = t->pools; p; p = p->next)
		pool_renew(p);
}

/* @from becomes what @t was, and @t what @from was, but for what makes it the same one. */
static int replace(struct template *t, struct template *from, struct err *e)
{
	bool changed = !same(t, from);
	struct template old = *t;
	int r;

	*t = *from;
	t->version = old.version + changed;
	t->created_ns = old.created_ns;
	t->pools = old.pools;
	r = template_store(t, e);
	if (r < 0) {
		*t = old;
		return r;
	}
	*from = old;
	from->pools = NULL;
	if (strcmp(old.image, t->image))
		warm_drop(t->service, old.image);
	if (changed)
		renew_pools(t);
	return 0;
}

static void commit(struct put_op *op)
{
	struct template *d = op->draft, *old = template_find(op->s, op->tenant, op->name, NULL);

	if (d->image[0])
		template_refresh(d);
	if ((old ? replace(old, d, &op->err) : add(op->s, d, &op->err)) < 0) {
		if (!old || strcmp(old->image, d->image))
			warm_drop(op->s, d->image);
		return;
	}
	op->created = !old;
	op->t = old ? old : TAKE_PTR(op->draft);
	note(op->t, &op->who, op->created ? "template.create" : "template.update");
}

/* --- warm --- */

static void on_warm(void *arg, const char *image, const struct err *e)
{
	struct put_op *op = arg;
	char key[TEMPLATE_KEY];

	template_key(op->tenant, op->name, key);
	map_del(&op->s->warming, key);
	if (image) {
		snprintf(op->draft->image, sizeof(op->draft->image), "%s", image);
		op->draft->since_ns = clock_real_ns();
		commit(op);
	} else {
		op->err = *e;
	}
	tell(op);
}

static int warm_up(struct put_op *op, const struct template *t, warm_fn *fn, struct err *e)
{
	struct sandbox_request *request = NULL;
	char key[TEMPLATE_KEY];
	int r = template_cold_request(t, &request, e);

	if (r < 0)
		return r;
	secret_uses_done(&request->secrets); /* they are each sandbox's, and never in an image */
	template_key(op->tenant, op->name, key);
	if (map_put(&op->s->warming, key, op) < 0) {
		sandbox_request_free(request);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
	}
	warm_make(op->s, op->tenant, request, t->warm, fn, op);
	return 0;
}

/* 1: an image is being made. */
static int begin(struct put_op *op, const json_t *body)
{
	struct template *d = calloc(1, sizeof(*d)), *old;
	char key[TEMPLATE_KEY];
	int r;

	if (!d)
		abort();
	*d = (struct template){ .service = op->s, .tenant = op->tenant, .version = 1 };
	op->draft = d;
	d->admin = op->who.scope == SCOPE_ADMIN;
	r = name_check(op->name, &op->err);
	if (r == 0)
		r = template_read(op->s, body, d, &op->err);
	if (r == 0)
		r = secrets_check(op->s, op->tenant, d->request, &op->err);
	if (r < 0)
		return r;
	memcpy(d->name, op->name, sizeof(d->name));
	d->created_ns = d->updated_ns = clock_real_ns();
	template_key(op->tenant, op->name, key);
	if (map_get(&op->s->warming, key)) {
		err_set(&op->err, WHY_BUSY, -EBUSY, "template '%s' is being warmed", op->name);
		err_remedy(&op->err, "wait until it is ready");
		return -EBUSY;
	}
	old = template_find(op->s, op->tenant, op->name, NULL);
	if (d->warm && old && old->image[0] && same_image(old, d)) {
		memcpy(d->image, old->image, sizeof(d->image));
		d->since_ns = old->since_ns;
	} else if (d->warm) {
		r = warm_up(op, d, on_warm, &op->err);
		return r < 0 ? r : 1;
	}
	commit(op);
	return 0;
}

void template_put(struct service *s, const struct who *who, struct tenant *tenant, const char *name, const json_t *body,
		  template_put_fn *fn, void *arg)
{
	struct put_op *op = op_new(s, who, tenant, strlen(name) > NAME_MAX_LEN ? "" : name, fn, arg);

	if (begin(op, body) <= 0)
		tell(op);
}

/* Several may wait for it. */
static void on_rewarm(void *arg, const char *image, const struct err *e)
{
	struct put_op *first = arg, *op, *next;
	struct template *t = template_find(first->s, first->tenant, first->name, NULL);
	const struct who daemon = { .tenant = first->tenant };
	char key[TEMPLATE_KEY], old[ID_SIZE];
	struct err why = { 0 };

	template_key(first->tenant, first->name, key);
	map_del(&first->s->warming, key);
	if (e)
		why = *e;
	if (t && t->version != first->version)
		t = NULL;
	if (!t && image) {
		err_set(&why, WHY_CHANGED_MEANWHILE, -EBUSY, "template '%s' was changed in the meantime", first->name);
		warm_drop(first->s, image);
	} else if (image) {
		memcpy(old, t->image, sizeof(old));
		snprintf(t->image, sizeof(t->image), "%s", image);
		t->since_ns = clock_real_ns();
		t->rewarmed_ns = clock_mono_ns();
		template_refresh(t);
		if (template_store(t, &why) < 0) /* then the next start finds it without one */
			log_warn("template %s/%s: %s", t->tenant->id, t->name, why.msg);
		warm_drop(first->s, old);
		note(t, &daemon, "template.warm");
		renew_pools(t);
	}
	for (op = first; op; op = next) {
		next = op->next;
		op->t = image ? t : NULL;
		op->err = why;
		tell(op);
	}
}

void template_rewarm(struct template *t, template_put_fn *fn, void *arg)
{
	const struct who daemon = { .tenant = t->tenant };
	struct put_op *op = op_new(t->service, &daemon, t->tenant, t->name, fn, arg), *there;
	char key[TEMPLATE_KEY];

	op->version = t->version;
	template_key(t->tenant, t->name, key);
	there = map_get(&t->service->warming, key);
	if (!there && t->rewarmed_ns && clock_mono_ns() - t->rewarmed_ns < REWARM_NS) {
		op->t = t; /* another call has done it */
		tell(op);
		return;
	}
	if (there && !there->draft) {
		op->next = there->next;
		there->next = op;
		return;
	}
	if (there)
		err_set(&op->err, WHY_BUSY, -EBUSY, "template '%s' is being changed", t->name);
	else if (warm_up(op, t, on_rewarm, &op->err) == 0)
		return;
	tell(op);
}

/* --- remove --- */

int template_remove(void *x, const struct who *who, struct err *e)
{
	struct template *t = x;
	struct service *s = t->service;
	char key[TEMPLATE_KEY];
	int r;

	if (t->pools) {
		err_set(e, WHY_IN_USE, -EBUSY, "pool '%s' keeps sandboxes of template '%s' ready", t->pools->name,
			t->name);
		err_remedy(e, "delete the pool first, or give it another template");
		return -EBUSY;
	}
	r = templates_delete(s->db, t->tenant->id, t->name, e);
	if (r < 0)
		return r;
	note(t, who, "template.delete");
	template_key(t->tenant, t->name, key);
	map_del(&s->templates, key);
	warm_drop(s, t->image);
	template_free(t);
	return 0;
}
