/* Creates sandboxes from checkpoints. */
#include "service/checkpoint/restore.h"
#include "base/base.h"
#include "base/step.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/queue.h"
#include "service/state/event.h"
#include "service/state/json_read.h"
#include "service/checkpoint/layer.h"
#include "service/link/warden_link.h"
#include "service/checkpoint/struct.h"
#include "store/note.h"
#include "tier/tiers.h"

#define SHARE_MIN (128 * MIB) /* the total of memory: less than that is copied faster than it is shared */

/* --- what it should be --- */

/* The layers fit one image and one kind of root. */
static int check_fixed(const json_t *config, const json_t *body, struct err *e)
{
	static const char *const fixed[] = { "image", "isolation", "read_only" };

	for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
		const json_t *v = json_object_get(body, fixed[i]);

		if (v && !json_is_null(v) && !json_equal(v, json_object_get(config, fixed[i])))
			return err_set(e, WHY_BAD_FIELD, -EINVAL,
				       "'%s' is part of the checkpoint and cannot be changed", fixed[i]);
	}
	return 0;
}

/*
 * A machine continues unchanged: settings that only its guest knows cannot change, but quotas would count them as
 * changed.
 */
static int check_machine(const struct sandbox_spec *was, const struct sandbox_spec *is, struct err *e)
{
	const struct {
		const char *name;
		bool same;
	} inside[] = {
		{ "disk", was->limits.disk == is->limits.disk },
		{ "inodes", was->limits.inodes == is->limits.inodes },
		{ "pids", was->limits.pids == is->limits.pids },
		{ "tmpfs", request_tmpfs_same(was, is) },
	};

	for (size_t i = 0; tier_is_machine(is->flags) && i < ARRAY_LEN(inside); i++)
		if (!inside[i].same) {
			err_set(e, ERR_INVALID, -EINVAL,
				"'%s' is part of the checkpoint: in a virtual machine it cannot be changed",
				inside[i].name);
			err_remedy(e, "leave it out, or copy what is needed into a new sandbox");
			return -EINVAL;
		}
	return 0;
}

static int merge(json_t *config, const json_t *body, struct err *e)
{
	const char *key;
	json_t *walk, *v;

	memcpy(&walk, &body, sizeof(walk)); /* the library's walk takes no const, and changes nothing */
	json_object_foreach(walk, key, v) if (!json_is_null(v) && json_object_set(config, key, v) < 0) return err_set(
		e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	return 0;
}

/* What is done to every sandbox from a checkpoint. */
static char *restored_text(const struct checkpoint *c)
{
	AUTO(buf_done) struct buf to = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&to);

	jout_object(&j, NULL);
	jout_str(&j, "checkpoint", c->listed && !checkpoint_hidden(c) ? c->id : NULL);
	jout_bool(&j, "memory", false);
	jout_array(&j, "execs");
	jout_end(&j);
	jout_array(&j, "done");
	jout_str(&j, NULL, "hostname");
	jout_str(&j, NULL, "clock");
	jout_end(&j);
	jout_array(&j, "not_done");
	if (!c->listed && c->refused) { /* a fork: only this says why no process runs in it */
		jout_object(&j, NULL);
		jout_str(&j, "what", "memory");
		jout_str(&j, "why", c->refused);
		jout_end(&j);
	}
	jout_end(&j);
	jout_end(&j);
	return jout_done(&j) < 0 ? NULL : buf_take(&to);
}

static int read_config(const struct checkpoint *c, json_t **ret, struct err *e)
{
	return json_read_begin(c->config, strlen(c->config), ret, e);
}

/* @was_config: from read_config(); not changed. */
static int request_of(struct checkpoint *c, json_t *was_config, const json_t *body, bool admin,
		      struct sandbox_request **ret, struct err *e)
{
	const bool changed = json_object_size(body);
	AUTO(json_decref) json_t *config = changed ? json_copy(was_config) : json_incref(was_config);
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL, *was = NULL;
	json_t *had = json_object_get(was_config, "secrets");
	int r = config ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");

	if (r == 0 && changed) {
		/* Only what the caller asks for is checked against its rights: what the checkpoint has was checked when it was given. */
		r = sandbox_request_parse(&c->service->o, body, admin, &w, e);
		sandbox_request_free(TAKE_PTR(w));
		if (r == 0)
			r = check_fixed(config, body, e);
		if (r == 0)
			r = sandbox_request_parse(&c->service->o, config, true, &was, e);
		if (r == 0)
			r = merge(config, body, e);
		if (r == 0 && had &&
		    json_object_set_new(config, "secrets", secret_uses_after(had, json_object_get(body, "secrets"))) <
			    0)
			r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	}
	if (r == 0)
		r = sandbox_request_parse(&c->service->o, config, true, &w, e);
	if (r == 0 && was)
		r = check_machine(was->spec, w->spec, e);
	if (r < 0)
		return r;
	w->spec->layers = c->chain->layers;
	w->image_layers = c->image_layers;
	memcpy(w->spec->layer, c->chain->layer, sizeof(w->spec->layer));
	memcpy(w->checkpoint, c->listed ? c->id : c->parent, sizeof(w->checkpoint));
	w->restored = restored_text(c);
	w->memory = c->memory;
	w->execs = c->execs ? strdup(c->execs) : NULL;
	w->names = c->names ? strdup(c->names) : NULL;
	if (!w->restored || (c->execs && !w->execs) || (c->names && !w->names))
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	*ret = TAKE_PTR(w);
	return 0;
}

int restore_request(struct checkpoint *c, const json_t *body, bool admin, struct sandbox_request **ret, struct err *e)
{
	AUTO(json_decref) json_t *config = NULL;
	int r = read_config(c, &config, e);

	return r < 0 ? r : request_of(c, config, body, admin, ret, e);
}

/* --- many at once --- */

struct batch {
	struct checkpoint *c;
	struct sandbox *of; /* a fork's, or NULL */
	struct who who;
	unsigned n, up, revived;
	struct sandbox *sandbox[RESTORE_MAX]; /* referenced */
	bool doomed, over;
	restored_fn *fn;
	void *arg;
	int r;
	struct err e;
	char idem[KEY_MAX_LEN + 1];
	uint8_t idem_body[32];
	struct turn_wait wait;
};

static void on_told(void *arg)
{
	struct batch *x = arg;

	STEP("fork.stored");
	x->fn(x->arg, x->r < 0 ? NULL : x->sandbox, x->n, x->r < 0 ? &x->e : NULL);
	for (unsigned i = 0; i < x->n; i++) {
		struct sandbox *b = x->sandbox[i];

		/* The group of its first exec, made ahead. Not earlier: the warden would delay the answers for the other copies. */
		if (x->r == 0 && b->request->memory && b->state == SANDBOX_RUNNING && b->handle && b->group < 0)
			sandbox_ask_for_group(b);
		sandbox_unref(b);
	}
	checkpoint_unref(x->c);
	if (x->of) {
		sandbox_rest(x->of);
		sandbox_unref(x->of);
	}
	free(x);
}

static void finish(struct batch *x, int r)
{
	x->over = true;
	x->r = r;
	notes_now(x->c->service->db);
	turn_dirty(x->c->service->turn);
	turn_after(x->c->service->turn, &x->wait, on_told, x);
}

static void note(struct batch *x)
{
	struct audit_rec rec = who_rec(&x->who, x->of ? "sandbox.fork" : "sandbox.restore");
	AUTO(buf_done) struct buf ids = BUF_INIT(64 * KIB);
	struct service *s = x->c->service;
	struct json *j;

	rec.tenant = x->c->tenant->id;
	rec.sandbox = x->of ? x->of->id : x->n == 1 ? x->sandbox[0]->id : NULL;
	j = audit_begin(s->audit, &rec);
	if (x->c->listed)
		jout_str(j, "checkpoint", x->c->id);
	jout_array(j, "sandboxes");
	for (unsigned i = 0; i < x->n; i++) {
		jout_str(j, NULL, x->sandbox[i]->id);
		buf_addf(&ids, "%s\"%s\"", i ? "," : "\"sandboxes\":[", x->sandbox[i]->id);
	}
	jout_end(j);
	audit_end(s->audit, NULL);
	buf_addf(&ids, "]");
	if (x->of)
		event_add(s, x->of, "sandbox.forked", buf_str(&ids));
	turn_dirty(s->turn);
}

static int note_idem(struct batch *x, struct err *e)
{
	AUTO(buf_done) struct buf ids = BUF_INIT(64 * KIB);

	for (unsigned i = 0; i < x->n; i++)
		buf_addf(&ids, "%s%s", i ? " " : "", x->sandbox[i]->id);
	return idem_note(x->c->service, x->c->tenant, x->idem, x->idem_body, buf_str(&ids), e);
}

static void on_revived(void *arg, struct sandbox *b)
{
	struct batch *x = arg;

	(void)b;
	if (++x->revived == x->n)
		finish(x, 0);
}

/* All are ready: they get their rows in one turn. The caller's request is logged once, for all. */
static void enter_all(struct batch *x)
{
	struct who quiet = x->who;
	unsigned done = 0;
	int r = 0;

	quiet.request_id[0] = '\0';
	/* their rows change when their execs are found again, and no answer is sent before */
	notes_later(x->c->service->db);
	for (; r == 0 && done < x->n; done += r == 0)
		r = sandbox_enter(x->sandbox[done], &quiet, &x->e);
	notes_usual(x->c->service->db);
	if (r == 0 && x->idem[0])
		r = note_idem(x, &x->e);
	if (r == 0) {
		note(x);
		for (unsigned i = 0; i < x->n; i++)
			event_add(x->c->service, x->sandbox[i], "sandbox.restored", "");
		for (unsigned i = 0; i < x->n; i++)
			sandbox_when_revived(x->sandbox[i], on_revived, x);
		return;
	}
	x->doomed = true;
	for (unsigned i = 0; i < x->n; i++) {
		if (i < done)
			sandboxes_delete(x->c->service->db, x->sandbox[i]->id, NULL);
		x->sandbox[i]->maker = NULL;
		sandbox_give_up(x->sandbox[i], r, &x->e);
	}
	finish(x, r);
}

static void up(void *arg, struct sandbox *b)
{
	struct batch *x = arg;

	(void)b;
	if (++x->up == x->n && !x->doomed)
		enter_all(x);
}

static void give_up_rest(struct batch *x, const struct sandbox *but, int r)
{
	for (unsigned i = 0; i < x->n; i++) {
		struct sandbox *b = x->sandbox[i];

		if (b == but || !b->maker)
			continue;
		b->maker = NULL;
		sandbox_give_up(b, r, &x->e);
	}
}

static void failed(void *arg, struct sandbox *b, int r, const struct err *e)
{
	struct batch *x = arg;

	if (x->doomed)
		return;
	x->doomed = true;
	x->e = *e;
	give_up_rest(x, b, r);
	finish(x, r);
}

static const struct sandbox_maker maker = { .up = up, .failed = failed, .group_later = true };
static const struct sandbox_maker of_one = { .up = up, .failed = failed, .group_later = true, .at_once = true };

static int begin_one(struct batch *x, json_t *config, const struct restore_plan *plan, struct err *e)
{
	struct sandbox_plan p = { .tenant = x->c->tenant,
				  .maker = plan->count == 1 ? &of_one : &maker,
				  .arg = x,
				  .tree = x->of ? x->of->tree : 0,
				  .once = x->of,
				  .many = plan->count > 1 && plan->count * x->c->memory_size >= SHARE_MIN };
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL;
	const char *name = plan->names[x->n];
	struct sandbox *b;
	int r = request_of(x->c, config, plan->body, plan->admin, &w, e);

	if (r < 0)
		return r;
	if (name) {
		r = name_check(name, e);
		if (r == 0)
			snprintf(w->name, sizeof(w->name), "%s", name);
	}
	if (r < 0)
		return r;
	p.request = w;
	r = sandbox_begin(x->c->service, &p, &b, e);
	if (r < 0)
		return r;
	(void)TAKE_PTR(w);
	sandbox_ref(b);
	x->sandbox[x->n++] = b;
	return 0;
}

static void begin_all(struct batch *x, const struct restore_plan *plan)
{
	AUTO(json_decref) json_t *config = NULL;
	int r = checkpoint_ready(x->c, &x->e);

	memcpy(x->idem, plan->idem, sizeof(x->idem));
	memcpy(x->idem_body, plan->idem_body, sizeof(x->idem_body));
	if (r == 0)
		r = read_config(x->c, &config, &x->e);
	for (unsigned i = 0; r == 0 && i < plan->count; i++)
		r = begin_one(x, config, plan, &x->e);
	if (r == 0)
		return;
	x->doomed = true;
	give_up_rest(x, NULL, r);
	finish(x, r);
}

static struct batch *batch_new(const struct who *who, restored_fn *fn, void *arg)
{
	struct batch *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	x->who = *who;
	x->fn = fn;
	x->arg = arg;
	return x;
}

void restore_new(struct checkpoint *c, const struct who *who, const struct restore_plan *plan, restored_fn *fn,
		 void *arg)
{
	struct batch *x = batch_new(who, fn, arg);

	x->c = c;
	checkpoint_ref(c);
	begin_all(x, plan);
}

/* --- in place --- */

/* The body of a create that has only @secrets; NULL if they are NULL. */
static json_t *only_secrets(const json_t *secrets)
{
	json_t *body = secrets ? json_pack("{s:O}", "secrets", secrets) : NULL;

	if (secrets && !body)
		abort();
	return body;
}

struct in_place {
	struct sandbox *b;
	struct checkpoint *c;
	struct who who;
	json_t *body;
	sandbox_done_fn *fn;
	void *arg;
};

static void on_free(void *arg, int r, const struct err *why)
{
	struct in_place *x = arg;
	struct checkpoint *c = x->c;
	struct sandbox_request *w = NULL;
	struct err e = { 0 };

	if (r < 0)
		e = *why;
	if (r == 0)
		r = checkpoint_ready(c, &e);
	if (r == 0 && (x->b->tenant != c->tenant || !c->listed))
		r = err_set(&e, WHY_CHECKPOINT_MISSING, -ENOENT, "no checkpoint '%s'", c->id);
	if (r == 0)
		r = restore_request(c, x->body, x->who.scope == SCOPE_ADMIN, &w, &e);
	if (r < 0)
		sandbox_tell(x->b->service, sandbox_op_new(x->b, &x->who, x->fn, x->arg), r, &e);
	else
		sandbox_replace(x->b, &x->who, w, x->fn, x->arg);
	checkpoint_unref(c);
	json_decref(x->body);
	free(x);
}

void restore_in_place(struct sandbox *b, struct checkpoint *c, const struct who *who, const json_t *secrets,
		      sandbox_done_fn *fn, void *arg)
{
	struct in_place *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	*x = (struct in_place){ .b = b, .c = c, .who = *who, .body = only_secrets(secrets), .fn = fn, .arg = arg };
	checkpoint_ref(c);
	sandbox_when_free(b, on_free, x);
}

/* --- fork --- */

struct fork {
	struct batch *x;
	struct restore_plan plan;
	char name[RESTORE_MAX][NAME_MAX_LEN + 1];
};

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct fork *f = arg;
	struct batch *x = f->x;

	if (c) {
		x->c = c;
		checkpoint_ref(c);
		layer_loose(c->service, c->tenant, c->size + c->memory_size);
		f->plan.body = f->plan.secrets;
		begin_all(x, &f->plan);
	} else {
		x->fn(x->arg, NULL, 0, e);
		sandbox_rest(x->of);
		sandbox_unref(x->of);
		free(x);
	}
	json_decref(f->plan.secrets);
	free(f);
}

void restore_fork(struct sandbox *b, const struct who *who, const struct restore_plan *plan, restored_fn *fn, void *arg)
{
	struct fork *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->plan = *plan;
	f->plan.body = NULL;
	f->plan.secrets = only_secrets(plan->secrets);
	f->plan.admin = who->scope == SCOPE_ADMIN;
	for (unsigned i = 0; i < plan->count; i++) {
		if (!plan->names[i])
			continue;
		snprintf(f->name[i], sizeof(f->name[i]), "%s", plan->names[i]);
		f->plan.names[i] = f->name[i];
	}
	f->x = batch_new(who, fn, arg);
	f->x->of = b;
	sandbox_ref(b);
	sandbox_use(b);
	checkpoint_make_for_fork(b, who, plan->memory, plan->network, on_sealed, f);
}
