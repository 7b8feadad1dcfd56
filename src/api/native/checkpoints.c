#include "api/native/checkpoints.h"
#include "base/base.h"
#include "base/str.h"
#include "service/state/json_read.h"

#define LIST_DEFAULT 100
#define LIST_MAX 1000

void dto_checkpoint(struct json *j, const char *key, const struct checkpoint *c)
{
	AUTO(json_decref) json_t *config = NULL;
	const char *image = NULL, *tier = NULL;

	if (json_read_begin(c->config, strlen(c->config), &config, NULL) == 0) {
		image = json_string_value(json_object_get(config, "image"));
		tier = json_string_value(json_object_get(config, "isolation"));
	}
	jout_object(j, key);
	jout_str(j, "id", c->id);
	jout_str(j, "name", c->name);
	jout_str(j, "label", c->label[0] ? c->label : NULL);
	kv_write(&c->metadata, "metadata", j);
	jout_str(j, "tenant", c->tenant->id);
	jout_str(j, "sandbox", c->sandbox);
	jout_str(j, "sandbox_name", c->sandbox_name);
	jout_str(j, "parent", c->parent[0] ? c->parent : NULL);
	jout_str(j, "image", image);
	jout_str(j, "isolation", tier ? tier : "container");
	jout_bool(j, "memory", c->memory);
	jout_str(j, "memory_refused", c->refused);
	if (c->cut)
		jout_raw(j, "cut", c->cut, strlen(c->cut));
	else
		jout_null(j, "cut");
	jout_u64(j, "size", c->size);
	jout_u64(j, "memory_size", c->memory_size);
	jout_u64(j, "files", c->files);
	jout_u64(j, "depth", c->chain->layers);
	write_milli(j, "pause_ms", c->pause_ns / 1000);
	jout_str(j, "state", c->damaged ? "damaged" : "made");
	dto_time(j, "created_at", c->created_ns);
	jout_raw(j, "config", c->config, strlen(c->config));
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

/* 1 when the key's earlier answer was given. */
static int replay(struct call *c, const char *key, const uint8_t body[32])
{
	struct err e = { 0 };
	struct checkpoint *cp;
	const char *id;
	int r = idem_answer(c->api->s, c->sandbox->tenant, key, body, &id, &e);

	if (r == 0)
		return 0;
	if (r > 0) {
		cp = map_get(&c->api->s->checkpoints, id);
		if (cp) {
			http_set(c->q, "Idempotent-Replay", "true");
			answer(c, 201, cp);
			return 1;
		}
		err_set(&e, ERR_CONFLICT, -ENOENT, "the checkpoint made with this Idempotency-Key has been removed");
	}
	call_fail(c, &e);
	return 1;
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
	if (r == 0)
		r = idem_read(c, data, len, w.idem, w.idem_body, &e);
	if (r > 0 && replay(c, w.idem, w.idem_body)) {
		kv_done(&w.metadata);
		return;
	}
	if (r > 0)
		r = idem_hold(c, w.idem, &e);
	if (r < 0) {
		kv_done(&w.metadata);
		call_fail(c, &e);
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

struct filter {
	const char *sandbox, *name, *label, *cursor;
	const struct tenant *tenant; /* NULL = all */
	size_t limit;
	struct {
		const char *key, *value;
	} meta[8];
	unsigned nmeta;
};

static bool has_meta(const struct kv *k, const char *key, const char *value)
{
	size_t n = strlen(key);

	for (uint32_t i = 0; i < k->n; i++)
		if (!strncmp(k->item[i], key, n) && k->item[i][n] == '=' && !strcmp(k->item[i] + n + 1, value))
			return true;
	return false;
}

static bool fits(const struct filter *f, const struct checkpoint *cp)
{
	if (!cp->listed || checkpoint_hidden(cp) || (f->tenant && cp->tenant != f->tenant) ||
	    (f->sandbox && strcmp(f->sandbox, cp->sandbox)) || (f->name && strcmp(f->name, cp->name)) ||
	    (f->label && strcmp(f->label, cp->label)))
		return false;
	for (unsigned i = 0; i < f->nmeta; i++)
		if (!has_meta(&cp->metadata, f->meta[i].key, f->meta[i].value))
			return false;
	return true;
}

static int read_filter(struct call *c, const char *sandbox, struct filter *f, struct err *e)
{
	const char *tenant = http_query(c->q, "tenant"), *limit = http_query(c->q, "limit");
	const struct sandbox *b = sandbox ? sandbox_find(c->api->s, &c->who, sandbox, NULL) : NULL;
	uint64_t n = LIST_DEFAULT;

	*f = (struct filter){ .sandbox = b ? b->id : sandbox,
			      .name = http_query(c->q, "name"),
			      .label = http_query(c->q, "label"),
			      .cursor = http_query(c->q, "cursor") };
	if (limit && (parse_u64(limit, &n, NULL) < 0 || n < 1 || n > LIST_MAX))
		return err_set(e, ERR_INVALID, -EINVAL, "limit must be 1 to %d", LIST_MAX);
	f->limit = (size_t)n;
	for (size_t i = 0; i < http_query_count(c->q); i++) {
		const char *key, *value;

		http_query_at(c->q, i, &key, &value);
		if (strncmp(key, "metadata.", 9))
			continue;
		if (f->nmeta == ARRAY_LEN(f->meta))
			return err_set(e, ERR_INVALID, -E2BIG, "at most %zu metadata filters", ARRAY_LEN(f->meta));
		f->meta[f->nmeta].key = key + 9;
		f->meta[f->nmeta++].value = value;
	}
	if (tenant && !strcmp(tenant, "*") && c->who.scope == SCOPE_ADMIN)
		return 0;
	f->tenant = b && c->who.scope == SCOPE_ADMIN ? b->tenant : api_tenant(c->api, c->q, &c->who, e);
	return f->tenant ? 0 : -ENOENT;
}

/* Newest first; the id settles what is of the same moment. */
static int newer(const void *a, const void *b)
{
	const struct checkpoint *const *x = a, *const *y = b;

	if ((*x)->created_ns != (*y)->created_ns)
		return (*x)->created_ns < (*y)->created_ns ? 1 : -1;
	return -strcmp((*x)->id, (*y)->id);
}

static bool behind(const struct checkpoint *cp, uint64_t created, const char *id)
{
	return cp->created_ns < created || (cp->created_ns == created && strcmp(cp->id, id) < 0);
}

static void answer_page(struct call *c, const struct filter *f, uint64_t created, const char *after)
{
	struct service *s = c->api->s;
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	AUTO_FREE struct checkpoint **list = calloc(s->checkpoints.count + 1, sizeof(*list));
	struct json j = JSON_INIT(&out);
	struct checkpoint *cp;
	size_t n = 0, at = 0, i;
	char cursor[96];

	while (list && (cp = map_next(&s->checkpoints, &at)))
		if (fits(f, cp) && (!f->cursor || behind(cp, created, after)))
			list[n++] = cp;
	if (list)
		qsort(list, n, sizeof(*list), newer);
	jout_object(&j, NULL);
	jout_array(&j, "checkpoints");
	for (i = 0; i < n && i < f->limit; i++)
		dto_checkpoint(&j, NULL, list[i]);
	jout_end(&j);
	if (i < n)
		snprintf(cursor, sizeof(cursor), "%llu-%s", (unsigned long long)list[i - 1]->created_ns,
			 list[i - 1]->id);
	jout_str(&j, "next", i < n ? cursor : NULL);
	jout_end(&j);
	call_list(c, &j);
}

static void list(struct call *c, const char *sandbox)
{
	const char *after = "";
	uint64_t created = 0;
	struct err e = { 0 };
	struct filter f;
	int r = read_filter(c, sandbox, &f, &e);

	if (r == 0 && f.cursor)
		r = api_cursor(f.cursor, &created, &after, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		answer_page(c, &f, created, after);
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

	while ((cp = map_next(&c->api->s->checkpoints, &at)))
		if (!strcmp(cp->sandbox, sandbox) && (cp->tenant == c->who.tenant || c->who.scope == SCOPE_ADMIN))
			return true;
	return false;
}

/* Also of a sandbox of which nothing else is left. */
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

void get_checkpoint(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct checkpoint *cp = call_checkpoint(c);

	if (cp)
		answer(c, 200, cp);
}

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
	if (r == 0 && !cp->listed)
		r = err_set(&e, ERR_NOT_FOUND, -ENOENT, "the checkpoint was deleted in the meantime");
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
	c->gone = drop_checkpoint; /* while the body comes */
	call_body(c, update_body);
}

void delete_checkpoint(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct checkpoint *cp = call_checkpoint(c);
	struct err e = { 0 };

	if (!cp)
		return;
	if (checkpoint_remove(cp, &c->who, &e) < 0)
		call_fail(c, &e);
	else
		call_stored(c, 204, NULL);
}
