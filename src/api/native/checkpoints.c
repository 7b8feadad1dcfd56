/* Calls on checkpoints: create, list, show, change, delete. */
#include "api/idem.h"
#include "api/list.h"
#include "api/native/checkpoints.h"
#include "api/native/object.h"
#include "base/base.h"
#include "service/state/json_read.h"

void dto_checkpoint(struct json *j, const char *key, const struct checkpoint *c)
{
	AUTO(json_decref) json_t *config = NULL;
	const struct checkpoint_view v = checkpoint_view(c);
	const char *image = NULL, *tier = NULL;

	if (json_read_begin(v.config, strlen(v.config), &config, NULL) == 0) {
		image = json_string_value(json_object_get(config, "image"));
		tier = json_string_value(json_object_get(config, "isolation"));
	}
	jout_object(j, key);
	jout_str(j, "id", v.id);
	jout_str(j, "name", v.name);
	jout_str(j, "label", v.label[0] ? v.label : NULL);
	kv_write(v.metadata, "metadata", j);
	jout_str(j, "tenant", v.tenant);
	jout_str(j, "sandbox", v.sandbox);
	jout_str(j, "sandbox_name", v.sandbox_name);
	jout_str(j, "parent", v.parent[0] ? v.parent : NULL);
	jout_str(j, "image", image);
	jout_str(j, "isolation", tier ? tier : "container");
	jout_bool(j, "memory", v.memory);
	jout_str(j, "memory_refused", v.refused);
	if (v.cut)
		jout_raw(j, "cut", v.cut, strlen(v.cut));
	else
		jout_null(j, "cut");
	jout_u64(j, "size", v.size);
	jout_u64(j, "memory_size", v.memory_size);
	jout_u64(j, "files", v.files);
	jout_u64(j, "depth", v.depth);
	write_milli(j, "pause_ms", v.pause_ns / 1000);
	jout_str(j, "state", v.damaged ? "damaged" : "made");
	dto_time(j, "created_at", v.created_ns);
	jout_raw(j, "config", v.config, strlen(v.config));
	jout_end(j);
}

static void answer(struct call *c, int status, const struct checkpoint *cp)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };

	dto_checkpoint(&j, NULL, cp);
	if (jout_done(&j) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the checkpoint does not fit into an answer");
		call_fail(c, &e);
		return;
	}
	call_json(c, status, &out);
}

struct checkpoint *call_checkpoint(struct call *c)
{
	const char *text = router_param(c->route, c->q, "c");
	struct err e = { 0 };
	struct checkpoint *cp = checkpoint_find(c->api->s, &c->who, text, http_query(c->q, "sandbox"), &e);

	if (!cp)
		call_fail(c, &e);
	return cp;
}

/* --- make --- */

static void on_made(void *arg, struct checkpoint *cp, const struct err *e)
{
	struct call *c = arg;

	if (!cp) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	answer(c, 201, cp);
}

static int again(struct call *c, const char *id, struct err *e)
{
	const struct checkpoint *cp = checkpoint_by_id(c->api->s, id);

	if (!cp)
		return err_set(e, WHY_MADE_WAS_REMOVED, -ENOENT,
			       "the checkpoint made with this Idempotency-Key has been removed");
	call_replay(c);
	answer(c, 201, cp);
	return 0;
}

int read_memory(struct json_read *j, enum memory_request *ret)
{
	const json_t *v = json_read_any(j, "memory");
	const char *text = json_string_value(v);

	if (!v || json_is_null(v))
		return 0;
	if (json_is_boolean(v))
		*ret = json_is_true(v) ? MEMORY_YES : MEMORY_NO;
	else if (text && !strcmp(text, "auto"))
		*ret = MEMORY_AUTO;
	else
		return json_read_bad(j, "memory", "must be true, false or \"auto\"");
	return 1;
}

void read_network(struct json_read *j, enum network_request *ret)
{
	const char *text = NULL;

	if (!json_read_str(j, "network", &text, 16) || !text)
		return;
	if (!strcmp(text, "refuse"))
		*ret = NETWORK_REFUSE;
	else if (strcmp(text, "drop"))
		json_read_bad(j, "network", "must be \"drop\" or \"refuse\"");
}

static int read_request(struct call *c, const json_t *o, struct checkpoint_request *w, struct err *e)
{
	struct json_read j = JIN_INIT(o, e);
	const json_t *meta;

	(void)c;
	if (json_read_str(&j, "name", &w->name, NAME_MAX_LEN) && j.r == 0)
		j.r = name_check(w->name, e);
	json_read_str(&j, "label", &w->label, LABEL_MAX);
	meta = json_read_object(&j, "metadata");
	read_memory(&j, &w->memory);
	read_network(&j, &w->network);
	if (meta && j.r == 0)
		j.r = kv_parse(meta, "metadata", META_MAX, false, &w->metadata, e);
	return json_read_end(&j);
}

static void make_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct checkpoint_request w = { 0 };
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0)
		r = read_request(c, o, &w, &e);
	if (r < 0)
		call_fail(c, &e);
	if (r < 0 || idem_begin(c, sandbox_tenant(c->sandbox), data, len, w.idem, w.idem_body, again)) {
		kv_done(&w.metadata);
		return;
	}
	c->pending = true;
	checkpoint_make(c->sandbox, &c->who, &w, on_made, c);
	kv_done(&w.metadata);
}

void post_checkpoints(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, make_body);
}

/* --- look --- */

static void add_if_fits(struct call *c, struct list *l, const char *sandbox, const struct checkpoint *cp)
{
	const char *name = http_query(c->q, "name"), *label = http_query(c->q, "label");
	const struct checkpoint_view v = checkpoint_view(cp);

	if ((l->tenant && checkpoint_tenant(cp) != l->tenant) || (sandbox && strcmp(sandbox, v.sandbox)) ||
	    (name && strcmp(name, v.name)) || (label && strcmp(label, v.label)) || !list_meta_fits(l, v.metadata))
		return;
	list_add(l, v.created_ns, v.id, cp);
}

static void put_checkpoint(struct json *j, const void *cp)
{
	dto_checkpoint(j, NULL, cp);
}

/* @sandbox: id, or name of an existing one; NULL: all. */
static void list(struct call *c, const char *sandbox)
{
	const struct sandbox *b = sandbox ? sandbox_find(c->api->s, &c->who, sandbox, NULL) : NULL;
	AUTO(list_done) struct list l = { .filters = { "sandbox", "name", "label" } };
	const struct checkpoint *cp;
	struct err e = { 0 };
	size_t at = 0;

	if (list_read(c, b ? sandbox_tenant(b) : NULL, &l, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	while ((cp = checkpoint_next(c->api->s, &at)))
		add_if_fits(c, &l, b ? sandbox_id(b) : sandbox, cp);
	list_answer(c, &l, "checkpoints", put_checkpoint);
}

void get_checkpoints(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	list(c, http_query(q, "sandbox"));
}

static bool any_of(const struct call *c, const char *sandbox)
{
	const struct checkpoint *cp;
	size_t at = 0;

	while ((cp = checkpoint_next(c->api->s, &at)))
		if (!strcmp(checkpoint_view(cp).sandbox, sandbox) &&
		    (checkpoint_tenant(cp) == c->who.tenant || c->who.scope == SCOPE_ADMIN))
			return true;
	return false;
}

/* Works also when nothing else is left of the sandbox. */
void get_sandbox_checkpoints(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	const char *id = router_param(r, q, "id");
	struct err e = { 0 };

	if (!sandbox_find(c->api->s, &c->who, id, &e) && !any_of(c, id))
		call_fail(c, &e);
	else
		list(c, id);
}

static void write_checkpoint(const struct checkpoint *cp, struct json *j)
{
	dto_checkpoint(j, NULL, cp);
}

DEFINE_SHOW(get_checkpoint, struct checkpoint, call_checkpoint, write_checkpoint)

/* --- change --- */

static void update_body(struct call *c, const char *data, size_t len)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * MIB);
	AUTO(json_decref) json_t *o = NULL;
	const char *name = NULL, *label = NULL;
	struct json answer_json = JSON_INIT(&out);
	struct kv meta = { 0 };
	const json_t *m = NULL;
	struct err e = { 0 };
	struct checkpoint *cp = c->data;
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_str(&j, "name", &name, NAME_MAX_LEN);
		json_read_str(&j, "label", &label, LABEL_MAX);
		m = json_read_object(&j, "metadata");
		r = json_read_end(&j);
	}
	if (r == 0 && m)
		r = kv_parse(m, "metadata", META_MAX, false, &meta, &e);
	if (r == 0 && !checkpoint_listed(cp))
		r = err_set(&e, WHY_CHECKPOINT_MISSING, -ENOENT, "the checkpoint was deleted in the meantime");
	if (r == 0)
		r = checkpoint_update(cp, &c->who, name, label, m ? &meta : NULL, &e);
	if (r == 0)
		dto_checkpoint(&answer_json, NULL, cp);
	kv_done(&meta);
	checkpoint_unref(cp);
	if (r == 0 && jout_done(&answer_json) < 0)
		r = err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the checkpoint does not fit into an answer");
	c->gone = NULL;
	if (r < 0)
		call_fail(c, &e);
	else
		call_stored(c, 200, &out);
}

void drop_checkpoint(struct call *c)
{
	checkpoint_unref(c->data);
	c->data = NULL;
}

void patch_checkpoint(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct checkpoint *cp = call_checkpoint(c);

	if (!cp)
		return;
	checkpoint_ref(cp);
	c->data = cp;
	c->gone = drop_checkpoint; /* in case the client hangs up before the body is complete */
	call_body(c, update_body);
}

DEFINE_REMOVE(delete_checkpoint, struct checkpoint, call_checkpoint, checkpoint_remove)
