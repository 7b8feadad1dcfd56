/* Checkpoints in Noid's dialect. They stay when their VM is restored in place, and when it is deleted. */
#include "api/list.h"
#include "api/noid/noid.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/checkpoint/restore.h"

static const char *vm_name(const struct checkpoint_view *v)
{
	return v->sandbox_name[0] ? v->sandbox_name : v->sandbox;
}

static void put(struct json *j, const struct checkpoint *cp)
{
	const struct checkpoint_view v = checkpoint_view(cp);

	jout_object(j, NULL);
	jout_str(j, "id", v.id);
	jout_str(j, "name", v.name);
	jout_str(j, "vm_name", vm_name(&v));
	jout_str(j, "label", v.label[0] ? v.label : NULL);
	dto_time(j, "created_at", v.created_ns);
	jout_bool(j, "memory", v.memory);
	jout_end(j);
}

/* --- make --- */

static void on_made(void *arg, struct checkpoint *cp, const struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&out);
	struct call *c = arg;

	if (!cp) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	put(&j, cp);
	call_json(c, 201, &out);
}

static void make_body(struct call *c, const char *data, size_t len)
{
	/* Noid's snapshot of a machine includes its processes: so does this one, if they can be saved. */
	struct checkpoint_request w = { .memory = MEMORY_AUTO };
	AUTO(json_decref) json_t *o = NULL;
	struct err e = { 0 };
	int r = len ? json_read_begin(data, len, &o, &e) : 0;

	if (r == 0 && o) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_str(&j, "label", &w.label, LABEL_MAX);
		if (json_read_str(&j, "name", &w.name, NAME_MAX_LEN) && j.r == 0)
			j.r = name_check(w.name, &e);
		r = j.r;
	}
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	c->pending = true;
	checkpoint_make(c->sandbox, &c->who, &w, on_made, c);
}

void noid_post_checkpoints(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (noid_vm(c) == 0)
		call_body(c, make_body);
}

/* --- look --- */

/* Noid identifies a VM by its name alone: checkpoints of an earlier VM of that name belong to it, too. */
static bool is_of(const struct call *c, const struct checkpoint *cp, const char *name)
{
	const struct checkpoint_view v = checkpoint_view(cp);
	const struct sandbox *b = c->sandbox;

	if (checkpoint_tenant(cp) != c->who.tenant)
		return false;
	return (b && !strcmp(v.sandbox, sandbox_id(b))) || !strcmp(vm_name(&v), name);
}

/* All checkpoints of a VM, the oldest first. */
static void list_of(const struct call *c, const char *name, struct list *ret)
{
	const struct checkpoint *cp;
	size_t at = 0;

	while ((cp = checkpoint_next(c->api->s, &at)))
		if (is_of(c, cp, name))
			list_add(ret, checkpoint_view(cp).created_ns, checkpoint_view(cp).id, cp);
	list_oldest_first(ret);
}

/* The VM in the path, if it exists. */
static const char *find_vm(struct call *c)
{
	const char *name = router_param(c->route, c->q, "id");
	struct sandbox *b = sandbox_find(c->api->s, &c->who, name, NULL);

	if (b)
		call_enter_sandbox(c, b);
	return name;
}

static void no_vm(struct call *c, const char *name)
{
	struct err e = { 0 };

	err_set(&e, WHY_SANDBOX_MISSING, -ENOENT, "VM '%.64s' not found", name);
	call_fail(c, &e);
}

void noid_get_checkpoints(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	struct call *c = call_new(arg, q, r);
	const char *name = find_vm(c);
	AUTO(list_done) struct list l = { 0 };
	struct json j = JSON_INIT(&out);

	list_of(c, name, &l);
	if (l.failed)
		abort();
	if (!c->sandbox && !l.n) {
		no_vm(c, name);
		return;
	}
	jout_array(&j, NULL);
	for (size_t i = 0; i < l.n; i++)
		put(&j, l.item[i].what);
	jout_end(&j);
	call_list(c, &j);
}

/* --- restore --- */

static void on_in_place(void *arg, int r, const struct err *e)
{
	struct call *c = arg;

	if (r < 0) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	noid_answer_vm(c, 200, c->sandbox);
}

static void on_new(void *arg, struct sandbox **sandbox, unsigned n, const struct err *e)
{
	struct call *c = arg;

	(void)n;
	if (!sandbox) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	noid_answer_vm(c, 200, sandbox[0]);
}

/* By id, or by name among those of the VM: the newest with that name. */
static struct checkpoint *find_checkpoint(struct call *c, const char *vm, const char *text, struct err *e)
{
	struct checkpoint *cp =
		checkpoint_find(c->api->s, &c->who, text, c->sandbox ? sandbox_id(c->sandbox) : NULL, e);
	AUTO(list_done) struct list l = { 0 };

	if (cp)
		return cp;
	list_of(c, vm, &l);
	for (size_t i = l.n; !cp && i--;)
		if (!strcmp(checkpoint_view(l.item[i].what).name, text))
			cp = checkpoint_by_id(c->api->s, l.item[i].id);
	if (!cp) {
		*e = (struct err){ 0 };
		err_set(e, WHY_CHECKPOINT_MISSING, -ENOENT, "checkpoint '%.64s' not found", text);
	}
	return cp;
}

static int read_restore(const char *data, size_t len, json_t **ret, const char **ret_text, const char **ret_name,
			struct err *e)
{
	int r = json_read_begin(data, len, ret, e);
	struct json_read j;

	if (r < 0)
		return r;
	j = (struct json_read)JIN_INIT(*ret, e);
	if (!json_read_str(&j, "checkpoint_id", ret_text, 64))
		json_read_bad(&j, "checkpoint_id", "is required");
	if (json_read_str(&j, "new_name", ret_name, SIZE_MAX) && j.r == 0)
		j.r = name_check(*ret_name, e);
	return j.r;
}

static void restore_body(struct call *c, const char *data, size_t len)
{
	const char *text = NULL, *name = NULL, *vm = router_param(c->route, c->q, "id");
	AUTO_FREE struct restore_plan *p = calloc(1, sizeof(*p));
	AUTO(json_decref) json_t *o = NULL;
	struct checkpoint *cp = NULL;
	struct err e = { 0 };
	int r = read_restore(data, len, &o, &text, &name, &e);

	if (!p)
		abort();
	if (r == 0) {
		cp = find_checkpoint(c, vm, text, &e);
		r = cp ? 0 : -ENOENT;
	}
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	c->pending = true;
	if (c->sandbox && !name) {
		restore_in_place(c->sandbox, cp, &c->who, NULL, on_in_place, c);
		return;
	}
	/* A VM that was deleted is restored under its name. */
	p->count = 1;
	p->names[0] = name ? name : vm;
	restore_new(cp, &c->who, p, on_new, c);
}

static bool has_any(const struct call *c, const char *name)
{
	const struct checkpoint *cp;
	size_t at = 0;

	while ((cp = checkpoint_next(c->api->s, &at)))
		if (is_of(c, cp, name))
			return true;
	return false;
}

void noid_post_restore(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	const char *name = find_vm(c);

	if (!c->sandbox && !has_any(c, name))
		no_vm(c, name);
	else
		call_body(c, restore_body);
}
