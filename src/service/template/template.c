/* The list of templates. */
#include "service/template/template.h"
#include "base/base.h"
#include "service/image/image.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/exec/exec.h"
#include "service/state/json_read.h"
#include "service/template/pool.h"
#include "service/checkpoint/restore.h"
#include "service/template/internal.h"
#include "service/template/warm.h"
#include "service/sandbox/struct.h"
#include "service/checkpoint/struct.h"

#define DESCRIPTION_MAX 1024

void template_key(const struct tenant *t, const char *name, char key[TEMPLATE_KEY])
{
	snprintf(key, TEMPLATE_KEY, "%s/%s", t->id, name);
}

void template_free(struct template *t)
{
	if (!t)
		return;
	json_decref(t->config);
	json_decref(t->start);
	json_decref(t->warm);
	sandbox_request_free(t->request);
	free(t->description);
	free(t);
}

struct template *template_find(struct service *s, const struct tenant *tenant, const char *name, struct err *e)
{
	struct template *t;
	char key[TEMPLATE_KEY];

	template_key(tenant, name, key);
	t = map_get(&s->templates, key);
	if (!t) {
		err_set(e, WHY_TEMPLATE_MISSING, -ENOENT, "no template '%.64s'", name);
		err_remedy(e, "`cloche template ls` (GET /v1/templates) lists the templates");
	}
	return t;
}

/* --- reading one --- */

static int check_start(const struct service *s, const struct sandbox_request *w, const json_t *start, struct err *e)
{
	AUTO(exec_request_free) struct exec_request *x = NULL;
	int r = exec_request_parse(&s->o, w, start, &x, e);

	return r < 0 ? err_wrap(e, r, "'start'") : 0;
}

/* What @o asks for, above the checkpoint it names, if it does. */
static int read_request(struct service *s, const struct who *who, const json_t *o, struct checkpoint **ret_from,
			struct sandbox_request **ret, struct err *e)
{
	const json_t *id = json_object_get(o, "checkpoint");
	bool admin = who->scope == SCOPE_ADMIN;
	AUTO(json_decref) json_t *rest = NULL;
	struct checkpoint *c;
	int r;

	*ret_from = NULL;
	if (!id)
		return sandbox_request_parse(&s->o, o, admin, ret, e);
	rest = json_copy((json_t *)(uintptr_t)o);
	if (!rest)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	json_object_del(rest, "checkpoint");
	if (json_is_null(id))
		return sandbox_request_parse(&s->o, rest, admin, ret, e);
	if (!json_is_string(id))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'checkpoint' must be the id of a checkpoint");
	c = checkpoint_find(s, who, json_string_value(id), NULL, e);
	if (!c)
		return -ENOENT;
	r = checkpoint_ready(c, e);
	if (r == 0)
		r = restore_request(c, rest, admin, ret, e);
	*ret_from = c;
	return r;
}

static bool same_json(const json_t *a, const json_t *b)
{
	return a == b || (a && b && json_equal(a, b));
}

/* What @o asks for, above the warm image. */
static int read_warm(const struct template *t, const json_t *o, bool admin, struct sandbox_request **ret, struct err *e)
{
	AUTO(json_decref) json_t *rest = json_copy((json_t *)(uintptr_t)o);
	struct checkpoint *c = map_get(&t->service->checkpoints, t->image);
	int r;

	if (!c)
		return err_set(e, WHY_DAMAGED, -ESTALE, "template '%s' has no warm image", t->name);
	if (!rest)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	json_object_del(rest, "checkpoint");
	r = checkpoint_ready(c, e);
	if (r == 0)
		r = restore_request(c, rest, admin, ret, e);
	if (r == 0) {
		(*ret)->origin.reseeds = json_object_get(t->warm, "python") || json_object_get(t->warm, "context");
		memcpy((*ret)->checkpoint, t->checkpoint, sizeof((*ret)->checkpoint));
	}
	return r;
}

/*
 * Reads it for the template's tenant only. A request that names another checkpoint than the template gets that one,
 * cold.
 */
static int read_own(const struct template *t, const json_t *o, bool admin, struct sandbox_request **ret,
		    char id[ID_SIZE], struct err *e)
{
	const struct who own = { .tenant = t->tenant, .scope = admin ? SCOPE_ADMIN : SCOPE_SANDBOX };
	struct checkpoint *c = NULL;
	int r;

	if (t->warm && same_json(json_object_get(o, "checkpoint"), json_object_get(t->config, "checkpoint")))
		return read_warm(t, o, admin, ret, e);
	r = read_request(t->service, &own, o, &c, ret, e);
	/* As its sandboxes will be, so that those of a pool are found to be like it. */
	if (r == 0) {
		r = image_resolve(t->service, t->tenant, *ret, e);
		if (r < 0) {
			sandbox_request_free(*ret);
			*ret = NULL;
		}
	}
	if (r == 0 && c && c->tenant != t->tenant) {
		sandbox_request_free(*ret);
		*ret = NULL;
		r = err_set(e, WHY_CHECKPOINT_MISSING, -ENOENT, "no checkpoint '%s' of tenant '%s'", c->id,
			    t->tenant->id);
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
			return err_set(e, ERR_INVALID, -EINVAL,
				       "'%s': not allowed in a template, each sandbox has its own", others[i]);
		json_object_del(t->config, others[i]);
	}
	r = read_own(t, t->config, t->admin, &t->request, t->checkpoint, e);
	if (r == 0)
		r = net_request_check(s->o.net, t->request->net, e);
	if (r == 0 && t->start)
		r = check_start(s, t->request, t->start, e);
	return r;
}

int template_read(struct service *s, const json_t *body, struct template *t, struct err *e)
{
	struct json_read j = JIN_INIT(body, e);
	const char *description = NULL;
	const json_t *start = json_read_object(&j, "start"), *warm = json_read_object(&j, "warm");
	AUTO(json_decref) json_t *copy = NULL;
	int r;

	json_read_str(&j, "description", &description, DESCRIPTION_MAX);
	if (j.r == 0 && warm)
		j.r = warm_check(warm, e);
	if (j.r < 0)
		return j.r;
	t->config = json_deep_copy(body);
	t->start = start ? json_deep_copy(start) : NULL;
	copy = warm ? json_deep_copy(warm) : NULL;
	t->description = description ? strdup(description) : NULL;
	if (!t->config || (start && !t->start) || (warm && !copy) || (description && !t->description))
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
	json_object_del(t->config, "start");
	json_object_del(t->config, "description");
	json_object_del(t->config, "warm");
	r = read_rest(s, t, e);
	if (r == 0)
		t->warm = TAKE_PTR(copy); /* from now on nothing is read without the image */
	return r;
}

/* --- what is stored --- */

static int spec_text(const struct template *t, char **ret, struct err *e)
{
	AUTO(json_decref)
	json_t *o = json_pack("{s:O, s:O?, s:O?, s:s?, s:b, s:s, s:I}", "config", t->config, "start", t->start, "warm",
			      t->warm, "description", t->description, "admin", t->admin, "image", t->image, "since",
			      (json_int_t)t->since_ns);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	if (!text)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a template");
	if (strlen(text) > TEMPLATE_SIZE) {
		free(text);
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "a template must be at most %u KiB", TEMPLATE_SIZE / 1024U);
	}
	*ret = text;
	return 0;
}

int template_store(const struct template *t, struct err *e)
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

/* --- shown --- */

static void write_json(const json_t *v, const char *key, struct json *j)
{
	AUTO_FREE char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

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

static void write_warm(const struct template *t, struct json *j)
{
	const json_t *text = json_object_get(t->warm, "ready");
	const char *key;
	json_t *v;

	if (!t->warm) {
		jout_null(j, "warm");
		return;
	}
	jout_object(j, "warm");
	json_object_foreach(t->warm, key, v) if (v != text) write_json(v, key, j);
	if (text)
		jout_str(j, "says", json_string_value(text));
	jout_bool(j, "ready", t->image[0] != '\0');
	if (t->image[0])
		write_time(j, "since", t->since_ns);
	else
		jout_null(j, "since");
	jout_end(j);
}

static void write_one(const void *x, struct json *j)
{
	const struct template *t = x;

	jout_object(j, NULL);
	jout_str(j, "name", t->name);
	jout_str(j, "tenant", t->tenant->id);
	jout_u64(j, "version", t->version);
	jout_str(j, "checkpoint", t->checkpoint[0] ? t->checkpoint : NULL);
	write_warm(t, j);
	write_json(t->start, "start", j);
	if (t->request) {
		jout_object(j, "config");
		sandbox_request_write_config(t->request, j);
		jout_end(j);
	} else {
		write_json(t->config, "config", j);
	}
	jout_str(j, "description", t->description);
	write_time(j, "created_at", t->created_ns);
	write_time(j, "updated_at", t->updated_ns);
	jout_end(j);
}

static void *find(struct service *s, const struct tenant *t, const char *name, struct err *e)
{
	return template_find(s, t, name, e);
}

static struct named next(const struct service *s, size_t *at)
{
	struct template *t = map_next(&s->templates, at);

	return t ? (struct named){ t, t->tenant, t->name } : (struct named){ 0 };
}

const struct named_kind template_kind = {
	.plural = "templates",
	.find = find,
	.next = next,
	.write = write_one,
	.remove = template_remove,
};

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
	json_object_foreach(walk, key, v)
	{
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

static void set_origin(const struct template *t, struct sandbox_request *w)
{
	memcpy(w->origin.template, t->name, sizeof(w->origin.template));
	w->origin.version = t->version;
	w->start = json_incref(t->start);
}

static int request_plain(struct service *s, struct who *who, const json_t *from, struct sandbox_request **ret,
			 struct err *e)
{
	AUTO(json_decref) json_t *plain = NULL;
	struct checkpoint *c;
	int r;

	if (json_object_get(from, "template"))
		plain = json_copy((json_t *)(uintptr_t)from);
	if (plain)
		json_object_del(plain, "template");
	r = read_request(s, who, plain ? plain : from, &c, ret, e);
	if (r == 0 && c)
		who->tenant = c->tenant;
	return r;
}

int request_from(struct service *s, struct who *who, const json_t *from, struct sandbox_request **ret, struct err *e)
{
	const json_t *name = json_object_get(from, "template");
	AUTO(json_decref) json_t *o = NULL;
	const struct template *t;
	int r;

	if (!name || json_is_null(name))
		return request_plain(s, who, from, ret, e);
	if (!json_is_string(name))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'template' must be a name");
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

void template_refresh(struct template *t)
{
	sandbox_request_free(t->request);
	t->request = NULL;
	t->bad = (struct err){ 0 };
	if (read_own(t, t->config, t->admin, &t->request, NULL, &t->bad) < 0)
		log_warn("template %s/%s: %s", t->tenant->id, t->name, t->bad.msg);
}

void templates_image_changed(struct service *s)
{
	struct template *t;
	size_t at = 0;

	while ((t = map_next(&s->templates, &at)))
		if (json_object_get(t->config, "image"))
			template_refresh(t);
}

bool template_stale(const struct template *t, const struct err *e)
{
	return t->warm && e->kind == ERR_REFUSED;
}

int template_cold_request(const struct template *t, struct sandbox_request **ret, struct err *e)
{
	struct template cold = *t;

	int r;

	cold.warm = NULL;
	r = read_own(&cold, t->config, t->admin, ret, NULL, e);
	if (r == 0) { /* its image is made without a network, each sandbox from it has its own */
		net_request_free((*ret)->net);
		(*ret)->net = NULL;
	}
	return r;
}

int template_request(const struct template *t, struct sandbox_request **ret, struct err *e)
{
	int r = read_own(t, t->config, t->admin, ret, NULL, e);

	if (r == 0)
		set_origin(t, *ret);
	return r;
}

int template_start(struct sandbox *b, struct err *e)
{
	const struct who daemon = { .tenant = b->tenant };
	AUTO(exec_request_free) struct exec_request *x = NULL;
	struct sandbox_request own;
	struct exec *run = NULL;
	int r;

	if (!b->request->start)
		return 0;
	/* A server that is to run as long as its sandbox has no time of its own, unless it names one. */
	own = *b->request;
	own.exec_timeout_ms = 0;
	r = exec_request_parse(&b->service->o, &own, b->request->start, &x, e);
	if (r == 0) {
		x->background = x->resident = true;
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
		if (!strcmp(t->checkpoint, checkpoint) || !strcmp(t->image, checkpoint))
			return t;
	return NULL;
}

int template_based(struct service *s, const char *checkpoint, struct err *e)
{
	const struct template *t = template_on(s, checkpoint);
	const struct checkpoint *c = t ? map_get(&s->checkpoints, checkpoint) : NULL;

	if (!t)
		return 0;
	err_set(e, WHY_IN_USE, -EBUSY, "template '%s' is based on checkpoint '%s'", t->name, c ? c->name : checkpoint);
	err_remedy(e, "delete the template first, or give it another checkpoint");
	return -EBUSY;
}

/* --- found again --- */

static int load_spec(struct template *t, const char *text, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	const char *description, *id;
	int r = json_read_begin(text, strlen(text), &o, e);

	if (r < 0)
		return r;
	t->config = json_incref(json_object_get(o, "config"));
	t->start = json_is_object(json_object_get(o, "start")) ? json_incref(json_object_get(o, "start")) : NULL;
	t->warm = json_is_object(json_object_get(o, "warm")) ? json_incref(json_object_get(o, "warm")) : NULL;
	t->admin = json_is_true(json_object_get(o, "admin"));
	id = json_string_value(json_object_get(o, "image"));
	snprintf(t->image, sizeof(t->image), "%s", id ? id : "");
	t->since_ns = (uint64_t)json_integer_value(json_object_get(o, "since"));
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
	char key[TEMPLATE_KEY];

	if (!t)
		abort();
	*t = (struct template){ .service = s, .version = row->version, .created_ns = row->created_ns };
	t->updated_ns = row->updated_ns;
	t->tenant = tenant_find(s->access, row->tenant);
	snprintf(t->name, sizeof(t->name), "%s", row->name);
	if (!t->tenant || load_spec(t, row->spec, &e) < 0) {
		log_error("template %s/%s cannot be read from the store and is not touched: %s", row->tenant, row->name,
			  t->tenant ? e.msg : "its tenant does not exist");
		return 0;
	}
	/* The configuration may allow less now: it stays, and each create from it says why it fails. */
	template_refresh(t);
	template_key(t->tenant, t->name, key);
	if (map_put(&s->templates, key, t) < 0)
		abort();
	(void)TAKE_PTR(t);
	return 0;
}

int templates_load(struct service *s, struct err *e)
{
	int r = templates_each(s->db, on_row, s, e);

	if (r == 0)
		warm_sweep(s);
	return r < 0 ? r : pools_load(s, e);
}

void templates_forget(struct service *s, const struct tenant *tenant)
{
	struct template *t;
	size_t at = 0;
	char key[TEMPLATE_KEY];

	pools_forget(s, tenant);
	while ((t = map_next(&s->templates, &at))) {
		if (t->tenant != tenant)
			continue;
		template_key(tenant, t->name, key);
		map_del(&s->templates, key);
		template_free(t);
	}
}
