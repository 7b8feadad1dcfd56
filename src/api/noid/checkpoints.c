/* Checkpoints in Noid's words. They stay when their VM is restored in place, and when it is deleted. */
#include "api/noid/noid.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/checkpoint/restore.h"

static const char *vm_name(const struct checkpoint *cp)
{
	return cp->sandbox_name[0] ? cp->sandbox_name : cp->sandbox;
}

static void put(struct json *j, const struct checkpoint *cp)
{
	jout_object(j, NULL);
	jout_str(j, "id", cp->id);
	jout_str(j, "name", cp->name);
	jout_str(j, "vm_name", vm_name(cp));
	jout_str(j, "label", cp->label[0] ? cp->label : NULL);
	dto_time(j, "created_at", cp->created_ns);
	jout_bool(j, "memory", cp->memory);
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
	/* A snapshot of a machine has what runs in it: here, if that can be carried. */
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

/* Noid knows a VM by its name alone: those of an earlier one of that name are its, too. */
static bool is_of(const struct call *c, const struct checkpoint *cp, const char *name)
{
	const struct sandbox *b = c->sandbox;

	if (!cp->listed || cp->tenant != c->who.tenant)
		return false;
	return (b && !strcmp(cp->sandbox, b->id)) || !strcmp(vm_name(cp), name);
}

static int older(const void *a, const void *b)
{
	const struct checkpoint *const *x = a, *const *y = b;

	if ((*x)->created_ns != (*y)->created_ns)
		return (*x)->created_ns < (*y)->created_ns ? -1 : 1;
	return strcmp((*x)->id, (*y)->id);
}

/* All of a VM, the oldest first. To be freed; NULL: no memory. */
static struct checkpoint **list_of(const struct call *c, const char *name, size_t *ret_n)
{
	struct service *s = c->api->s;
	struct checkpoint **list = calloc(s->checkpoints.count + 1, sizeof(struct checkpoint *)), *cp;
	size_t n = 0, at = 0;

	while (list && (cp = map_next(&s->checkpoints, &at)))
		if (is_of(c, cp, name))
			list[n++] = cp;
	if (list)
		qsort(list, n, sizeof(struct checkpoint *), older);
	*ret_n = n;
	return list;
}

/* The VM of the path, if it is there. */
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

	err_set(&e, ERR_NOT_FOUND, -ENOENT, "VM '%.64s' not found", name);
	call_fail(c, &e);
}

void noid_get_checkpoints(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	struct call *c = call_new(arg, q, r);
	const char *name = find_vm(c);
	struct json j = JSON_INIT(&out);
	size_t n;
	AUTO_FREE struct checkpoint **list = list_of(c, name, &n);

	if (!list)
		abort();
	if (!c->sandbox && !n) {
		no_vm(c, name);
		return;
	}
	jout_array(&j, NULL);
	for (size_t i = 0; i < n; i++)
		put(&j, list[i]);
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

/* By id, or by its name among those of the VM: the newest that has it. */
static struct checkpoint *find_checkpoint(struct call *c, const char *vm, const char *text, struct err *e)
{
	struct checkpoint *cp = checkpoint_find(c->api->s, &c->who, text, c->sandbox ? c->sandbox->id : NULL, e);
	size_t n = 0;
	AUTO_FREE struct checkpoint **list = cp ? NULL : list_of(c, vm, &n);

	while (!cp && list && n--)
		if (!strcmp(list[n]->name, text))
			cp = list[n];
	if (!cp) {
		*e = (struct err){ 0 };
		err_set(e, ERR_NOT_FOUND, -ENOENT, "checkpoint '%.64s' not found", text);
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
	/* A VM that is gone comes back under its name. */
	p->count = 1;
	p->names[0] = name ? name : vm;
	restore_new(cp, &c->who, p, on_new, c);
}

static bool has_any(const struct call *c, const char *name)
{
	const struct checkpoint *cp;
	size_t at = 0;

	while ((cp = map_next(&c->api->s->checkpoints, &at)))
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
