#include "service/template.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/event.h"
#include "service/exec.h"
#include "service/jin.h"
#include "service/pool.h"
#include "service/restore.h"

#define DESCRIPTION_MAX 1024

static void scoped(const struct tenant *t, const char *name, char *to, size_t size)
{
	snprintf(to, size, "%s/%s", t->id, name);
}

static void template_free(struct template *t)
{
	if (!t)
		return;
	json_decref(t->config);
	json_decref(t->start);
	box_want_free(t->want);
	free(t->description);
	free(t);
}
DEFINE_AUTO(struct template, template_free)

struct template *template_find(struct service *s, const struct tenant *tenant, const char *name, struct err *e)
{
	struct template *t;
	char key[256];

	scoped(tenant, name, key, sizeof(key));
	t = map_get(&s->templates, key);
	if (!t)
		err_set(e, ERR_NOT_FOUND, -ENOENT, "no template '%.64s'", name);
	return t;
}

/* --- reading one --- */

static int check_start(const struct service *s, const struct box_want *w, const json_t *start, struct err *e)
{
	AUTO(exec_want_free) struct exec_want *x = NULL;
	int r = exec_want_parse(&s->o, w, start, &x, e);

	return r < 0 ? err_wrap(e, r, "'start'") : 0;
}

/* What @o asks for, above the checkpoint it names, if it does. */
static int read_want(struct service *s, const struct who *who, const json_t *o, struct checkpoint **ret_from,
		     struct box_want **ret, struct err *e)
{
	const json_t *id = json_object_get(o, "checkpoint");
	bool admin = who->scope == SCOPE_ADMIN;
	AUTO(json_decref) json_t *rest = NULL;
	struct checkpoint *c;
	int r;

	*ret_from = NULL;
	if (!id)
		return box_want_parse(&s->o, o, admin, ret, e);
	rest = json_copy((json_t *)(uintptr_t)o);
	if (!rest)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	json_object_del(rest, "checkpoint");
	if (json_is_null(id))
		return box_want_parse(&s->o, rest, admin, ret, e);
	if (!json_is_string(id))
		return err_set(e, ERR_INVALID, -EINVAL, "'checkpoint': the id of one is wanted");
	c = checkpoint_find(s, who, json_string_value(id), NULL, e);
	if (!c)
		return -ENOENT;
	r = checkpoint_ready(c, e);
	if (r == 0)
		r = restore_want(c, rest, admin, ret, e);
	*ret_from = c;
	return r;
}

/* As the template's tenant, and nobody else's. */
static int read_own(const struct template *t, const json_t *o, bool admin, struct box_want **ret, char id[ID_SIZE],
		    struct err *e)
{
	const struct who own = { .tenant = t->tenant, .scope = admin ? SCOPE_ADMIN : SCOPE_SANDBOX };
	struct checkpoint *c = NULL;
	int r = read_want(t->service, &own, o, &c, ret, e);

	if (r == 0 && c && c->tenant != t->tenant) {
		box_want_free(*ret);
		*ret = NULL;
		r = err_set(e, ERR_NOT_FOUND, -ENOENT, "no checkpoint '%s' of tenant '%s'", c->id, t->tenant->id);
	}
	if (r == 0 && id)
		snprintf(id, ID_SIZE, "%s", c ? c->id : "");
	return r;
}

/* @t->config is what is left of the body, and is checked as a create. */
static int read_rest(struct service *s, struct template *t, struct err *e)
{
	static const char *const others[] = { "name", "key", "template" };
	int r;

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		if (json_object_get(t->config, others[i]) && !json_is_null(json_object_get(t->config, others[i])))
			return err_set(e, ERR_INVALID, -EINVAL, "'%s': a template has none, each sandbox has its own",
				       others[i]);
		json_object_del(t->config, others[i]);
	}
	r = read_own(t, t->config, t->admin, &t->want, t->checkpoint, e);
	if (r == 0 && t->start)
		r = check_start(s, t->want, t->start, e);
	return r;
}

static int read_body(struct service *s, const json_t *body, struct template *t, struct err *e)
{
	struct jin j = JIN_INIT(body, e);
	const char *description = NULL;
	const json_t *start = jin_object(&j, "start");

	jin_str(&j, "description", &description, DESCRIPTION_MAX);
	if (j.r == 0 && jin_any(&j, "warm")) {
		j.r = err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "'warm' is not in this version");
		err_remedy(e, "leave it out; a `start` command runs in every new sandbox");
	}
	if (j.r < 0)
		return j.r;
	t->config = json_deep_copy(body);
	t->start = start ? json_deep_copy(start) : NULL;
	t->description = description ? strdup(description) : NULL;
	if (!t->config || (start && !t->start) || (description && !t->description))
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
	json_object_del(t->config, "start");
	json_object_del(t->config, "description");
	json_object_del(t->config, "warm");
	return read_rest(s, t, e);
}

/* --- what is stored --- */

static int spec_text(const struct template *t, char **ret, struct err *e)
{
	AUTO(json_decref) json_t *o = json_pack("{s:O, s:O?, s:s?, s:b}", "config", t->config, "start", t->start,
						"description", t->description, "admin", t->admin);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	if (!text)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
	if (strlen(text) > TEMPLATE_SIZE) {
		free(text);
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "a template has at most %u KiB", TEMPLATE_SIZE / 1024U);
	}
	*ret = text;
	return 0;
}

static int store(const struct template *t, struct err *e)
{
	struct template_row row = {
		.tenant = t->tenant->id,
		.name = t->name,
		.version = t->version,
		.created_ns = t->created_ns,
		.updated_ns = t->updated_ns,
	};
	AUTO_FREE char *spec = NULL;
	int r = spec_text(t, &spec, e);

	if (r < 0)
		return r;
	row.spec = spec;
	return templates_put(t->service->db, &row, e);
}

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
	audit_end(s->audit, NULL);
	snprintf(event, sizeof(event), "%sd", kind);
	snprintf(fields, sizeof(fields), "\"template\":\"%s\",\"version\":%llu", t->name,
		 (unsigned long long)t->version);
	event_of(s, t->tenant, "", event, fields);
	turn_dirty(s->turn);
}

/* --- put --- */

struct put_op {
	struct template *t;
	bool created;
	struct err err;
	template_put_fn *fn;
	void *arg;
	struct turn_wait wait;
};

static void on_put(void *arg)
{
	struct put_op *op = arg;

	op->fn(op->arg, op->t, op->created, op->t ? NULL : &op->err);
	free(op);
}

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

/* What sandboxes get is the same: those that are ready stay so. */
static bool same(const struct template *a, const struct template *b)
{
	return same_json(a->config, b->config) && same_json(a->start, b->start) && a->admin == b->admin;
}

static int add(struct service *s, struct template *t, struct err *e)
{
	char key[256];
	int r;

	if (count(s, t->tenant) >= TEMPLATES_MAX)
		return err_set(e, ERR_QUOTA, -EDQUOT, "tenant '%s' has %u templates, as many as it may", t->tenant->id,
			       TEMPLATES_MAX);
	scoped(t->tenant, t->name, key, sizeof(key));
	if (map_put(&s->templates, key, t) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
	r = store(t, e);
	if (r < 0)
		map_del(&s->templates, key);
	return r;
}

/* @from is what the next sandboxes get; it keeps what @t had. */
static int replace(struct template *t, struct template *from, struct err *e)
{
	bool changed = !same(t, from);
	struct template old = *t;
	int r;

	t->version += changed;
	t->updated_ns = from->updated_ns;
	t->config = from->config;
	t->start = from->start;
	t->description = from->description;
	t->admin = from->admin;
	r = store(t, e);
	if (r < 0) {
		*t = old;
		return r;
	}
	t->want = from->want;
	memcpy(t->checkpoint, from->checkpoint, sizeof(t->checkpoint));
	t->bad = (struct err){ 0 };
	from->config = old.config;
	from->start = old.start;
	from->description = old.description;
	from->want = old.want;
	for (struct pool *p = t->pools; changed && p; p = p->next)
		pool_renew(p);
	return 0;
}

static struct template *put(struct service *s, const struct who *who, struct tenant *tenant, const char *name,
			    const json_t *body, bool *ret_created, struct err *e)
{
	AUTO(template_free) struct template *t = calloc(1, sizeof(*t));
	struct template *old;

	if (!t) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
		return NULL;
	}
	*t = (struct template){ .service = s, .tenant = tenant, .version = 1, .admin = who->scope == SCOPE_ADMIN };
	if (name_check(name, e) < 0 || read_body(s, body, t, e) < 0)
		return NULL;
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->created_ns = t->updated_ns = clock_real_ns();
	old = template_find(s, tenant, name, NULL);
	*ret_created = !old;
	if ((old ? replace(old, t, e) : add(s, t, e)) < 0)
		return NULL;
	if (!old)
		old = TAKE_PTR(t);
	note(old, who, *ret_created ? "template.create" : "template.update");
	return old;
}

void template_put(struct service *s, const struct who *who, struct tenant *tenant, const char *name, const json_t *body,
		  template_put_fn *fn, void *arg)
{
	struct put_op *op = calloc(1, sizeof(*op));

	if (!op)
		abort();
	op->fn = fn;
	op->arg = arg;
	op->t = put(s, who, tenant, name, body, &op->created, &op->err);
	turn_after(s->turn, &op->wait, on_put, op);
}

int template_remove(struct template *t, const struct who *who, struct err *e)
{
	char key[256];
	int r;

	if (t->pools) {
		err_set(e, ERR_CONFLICT, -EBUSY, "pool '%s' keeps sandboxes of template '%s' ready", t->pools->name,
			t->name);
		err_remedy(e, "delete the pool first, or give it another template");
		return -EBUSY;
	}
	r = templates_delete(t->service->db, t->tenant->id, t->name, e);
	if (r < 0)
		return r;
	note(t, who, "template.delete");
	scoped(t->tenant, t->name, key, sizeof(key));
	map_del(&t->service->templates, key);
	template_free(t);
	return 0;
}

/* --- shown --- */

static void write_json(const json_t *v, const char *key, struct json *j)
{
	AUTO_FREE char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;

	if (text)
		jout_raw(j, key, text, strlen(text));
	else
		jout_null(j, key);
}

static void write_time(struct json *j, const char *key, uint64_t ns)
{
	char when[32];

	clock_iso(ns, when);
	jout_str(j, key, when);
}

void template_write(const struct template *t, struct json *j)
{
	jout_object(j, NULL);
	jout_str(j, "name", t->name);
	jout_str(j, "tenant", t->tenant->id);
	jout_u64(j, "version", t->version);
	jout_str(j, "checkpoint", t->checkpoint[0] ? t->checkpoint : NULL);
	jout_null(j, "warm");
	write_json(t->start, "start", j);
	if (t->want) {
		jout_object(j, "config");
		box_want_write_config(t->want, j);
		jout_end(j);
	} else {
		write_json(t->config, "config", j);
	}
	jout_str(j, "description", t->description);
	write_time(j, "created_at", t->created_ns);
	write_time(j, "updated_at", t->updated_ns);
	jout_end(j);
}

static int by_name(const void *a, const void *b)
{
	const struct template *const *x = a, *const *y = b;
	int r = strcmp((*x)->tenant->id, (*y)->tenant->id);

	return r ? r : strcmp((*x)->name, (*y)->name);
}

int templates_list(struct service *s, const struct tenant *tenant, struct template ***ret, size_t *ret_n)
{
	struct template **list = calloc(s->templates.count + 1, sizeof(*list)), *t;
	size_t at = 0, n = 0;

	if (!list)
		return -ENOMEM;
	while ((t = map_next(&s->templates, &at)))
		if (!tenant || t->tenant == tenant)
			list[n++] = t;
	qsort(list, n, sizeof(*list), by_name);
	*ret = list;
	*ret_n = n;
	return 0;
}

/* --- for sandboxes --- */

/* Names of both, the caller's counting where both have one. */
static json_t *join(const json_t *below, json_t *above)
{
	json_t *both;

	if (!json_is_object(below) || !json_is_object(above))
		return json_incref(above);
	both = json_object();
	if (both && (json_object_update(both, (json_t *)(uintptr_t)below) < 0 || json_object_update(both, above) < 0)) {
		json_decref(both);
		both = NULL;
	}
	return both;
}

static int lay_over(const struct template *t, const json_t *from, json_t **ret, struct err *e)
{
	AUTO(json_decref) json_t *o = json_object();
	const char *key;
	json_t *walk, *v;
	int r = o ? json_object_update(o, t->config) : -1;

	memcpy(&walk, &from, sizeof(walk)); /* the library's walk takes no const, and changes nothing */
	json_object_foreach(walk, key, v) {
		if (r < 0)
			break;
		if (!strcmp(key, "template"))
			continue;
		if (!strcmp(key, "env") || !strcmp(key, "metadata"))
			r = json_object_set_new(o, key, join(json_object_get(t->config, key), v));
		else
			r = json_object_set(o, key, v);
	}
	if (r < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	*ret = TAKE_PTR(o);
	return 0;
}

static void set_origin(const struct template *t, struct box_want *w)
{
	memcpy(w->origin.template, t->name, sizeof(w->origin.template));
	w->origin.version = t->version;
	w->start = json_incref(t->start);
}

static int want_plain(struct service *s, struct who *who, const json_t *from, struct box_want **ret, struct err *e)
{
	AUTO(json_decref) json_t *plain = json_object_get(from, "template") ? json_copy((json_t *)(uintptr_t)from) : NULL;
	struct checkpoint *c;
	int r;

	if (plain)
		json_object_del(plain, "template");
	r = read_want(s, who, plain ? plain : from, &c, ret, e);
	if (r == 0 && c)
		who->tenant = c->tenant;
	return r;
}

int want_from(struct service *s, struct who *who, const json_t *from, struct box_want **ret, struct err *e)
{
	const json_t *name = json_object_get(from, "template");
	AUTO(json_decref) json_t *o = NULL;
	const struct template *t;
	int r;

	if (!name || json_is_null(name))
		return want_plain(s, who, from, ret, e);
	if (!json_is_string(name))
		return err_set(e, ERR_INVALID, -EINVAL, "'template': a name is wanted");
	t = template_find(s, who->tenant, json_string_value(name), e);
	if (!t)
		return -ENOENT;
	r = lay_over(t, from, &o, e);
	if (r == 0)
		r = read_own(t, o, who->scope == SCOPE_ADMIN, ret, NULL, e);
	if (r == 0)
		set_origin(t, *ret);
	return r;
}

int template_want(const struct template *t, struct box_want **ret, struct err *e)
{
	int r = read_own(t, t->config, t->admin, ret, NULL, e);

	if (r == 0)
		set_origin(t, *ret);
	return r;
}

int template_start(struct box *b, struct err *e)
{
	const struct who daemon = { .tenant = b->tenant };
	AUTO(exec_want_free) struct exec_want *x = NULL;
	struct box_want own;
	struct exec *run = NULL;
	int r;

	if (!b->want->start)
		return 0;
	/* A server that is to run as long as its sandbox has no time of its own, unless it names one. */
	own = *b->want;
	own.exec_timeout_ms = 0;
	r = exec_want_parse(&b->service->o, &own, b->want->start, &x, e);
	if (r == 0) {
		x->background = true;
		r = exec_new(b, &daemon, TAKE_PTR(x), NULL, &run, e);
	}
	if (r < 0)
		return err_wrap(e, r, "start");
	exec_unref(run);
	return 0;
}

const struct template *template_on(struct service *s, const char *checkpoint)
{
	const struct template *t;
	size_t at = 0;

	while ((t = map_next(&s->templates, &at)))
		if (!strcmp(t->checkpoint, checkpoint))
			return t;
	return NULL;
}

/* --- found again --- */

static int load_spec(struct template *t, const char *text, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	const char *description, *id;
	int r = jin_parse(text, strlen(text), &o, e);

	if (r < 0)
		return r;
	t->config = json_incref(json_object_get(o, "config"));
	t->start = json_is_object(json_object_get(o, "start")) ? json_incref(json_object_get(o, "start")) : NULL;
	t->admin = json_is_true(json_object_get(o, "admin"));
	id = json_string_value(json_object_get(t->config, "checkpoint"));
	snprintf(t->checkpoint, sizeof(t->checkpoint), "%s", id ? id : "");
	description = json_string_value(json_object_get(o, "description"));
	t->description = description ? strdup(description) : NULL;
	if (!json_is_object(t->config))
		return err_set(e, ERR_INTERNAL, -EBADMSG, "it has no settings");
	return 0;
}

static int on_row(void *arg, const struct template_row *row)
{
	AUTO(template_free) struct template *t = calloc(1, sizeof(*t));
	struct service *s = arg;
	struct err e = { 0 };
	char key[256];

	if (!t)
		abort();
	*t = (struct template){ .service = s, .version = row->version, .created_ns = row->created_ns };
	t->updated_ns = row->updated_ns;
	t->tenant = tenant_find(s->access, row->tenant);
	snprintf(t->name, sizeof(t->name), "%s", row->name);
	if (!t->tenant || load_spec(t, row->spec, &e) < 0) {
		log_error("template %s/%s can not be read from the store and is left alone: %s", row->tenant, row->name,
			  t->tenant ? e.msg : "its tenant is not there");
		return 0;
	}
	/* The configuration may allow less now: it stays, and each create from it says why it fails. */
	if (read_own(t, t->config, t->admin, &t->want, NULL, &t->bad) < 0)
		log_warn("template %s/%s: %s", row->tenant, row->name, t->bad.msg);
	scoped(t->tenant, t->name, key, sizeof(key));
	if (map_put(&s->templates, key, t) < 0)
		abort();
	(void)TAKE_PTR(t);
	return 0;
}

int templates_load(struct service *s, struct err *e)
{
	int r = templates_each(s->db, on_row, s, e);

	return r < 0 ? r : pools_load(s, e);
}

void templates_forget(struct service *s, const struct tenant *tenant)
{
	struct template *t;
	size_t at = 0;
	char key[256];

	pools_forget(s, tenant);
	while ((t = map_next(&s->templates, &at))) {
		if (t->tenant != tenant)
			continue;
		scoped(tenant, t->name, key, sizeof(key));
		map_del(&s->templates, key);
		template_free(t);
	}
}
