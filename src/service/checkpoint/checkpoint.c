/* The list of checkpoints: adding, changing and deleting them. */
#include "service/sandbox/part.h"
#include "service/checkpoint/struct.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/step.h"
#include "service/sandbox/internal.h"
#include "service/state/event.h"
#include "service/state/json_read.h"
#include "service/checkpoint/layer.h"
#include "service/checkpoint/seal.h"
#include "service/internal.h"

/* --- lifetime --- */

static void hold_image(struct checkpoint *c, bool in)
{
	if (c->service->image_hold)
		c->service->image_hold(c->service, c->tenant, c->chain, in ? c->image_layers : 0, &c->image_held);
}

static void count(struct checkpoint *c, bool in)
{
	struct tenant_quota one = { .checkpoints = 1, .checkpoint_bytes = c->size + c->memory_size };

	if (in == c->counted)
		return;
	c->counted = in;
	hold_image(c, in);
	if (in)
		tenant_force(c->tenant, &one);
	else
		tenant_give(c->tenant, &one);
}

void checkpoint_ref(struct checkpoint *c)
{
	c->refs++;
}

void checkpoint_unref(struct checkpoint *c)
{
	if (!c || --c->refs)
		return;
	if (c->held)
		layer_drop(c->service, c->id);
	kv_done(&c->metadata);
	free(c->chain);
	free(c->config);
	free(c->refused);
	free(c->cut);
	free(c->execs);
	free(c->names);
	free(c);
}

/* As a spec without its last, large parts. */
#define CHAIN_SIZE offsetof(struct sandbox_spec, mount)

struct checkpoint *checkpoint_alloc(struct service *s, struct tenant *t)
{
	struct checkpoint *c = calloc(1, sizeof(*c));

	if (c)
		c->chain = calloc(1, CHAIN_SIZE);
	if (!c || !c->chain)
		abort(); /* some hundred bytes */
	c->service = s;
	c->tenant = t;
	c->refs = 1;
	return c;
}

static void name_key(const struct checkpoint *c, const char *name, char key[128])
{
	snprintf(key, 128, "%s/%s", c->sandbox, name);
}

static int list(struct checkpoint *c, struct err *e)
{
	struct service *s = c->service;
	char key[128];
	int r;

	name_key(c, c->name, key);
	r = map_put(&s->checkpoints, c->id, c);
	if (r == 0) {
		r = map_put(&s->checkpoint_names, key, c);
		if (r < 0)
			map_del(&s->checkpoints, c->id);
	}
	if (r < 0)
		return err_set(e, ERR_EXHAUSTED, r, "no memory for a checkpoint");
	c->listed = true;
	c->seen = true;
	return 0;
}

static void unlist(struct checkpoint *c)
{
	char key[128];

	name_key(c, c->name, key);
	map_del(&c->service->checkpoints, c->id);
	map_del(&c->service->checkpoint_names, key);
	c->listed = false;
}

/* --- the store --- */

static int metadata_text(const struct checkpoint *c, struct buf *out, struct err *e)
{
	struct json j = JSON_INIT(out);

	kv_write(&c->metadata, NULL, &j);
	return jout_done(&j) < 0 ? err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a checkpoint") : 0;
}

static int store(struct checkpoint *c, bool fresh, struct err *e)
{
	AUTO(buf_done) struct buf meta = BUF_INIT(MIB);
	char layers[LAYERS_TEXT];
	struct checkpoint_row row = {
		.id = c->id,
		.tenant = c->tenant->id,
		.sandbox = c->sandbox,
		.sandbox_name = c->sandbox_name,
		.name = c->name,
		.label = c->label,
		.parent = c->parent,
		.layers = layers,
		.config = c->config,
		.memory = c->memory,
		.refused = c->refused ? c->refused : "",
		.execs = c->execs,
		.names = c->names,
		.cut = c->cut,
		.size = c->size,
		.memory_size = c->memory_size,
		.files = c->files,
		.pause_ns = c->pause_ns,
		.created_ns = c->created_ns,
	};
	int r = metadata_text(c, &meta, e);

	if (r < 0)
		return r;
	row.metadata = meta.data;
	memcpy(row.sum, c->sum, sizeof(row.sum));
	layers_text(c->chain, c->image_layers, layers);
	return fresh ? checkpoints_insert(c->service->db, &row, e) : checkpoints_update(c->service->db, &row, e);
}

static int load(struct service *s, const struct checkpoint_row *row, struct err *e)
{
	AUTO(json_decref) json_t *meta = NULL;
	struct tenant *t = tenant_find(s->access, row->tenant);
	struct checkpoint *c;
	int r;

	if (!t || !id_valid(row->id))
		return err_set(e, ERR_INTERNAL, -EBADMSG, "its tenant does not exist, or it has no id");
	c = checkpoint_alloc(s, t);
	snprintf(c->id, sizeof(c->id), "%s", row->id);
	snprintf(c->sandbox, sizeof(c->sandbox), "%s", row->sandbox);
	snprintf(c->sandbox_name, sizeof(c->sandbox_name), "%s", row->sandbox_name);
	snprintf(c->name, sizeof(c->name), "%s", row->name);
	snprintf(c->label, sizeof(c->label), "%s", row->label);
	snprintf(c->parent, sizeof(c->parent), "%s", row->parent);
	c->memory = row->memory;
	c->size = row->size;
	c->memory_size = row->memory_size;
	c->files = row->files;
	c->pause_ns = row->pause_ns;
	c->created_ns = row->created_ns;
	memcpy(c->sum, row->sum, sizeof(c->sum));
	c->config = strdup(row->config);
	c->refused = *row->refused ? strdup(row->refused) : NULL;
	c->execs = *row->execs ? strdup(row->execs) : NULL;
	c->names = *row->names ? strdup(row->names) : NULL;
	c->cut = *row->cut ? strdup(row->cut) : NULL;
	r = c->config ? layers_parse(row->layers, c->chain, &c->image_layers, e) : -ENOMEM;
	if (r == 0)
		r = json_read_begin(row->metadata, strlen(row->metadata), &meta, e);
	if (r == 0)
		r = kv_parse(meta, "metadata", META_MAX, false, &c->metadata, e);
	if (r == 0)
		r = list(c, e);
	if (r < 0) {
		checkpoint_unref(c);
		return r;
	}
	layer_hold(s, c->id);
	layer_must_stay(s, c->id); /* we may have died before that was noted */
	c->held = true;
	count(c, true);
	return 0;
}

static int on_row(void *arg, const struct checkpoint_row *row)
{
	struct service *s = arg;
	struct err e = { 0 };

	if (load(s, row, &e) < 0) {
		log_error("checkpoint %s cannot be read from the store and is not touched: %s", row->id, e.msg);
		layer_hold(s, row->id); /* not ours to throw away */
	}
	return 0;
}

int checkpoint_load_all(struct service *s, struct err *e)
{
	return checkpoints_each(s->db, on_row, s, e);
}

/* --- what happened --- */

static void note(struct checkpoint *c, const struct who *who, const char *kind, const char *event)
{
	struct audit_rec rec = who_rec(who, kind);
	struct service *s = c->service;
	char fields[128], sum[2 * sizeof(c->sum) + 1];
	struct json *j;

	rec.sandbox = c->sandbox;
	rec.tenant = c->tenant->id;
	j = audit_begin(s->audit, &rec);
	jout_str(j, "checkpoint", c->id);
	jout_str(j, "name", c->name);
	if (!strcmp(kind, "checkpoint.create")) {
		jout_u64(j, "size", c->size);
		jout_bool(j, "memory", c->memory);
		if (c->cut)
			jout_raw(j, "cut", c->cut, strlen(c->cut));
		for (size_t i = 0; i < sizeof(c->sum); i++)
			snprintf(sum + 2 * i, 3, "%02x", c->sum[i]);
		jout_str(j, "sum", sum);
	}
	audit_end(s->audit, NULL);
	snprintf(fields, sizeof(fields), "\"checkpoint\":\"%s\"", c->id);
	if (event && !checkpoint_hidden(c))
		event_of(s, c->tenant, c->sandbox, event, fields);
	turn_dirty(s->turn);
}

/* --- making one --- */

struct making {
	struct checkpoint *c;
	struct who who;
	bool hidden;
	char *config; /* instead of the sandbox's, or NULL */
	checkpoint_fn *fn;
	void *arg;
	int r;
	struct err e;
	char idem[KEY_MAX_LEN + 1];
	uint8_t idem_body[32];
	struct turn_wait wait;
};

static void on_told(void *arg)
{
	struct making *m = arg;

	STEP("checkpoint.stored");
	if (m->r == 0 && m->c->listed)
		layer_must_stay(m->c->service, m->c->id);
	m->fn(m->arg, m->r < 0 ? NULL : m->c, m->r < 0 ? &m->e : NULL);
	checkpoint_unref(m->c);
	free(m->config);
	free(m);
}

static void tell(struct making *m, int r)
{
	m->r = r;
	turn_after(m->c->service->turn, &m->wait, on_told, m);
}

/* Its name is taken from the beginning on, so that two do not make the same. */
static int reserve(struct checkpoint *c, struct err *e)
{
	char key[128];

	name_key(c, c->name, key);
	if (map_get(&c->service->checkpoint_names, key)) {
		err_set(e, WHY_NAME_TAKEN, -EEXIST, "sandbox '%s' already has a checkpoint '%s'", c->sandbox_name,
			c->name);
		err_remedy(e, "use another name, or delete that checkpoint first");
		return -EEXIST;
	}
	if (map_put(&c->service->checkpoint_names, key, c) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a checkpoint");
	return 0;
}

static void unreserve(struct checkpoint *c)
{
	char key[128];

	name_key(c, c->name, key);
	if (map_get(&c->service->checkpoint_names, key) == c)
		map_del(&c->service->checkpoint_names, key);
}

static int enter(struct making *m)
{
	struct tenant_quota bytes = { .checkpoint_bytes = m->c->size + m->c->memory_size };
	struct checkpoint *c = m->c;
	struct service *s = c->service;
	int r;

	/* The one is counted since it was begun. */
	r = tenant_take(c->tenant, &bytes, &m->e);
	if (r < 0)
		return r;
	c->counted = true;
	r = store(c, true, &m->e);
	if (r == 0 && m->idem[0]) {
		r = idem_note(s, c->tenant, m->idem, m->idem_body, c->id, &m->e);
		if (r < 0)
			checkpoints_delete(s->db, c->id, NULL);
	}
	if (r == 0) {
		r = list(c, &m->e);
		if (r < 0)
			checkpoints_delete(s->db, c->id, NULL);
	}
	if (r < 0) {
		tenant_give(c->tenant, &bytes);
		c->counted = false;
		return r;
	}
	hold_image(c, true);
	checkpoint_ref(c); /* the lists' */
	note(c, &m->who, "checkpoint.create", "checkpoint.created");
	return 0;
}

static int room_for(struct tenant *t, uint64_t bytes, struct err *e)
{
	struct tenant_quota q = { .checkpoint_bytes = bytes };
	int r = tenant_take(t, &q, e);

	if (r == 0)
		tenant_give(t, &q);
	return r;
}

static void on_sealed(void *arg, int r, const struct err *e)
{
	struct making *m = arg;
	struct tenant_quota one = { .checkpoints = 1 };
	struct checkpoint *c = m->c;

	STEP("checkpoint.sealed");
	if (r < 0 && e)
		m->e = *e;
	if (r == 0 && m->config) {
		free(c->config);
		c->config = TAKE_PTR(m->config);
	}
	if (r == 0)
		r = m->hidden ? room_for(c->tenant, c->size + c->memory_size, &m->e) : enter(m);
	if (r < 0 && !m->hidden) {
		unreserve(c);
		tenant_give(c->tenant, &one);
	}
	tell(m, r);
}

static struct making *begin(struct sandbox *b, const struct who *who, checkpoint_fn *fn, void *arg)
{
	struct making *m = calloc(1, sizeof(*m));
	struct checkpoint *c;

	if (!m)
		abort();
	*m = (struct making){ .who = *who, .fn = fn, .arg = arg };
	m->c = c = checkpoint_alloc(b->service, b->tenant);
	snprintf(c->sandbox, sizeof(c->sandbox), "%s", b->id);
	snprintf(c->sandbox_name, sizeof(c->sandbox_name), "%s", b->request->name);
	c->created_ns = clock_real_ns();
	return m;
}

void checkpoint_make(struct sandbox *b, const struct who *who, struct checkpoint_request *w, checkpoint_fn *fn,
		     void *arg)
{
	struct tenant_quota one = { .checkpoints = 1 };
	struct making *m = begin(b, who, fn, arg);
	struct checkpoint *c = m->c;
	int r = id_new(c->id, sizeof(c->id));

	if (r < 0)
		err_sys(&m->e, ERR_INTERNAL, r, "make an id");
	snprintf(c->name, sizeof(c->name), "%s", w->name && *w->name ? w->name : c->id);
	snprintf(c->label, sizeof(c->label), "%s", w->label ? w->label : "");
	c->network = w->network;
	c->metadata = w->metadata;
	w->metadata = (struct kv){ 0 };
	if (w->config) {
		m->config = strdup(w->config);
		if (!m->config)
			abort();
	}
	if (w->sandbox_name)
		snprintf(c->sandbox_name, sizeof(c->sandbox_name), "%s", w->sandbox_name);
	memcpy(m->idem, w->idem, sizeof(m->idem));
	memcpy(m->idem_body, w->idem_body, sizeof(m->idem_body));
	/* A full quota or disk is refused at once, before the copy. */
	if (r == 0)
		r = service_room(b->service, &m->e);
	if (r == 0)
		r = room_for(c->tenant, 1, &m->e);
	if (r == 0)
		r = tenant_take(c->tenant, &one, &m->e);
	if (r == 0) {
		r = reserve(c, &m->e);
		if (r < 0)
			tenant_give(c->tenant, &one);
	}
	if (r < 0)
		tell(m, r);
	else
		seal_sandbox(b, c, w->memory, on_sealed, m);
}

static void make_hidden(struct sandbox *b, struct making *m, enum memory_request memory, enum network_request network)
{
	int r = id_new(m->c->id, sizeof(m->c->id));

	m->hidden = true;
	m->c->network = network;
	if (r < 0)
		err_sys(&m->e, ERR_INTERNAL, r, "make an id");
	else
		r = service_room(b->service, &m->e);
	if (r == 0)
		r = room_for(b->tenant, 1, &m->e);
	if (r < 0)
		tell(m, r);
	else
		seal_sandbox(b, m->c, memory, on_sealed, m);
}

void checkpoint_make_hidden(struct sandbox *b, const struct who *who, enum memory_request memory,
			    enum network_request network, checkpoint_fn *fn, void *arg)
{
	make_hidden(b, begin(b, who, fn, arg), memory, network);
}

void checkpoint_make_for_fork(struct sandbox *b, const struct who *who, enum memory_request memory,
			      enum network_request network, checkpoint_fn *fn, void *arg)
{
	struct making *m = begin(b, who, fn, arg);

	m->c->soon = !(b->request->spec->flags & SPEC_DISK);
	make_hidden(b, m, memory, network);
}

/* --- looking, changing --- */

/* The sandbox is gone: finds the checkpoint by its sandbox's name, if only one has that name. */
static struct checkpoint *find_orphan(struct service *s, const struct who *who, const char *text, const char *sandbox)
{
	struct checkpoint *c, *found = NULL;
	size_t at = 0;

	while ((c = map_next(&s->checkpoints, &at))) {
		if (c->tenant != who->tenant || !c->listed || checkpoint_hidden(c) || strcmp(c->name, text) ||
		    strcmp(c->sandbox_name, sandbox))
			continue;
		if (found)
			return NULL;
		found = c;
	}
	return found;
}

struct checkpoint *checkpoint_find(struct service *s, const struct who *who, const char *text, const char *sandbox,
				   struct err *e)
{
	struct checkpoint *c = map_get(&s->checkpoints, text);
	struct sandbox *b;
	char key[136];

	if (!c && sandbox) {
		b = sandbox_find(s, who, sandbox, NULL);
		snprintf(key, sizeof(key), "%.64s/%.64s", b ? b->id : sandbox, text);
		c = map_get(&s->checkpoint_names, key);
		if (!c && !b)
			c = find_orphan(s, who, text, sandbox);
	}
	if (c && c->listed && !checkpoint_hidden(c) && (c->tenant == who->tenant || who->scope == SCOPE_ADMIN))
		return c;
	err_set(e, WHY_CHECKPOINT_MISSING, -ENOENT, "no checkpoint '%.64s'", text);
	if (sandbox)
		err_remedy(e, "`cloche checkpoint ls` lists ids; an imported checkpoint has only its id");
	else if (!id_valid(text))
		err_remedy(
			e,
			"use its id; names work with ?sandbox= below /v1/checkpoints, and as SANDBOX:NAME in the CLI");
	return NULL;
}

int checkpoint_update(struct checkpoint *c, const struct who *who, const char *name, const char *label,
		      struct kv *metadata, struct err *e)
{
	char old[NAME_MAX_LEN + 1], key[128];
	int r = name ? name_check(name, e) : 0;

	if (r < 0)
		return r;
	if (name && strcmp(name, c->name)) {
		memcpy(old, c->name, sizeof(old));
		snprintf(c->name, sizeof(c->name), "%s", name);
		r = reserve(c, e);
		if (r < 0) {
			memcpy(c->name, old, sizeof(old));
			return r;
		}
		name_key(c, old, key);
		map_del(&c->service->checkpoint_names, key);
	}
	if (label)
		snprintf(c->label, sizeof(c->label), "%s", label);
	if (metadata) {
		kv_done(&c->metadata);
		c->metadata = *metadata;
		*metadata = (struct kv){ 0 };
	}
	r = store(c, false, e);
	if (r == 0)
		note(c, who, "checkpoint.update", NULL);
	return r;
}

int checkpoint_remove(struct checkpoint *c, const struct who *who, struct err *e)
{
	struct service *s = c->service;
	int r = sandbox_parts_based(s, c->id, e);

	if (r < 0)
		return r;
	layer_may_go(s, c->id);
	r = checkpoints_delete(c->service->db, c->id, e);
	if (r < 0) {
		layer_must_stay(s, c->id);
		return r;
	}
	note(c, who, "checkpoint.delete", "checkpoint.deleted");
	unlist(c);
	count(c, false);
	checkpoint_unref(c);
	layer_sweep_soon(s); /* sandboxes based on it keep its bytes */
	return 0;
}

/* --- damage --- */

int checkpoint_ready(const struct checkpoint *c, struct err *e)
{
	if (!c->damaged)
		return 0;
	err_set(e, WHY_DAMAGED, -EBADMSG, "checkpoint '%s' is damaged: its files have changed since it was made",
		c->name);
	err_remedy(e, "delete it, and import a copy if there is one");
	return -EBADMSG;
}

static void damage(struct checkpoint *c)
{
	if (!c->damaged)
		log_error("checkpoint %s of tenant '%s' is damaged", c->id, c->tenant->id);
	c->damaged = true;
}

int checkpoint_blame(struct service *s, const char *layer, int r, struct err *e)
{
	struct checkpoint *c = map_get(&s->checkpoints, layer);
	bool gone = r == -ENOENT && e->kind == ERR_NOT_FOUND && !strncmp(e->msg, "no layer", 8);

	if (r != -EBADMSG && !gone)
		return r;
	layer_sweep_soon(s); /* it may be a lower layer: then other checkpoints are based on it, too */
	if (c) {
		damage(c);
		return checkpoint_ready(c, e);
	}
	err_because(e, WHY_DAMAGED);
	return r;
}

void checkpoints_look(struct service *s)
{
	struct checkpoint *c;
	size_t at = 0;

	while ((c = map_next(&s->checkpoints, &at)))
		c->seen = false;
}

void checkpoint_saw_layer(struct service *s, const char *id, bool bad)
{
	struct checkpoint *c = map_get(&s->checkpoints, id);
	size_t at = 0;

	if (c)
		c->seen = true;
	if (!bad)
		return;
	/* Checkpoints that are based on it are damaged as well. */
	while ((c = map_next(&s->checkpoints, &at)))
		for (uint32_t i = 0; i < c->chain->layers; i++)
			if (!strcmp(c->chain->layer[i], id))
				damage(c);
}

void checkpoints_looked_at(struct service *s)
{
	struct checkpoint *c;
	size_t at = 0;

	while ((c = map_next(&s->checkpoints, &at)))
		if (!c->seen)
			damage(c);
}
