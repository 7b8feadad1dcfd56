/* Sandboxes from checkpoints, and forks. */
#include "api/idem.h"
#include "api/native/checkpoints.h"
#include "base/base.h"
#include "service/state/json_read.h"
#include "service/checkpoint/restore.h"

static void answer(struct call *c, struct sandbox **sandbox, unsigned n)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };

	jout_object(&j, NULL);
	jout_array(&j, "sandboxes");
	for (unsigned i = 0; i < n; i++)
		dto_sandbox(&j, NULL, sandbox[i]);
	jout_end(&j);
	jout_null(&j, "checkpoint");
	jout_end(&j);
	if (jout_done(&j) == 0) {
		call_json(c, 201, &out);
		return;
	}
	err_set(&e, ERR_EXHAUSTED, -E2BIG, "the sandboxes were made, but the list does not fit into one answer");
	call_fail(c, &e);
}

static void on_restored(void *arg, struct sandbox **sandbox, unsigned n, const struct err *e)
{
	struct call *c = arg;

	if (!sandbox) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	answer(c, sandbox, n);
}

static void on_one(void *arg, struct sandbox **sandbox, unsigned n, const struct err *e)
{
	struct call *c = arg;

	(void)n;
	if (!sandbox) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	call_sandbox_json(c, 201, sandbox[0]);
}

/* Finds the sandboxes that an earlier request with this key has made: ids with a space between. */
static int find_again(struct call *c, const char *ids, struct sandbox *ret[RESTORE_MAX], unsigned *ret_n, struct err *e)
{
	unsigned n = 0;

	for (const char *at = ids; *at && n < RESTORE_MAX;) {
		size_t len = strcspn(at, " ");
		char id[ID_SIZE];

		snprintf(id, sizeof(id), "%.*s", (int)len, at);
		ret[n] = sandbox_by_id(c->api->s, id);
		if (!ret[n++])
			return err_set(e, WHY_MADE_WAS_REMOVED, -ENOENT,
				       "a sandbox made with this Idempotency-Key has been removed");
		at += len + (at[len] == ' ');
	}
	*ret_n = n;
	return 0;
}

static int again(struct call *c, const char *ids, struct err *e)
{
	struct sandbox *list[RESTORE_MAX];
	unsigned n;
	int r = find_again(c, ids, list, &n, e);

	if (r < 0)
		return r;
	call_replay(c);
	answer(c, list, n);
	return 0;
}

static int again_one(struct call *c, const char *ids, struct err *e)
{
	struct sandbox *list[RESTORE_MAX];
	unsigned n;
	int r = find_again(c, ids, list, &n, e);

	if (r < 0)
		return r;
	call_replay(c);
	if (n)
		call_sandbox_json(c, 201, list[0]);
	else
		answer(c, list, n);
	return 0;
}

/* Reads count and names; the rest of the body is that of a create. */
static int read_plan(struct json_read *j, struct restore_plan *p)
{
	const json_t *names = json_read_array(j, "names", RESTORE_MAX);
	uint64_t count = names && json_array_size(names) ? json_array_size(names) : 1;

	json_read_u64(j, "count", &count, 1, RESTORE_MAX);
	p->count = (unsigned)count;
	if (names && json_array_size(names) > count)
		return json_read_bad(j, "names", "has more names than there are sandboxes");
	for (size_t i = 0; names && i < json_array_size(names); i++) {
		p->names[i] = json_string_value(json_array_get(names, i));
		if (!p->names[i])
			return json_read_bad(j, "names", "must be an array of names");
	}
	return j->r;
}

static void restore_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	AUTO(json_decref) json_t *rest = NULL;
	AUTO_FREE struct restore_plan *p = calloc(1, sizeof(*p));
	struct checkpoint *cp = c->data;
	const char *as = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	c->gone = NULL;
	if (!p)
		abort();
	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		read_plan(&j, p);
		if (json_read_str(&j, "as", &as, NAME_MAX_LEN) && p->count != 1)
			json_read_bad(&j, "as", "names one sandbox only: use `names`");
		r = j.r;
	}
	if (r == 0 && as)
		p->names[0] = as;
	if (r == 0 && p->count > 1 && (json_object_get(o, "name") || json_object_get(o, "key")))
		r = err_set(&e, WHY_BAD_FIELD, -EINVAL, "'name' and 'key' name one sandbox only: use `names`");
	if (r < 0) {
		checkpoint_unref(cp);
		call_fail(c, &e);
		return;
	}
	if (idem_begin(c, checkpoint_tenant(cp), data, len, p->idem, p->idem_body, again)) {
		checkpoint_unref(cp);
		return;
	}
	/* The names are part of the body, so the rest is read from a copy. */
	p->body = rest = json_copy(o);
	if (!rest)
		abort();
	json_object_del(rest, "count");
	json_object_del(rest, "names");
	json_object_del(rest, "as");
	p->admin = c->who.scope == SCOPE_ADMIN;
	c->pending = true;
	restore_new(cp, &c->who, p, on_restored, c);
	checkpoint_unref(cp);
}

void post_checkpoint_restore(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct checkpoint *cp = call_checkpoint(c);

	if (!cp)
		return;
	checkpoint_ref(cp);
	c->data = cp;
	c->gone = drop_checkpoint;
	call_body(c, restore_body);
}

static void on_in_place(void *arg, int r, const struct err *e)
{
	struct call *c = arg;

	if (r < 0) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	call_sandbox_json(c, 200, c->sandbox);
}

static void in_place_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	AUTO(json_decref) json_t *body = NULL;
	AUTO_FREE struct restore_plan *p = calloc(1, sizeof(*p));
	const char *as = NULL, *text = NULL;
	const json_t *secrets = NULL;
	struct checkpoint *cp = NULL;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (!p)
		abort();
	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		if (!json_read_str(&j, "checkpoint", &text, 64))
			json_read_bad(&j, "checkpoint", "must be the id or name of a checkpoint");
		json_read_str(&j, "as", &as, NAME_MAX_LEN);
		secrets = json_read_any(&j, "secrets");
		r = json_read_end(&j);
	}
	if (r == 0) {
		cp = checkpoint_find(c->api->s, &c->who, text, sandbox_id(c->sandbox), &e);
		r = cp ? 0 : -ENOENT;
	}
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	if (!as) {
		/* not stored, but the key must be valid */
		if (idem_read(c, data, len, p->idem, p->idem_body, &e) < 0) {
			call_fail(c, &e);
			return;
		}
		c->pending = true;
		restore_in_place(c->sandbox, cp, &c->who, secrets, on_in_place, c);
		return;
	}
	p->count = 1;
	p->names[0] = as;
	if (idem_begin(c, checkpoint_tenant(cp), data, len, p->idem, p->idem_body, again_one))
		return;
	if (secrets)
		p->body = body = json_pack("{s:O}", "secrets", secrets);
	p->admin = c->who.scope == SCOPE_ADMIN;
	c->pending = true;
	restore_new(cp, &c->who, p, on_one, c);
}

void post_restore(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, in_place_body);
}

static void fork_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	AUTO_FREE struct restore_plan *p = calloc(1, sizeof(*p));
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (!p)
		abort();
	p->memory = MEMORY_AUTO;
	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		read_plan(&j, p);
		read_memory(&j, &p->memory);
		read_network(&j, &p->network);
		p->secrets = json_object_get(o, "secrets");
		json_read_any(&j, "secrets");
		r = json_read_end(&j);
	}
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	if (idem_begin(c, sandbox_tenant(c->sandbox), data, len, p->idem, p->idem_body, again))
		return;
	c->pending = true;
	restore_fork(c->sandbox, &c->who, p, on_restored, c);
}

void post_fork(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, fork_body);
}
