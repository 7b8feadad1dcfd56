/* Calls on sandboxes: create, list, show, change, extend, pause, resume, start, stop, hibernate, delete, stats. */
#include "api/idem.h"
#include "api/list.h"
#include "api/native/checkpoints.h"
#include "base/base.h"
#include "service/sandbox/limit.h"
#include "service/sandbox/disk.h"
#include "service/network/network.h"
#include "service/exec/exec.h"
#include "service/state/json_read.h"
#include "service/template/template.h"

void call_sandbox_json(struct call *c, int status, const struct sandbox *b)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&out);
	struct err e = { 0 };

	dto_sandbox(&j, NULL, b);
	if (jout_done(&j) < 0) {
		err_set(&e, ERR_EXHAUSTED, -ENOMEM, "the sandbox does not fit into an answer");
		call_fail(c, &e);
		return;
	}
	call_json(c, status, &out);
}

/* --- create --- */

struct creating {
	json_t *body;
	char idem[KEY_MAX_LEN + 1];
	uint8_t idem_body[32];
	bool again; /* its template was re-warmed, and the create is retried */
	struct err first; /* the first error, which caused that */
};

static void creating_done(struct call *c)
{
	struct creating *x = c->data;

	json_decref(x->body);
	free(x);
	c->data = NULL;
}

static void create(struct call *c);

static void on_warm(void *arg, struct template *t, bool created, const struct err *e)
{
	struct call *c = arg;
	struct creating *x = c->data;
	struct err why = { 0 };

	(void)created;
	if (t) {
		create(c);
		return;
	}
	why = *e;
	err_wrap(&why, 0, "the template must be warmed again (%.90s)", x->first.msg);
	creating_done(c);
	call_fail(c, &why);
}

static void create_failed(struct call *c, const struct err *e)
{
	struct creating *x = c->data;
	const char *name = json_string_value(json_object_get(x->body, "template"));
	struct template *t = name ? template_find(c->api->s, c->who.tenant, name, NULL) : NULL;
	struct err why = *e;

	if (t && !x->again && template_stale(t, e)) {
		x->again = true;
		x->first = why;
		template_rewarm(t, on_warm, c);
		return;
	}
	creating_done(c);
	call_fail(c, &why);
}

static void on_made(void *arg, struct sandbox *b, bool found, const struct err *e)
{
	struct call *c = arg;

	if (!b) {
		create_failed(c, e);
		return;
	}
	creating_done(c);
	if (!found)
		call_audited(c);
	call_sandbox_json(c, found ? 200 : 201, b);
}

static void create(struct call *c)
{
	struct creating *x = c->data;
	struct sandbox_request *w = NULL;
	struct err e = { 0 };

	c->pending = true;
	if (request_from(c->api->s, &c->who, x->body, &w, &e) < 0) {
		create_failed(c, &e);
		return;
	}
	memcpy(w->idem, x->idem, sizeof(w->idem));
	memcpy(w->idem_body, x->idem_body, sizeof(w->idem_body));
	sandbox_create(c->api->s, &c->who, w, on_made, c);
}

static int again(struct call *c, const char *id, struct err *e)
{
	const struct sandbox *b = sandbox_by_id(c->api->s, id);

	if (!b)
		return err_set(e, WHY_MADE_WAS_REMOVED, -ENOENT,
			       "the sandbox made with this Idempotency-Key has been removed");
	call_replay(c);
	call_sandbox_json(c, 201, b);
	return 0;
}

static void create_body(struct call *c, const char *data, size_t len)
{
	struct creating *x = calloc(1, sizeof(*x));
	struct err e = { 0 };
	int r;

	if (!x)
		abort();
	r = json_read_begin(data, len, &x->body, &e);
	if (r < 0) {
		free(x);
		call_fail(c, &e);
		return;
	}
	if (idem_begin(c, c->who.tenant, data, len, x->idem, x->idem_body, again)) {
		json_decref(x->body);
		free(x);
		return;
	}
	c->data = x;
	create(c);
}

void post_sandboxes(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), create_body);
}

/* --- look --- */

static bool is_state(const char *text)
{
	static const enum sandbox_state seen[] = { SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_HIBERNATED, SANDBOX_STOPPED,
						   SANDBOX_LOST };

	for (size_t i = 0; i < ARRAY_LEN(seen); i++)
		if (!strcmp(text, sandbox_state_name(seen[i])))
			return true;
	return false;
}

static void add_if_fits(struct call *c, struct list *l, const struct sandbox *b)
{
	const char *state = http_query(c->q, "state"), *name = http_query(c->q, "name");
	const struct sandbox_view v = sandbox_view(b);

	if ((l->tenant && sandbox_tenant(b) != l->tenant) || (state && strcmp(state, sandbox_state_name(v.state))) ||
	    (name && strcmp(name, v.request->name)) || !list_meta_fits(l, &v.request->metadata))
		return;
	list_add(l, v.created_ns, v.id, b);
}

static void put_sandbox(struct json *j, const void *b)
{
	dto_sandbox(j, NULL, b);
}

void get_sandboxes(void *arg, struct http_req *q, const struct route *r)
{
	const char *state = http_query(q, "state");
	struct call *c = call_new(arg, q, r);
	AUTO(list_done) struct list l = { .filters = { "state", "name" } };
	const struct sandbox *b;
	struct err e = { 0 };
	size_t at = 0;

	if (state && !is_state(state))
		err_set(&e, ERR_INVALID, -EINVAL,
			"state must be running, paused, hibernated, stopped or lost (got '%.40s')", state);
	if (e.msg[0] || list_read(c, NULL, &l, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	while ((b = sandbox_next(c->api->s, &at)))
		add_if_fits(c, &l, b);
	list_answer(c, &l, "sandboxes", put_sandbox);
}

void get_sandbox(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_sandbox_json(c, 200, c->sandbox);
}

/* --- change --- */

static void on_done_sandbox(void *arg, int r, const struct err *e)
{
	struct call *c = arg;

	if (r < 0) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	call_sandbox_json(c, 200, c->sandbox);
}

static void on_deleted(void *arg, int r, const struct err *e)
{
	struct call *c = arg;

	if (r < 0) {
		call_fail(c, e);
		return;
	}
	call_audited(c);
	call_empty(c, 204);
}

void delete_sandbox(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	c->pending = true;
	sandbox_delete(c->sandbox, &c->who, "sandbox.delete", on_deleted, c);
}

void post_pause(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	c->pending = true;
	sandbox_pause(c->sandbox, &c->who, on_done_sandbox, c);
}

void post_resume(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	c->pending = true;
	sandbox_resume(c->sandbox, &c->who, on_done_sandbox, c);
}

void post_start(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	c->pending = true;
	sandbox_start(c->sandbox, &c->who, on_done_sandbox, c);
}

void post_stop(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	c->pending = true;
	sandbox_stop(c->sandbox, &c->who, on_done_sandbox, c);
}

static void hibernate_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	enum memory_request memory = MEMORY_YES;
	enum network_request network = NETWORK_DROP;
	struct sandbox_hibernate_opts opts;
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		if (read_memory(&j, &memory) > 0 && memory == MEMORY_NO)
			json_read_bad(&j, "memory", "must be true or \"auto\"");
		read_network(&j, &network);
		r = json_read_end(&j);
	}
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	c->pending = true;
	opts = (struct sandbox_hibernate_opts){ .may_end = memory == MEMORY_AUTO,
						.refuse_network = network == NETWORK_REFUSE };
	sandbox_hibernate(c->sandbox, &c->who, &opts, on_done_sandbox, c);
}

void post_hibernate(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, hibernate_body);
}

static void update_body(struct call *c, const char *data, size_t len)
{
	uint64_t timeout = UINT64_MAX;
	struct idle_request idle = { 0 };
	bool has_idle = false, limits = false;
	struct spec_limits l = { 0 };
	AUTO(json_decref) json_t *o = NULL;
	const char *name = NULL;
	struct kv meta = { 0 };
	struct err e = { 0 };
	const json_t *m = NULL;
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_ms(&j, "timeout", &timeout);
		if (c->data == NULL) { /* PATCH; `extend` only sets the time */
			limits = limits_read(service_opts(c->api->s), &j, c->who.scope == SCOPE_ADMIN, &l);
			has_idle = idle_read(&j, &idle);
			json_read_str(&j, "name", &name, NAME_MAX_LEN);
			m = json_read_object(&j, "metadata");
			if (limits && (timeout != UINT64_MAX || has_idle || name || m))
				json_read_bad(&j, "cpus, memory, disk, pids", "must be changed in a separate call");
		} else if (timeout == UINT64_MAX) {
			json_read_bad(&j, "timeout", "is required");
		}
		r = json_read_end(&j);
	}
	if (r == 0 && limits) {
		c->pending = true;
		sandbox_limit(c->sandbox, &c->who, &l, on_done_sandbox, c);
		return;
	}
	if (r == 0 && m)
		r = kv_parse(m, "metadata", META_MAX, false, &meta, &e);
	if (r == 0)
		r = sandbox_update(c->sandbox, &c->who, timeout, has_idle ? &idle : NULL, name, m ? &meta : NULL, &e);
	kv_done(&meta);
	if (r < 0) {
		call_fail(c, &e);
		return;
	}
	/* The change and its record are stored with this turn, before anything is sent by the callback. */
	c->pending = true;
	c->wait = (struct turn_wait){ 0 };
	turn_after(c->api->turn, &c->wait, call_answer_sandbox, c);
}

void call_answer_sandbox(void *arg)
{
	struct call *c = arg;

	call_audited(c);
	call_sandbox_json(c, 200, c->sandbox);
}

void patch_sandbox(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) == 0)
		call_body(c, update_body);
}

void post_extend(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	c->data = c;
	if (call_sandbox(c) == 0)
		call_body(c, update_body);
}

/* --- stats --- */

static void on_stat(void *arg, int r, const struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&out);
	struct call *c = arg;

	if (r < 0) {
		call_fail(c, e);
		return;
	}
	jout_object(&j, NULL);
	sandbox_write_stat(c->sandbox, &j);
	sandbox_net_write_stat(c->sandbox, &j);
	jout_u64(&j, "execs", sandbox_running_execs(c->sandbox));
	jout_end(&j);
	call_json(c, 200, &out);
}

void get_stats(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	c->pending = true;
	sandbox_stat(c->sandbox, on_stat, c);
}
