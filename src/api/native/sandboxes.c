#include "api/native/checkpoints.h"
#include "base/base.h"
#include "base/str.h"
#include "service/sandbox/limit.h"
#include "service/sandbox/disk.h"
#include "service/network/network.h"
#include "service/exec/exec.h"
#include "service/state/json_read.h"
#include "service/template/template.h"

#include <openssl/evp.h>

#define LIST_DEFAULT 100
#define LIST_MAX 1000

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
	char idem[129];
	uint8_t idem_body[32];
	bool again; /* its template was made warm again for it, */
	struct err first; /* because of this */
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

/* The key's earlier answer. Returns 1 when the call has been answered. */
static int replay(struct call *c, const struct creating *w)
{
	struct err e = { 0 };
	const char *id;
	struct sandbox *b;
	int r = idem_answer(c->api->s, c->who.tenant, w->idem, w->idem_body, &id, &e);

	if (r == 0)
		return 0;
	if (r > 0) {
		b = map_get(&c->api->s->sandboxes, id);
		if (b && sandbox_seen(b)) {
			http_set(c->q, "Idempotent-Replay", "true");
			call_sandbox_json(c, 201, b);
			return 1;
		}
		err_set(&e, ERR_CONFLICT, -ENOENT, "the sandbox made with this Idempotency-Key has been removed");
	}
	call_fail(c, &e);
	return 1;
}

int idem_read(struct call *c, const char *data, size_t len, char key[129], uint8_t hash[32], struct err *e)
{
	const char *given = http_header(c->q, "Idempotency-Key");
	bool ok, ascii = true;
	EVP_MD_CTX *m;

	if (!given)
		return 0;
	for (const char *p = given; *p; p++)
		ascii = ascii && *p >= ' ' && *p < 0x7f;
	if (!*given || strlen(given) > 128 || !ascii)
		return err_set(e, ERR_INVALID, -EINVAL, "Idempotency-Key must be 1 to 128 printable ASCII characters");
	m = EVP_MD_CTX_new();
	ok = m && EVP_DigestInit_ex(m, EVP_sha256(), NULL) &&
	     EVP_DigestUpdate(m, http_path(c->q), strlen(http_path(c->q)) + 1) && EVP_DigestUpdate(m, data, len) &&
	     EVP_DigestFinal_ex(m, hash, NULL);
	EVP_MD_CTX_free(m);
	if (!ok)
		return err_set(e, ERR_INTERNAL, -EIO, "hash the request");
	memcpy(key, given, strlen(given) + 1);
	return 1;
}

static void create_body(struct call *c, const char *data, size_t len)
{
	struct creating *x = calloc(1, sizeof(*x));
	struct err e = { 0 };
	int r;

	if (!x)
		abort();
	c->data = x;
	r = json_read_begin(data, len, &x->body, &e);
	if (r == 0)
		r = idem_read(c, data, len, x->idem, x->idem_body, &e);
	if (r > 0) {
		if (replay(c, x)) {
			json_decref(x->body);
			free(x);
			return;
		}
		r = idem_hold(c, x->idem, &e);
	}
	if (r < 0) {
		creating_done(c);
		call_fail(c, &e);
		return;
	}
	create(c);
}

void post_sandboxes(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), create_body);
}

/* --- look --- */

struct filter {
	const char *state, *name, *cursor;
	const struct tenant *tenant; /* NULL = all */
	size_t limit;
	struct {
		const char *key, *value;
	} meta[8];
	unsigned nmeta;
};

static bool has_meta(const struct sandbox *b, const char *key, const char *value)
{
	size_t n = strlen(key);

	for (uint32_t i = 0; i < b->request->metadata.n; i++) {
		const char *item = b->request->metadata.item[i];

		if (!strncmp(item, key, n) && item[n] == '=' && !strcmp(item + n + 1, value))
			return true;
	}
	return false;
}

static bool fits(const struct filter *f, const struct sandbox *b)
{
	if (!sandbox_seen(b) || (f->tenant && b->tenant != f->tenant))
		return false;
	if ((f->state && strcmp(f->state, sandbox_state_name(b->state))) ||
	    (f->name && strcmp(f->name, b->request->name)))
		return false;
	for (unsigned i = 0; i < f->nmeta; i++)
		if (!has_meta(b, f->meta[i].key, f->meta[i].value))
			return false;
	return true;
}

static bool is_state(const char *text)
{
	static const enum sandbox_state seen[] = { SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_HIBERNATED, SANDBOX_STOPPED,
						   SANDBOX_LOST };

	for (size_t i = 0; i < ARRAY_LEN(seen); i++)
		if (!strcmp(text, sandbox_state_name(seen[i])))
			return true;
	return false;
}

static int read_filter(struct call *c, struct filter *f, struct err *e)
{
	const char *tenant = http_query(c->q, "tenant"), *limit = http_query(c->q, "limit");
	uint64_t n = LIST_DEFAULT;

	*f = (struct filter){ .state = http_query(c->q, "state"),
			      .name = http_query(c->q, "name"),
			      .cursor = http_query(c->q, "cursor") };
	if (f->state && !is_state(f->state))
		return err_set(e, ERR_INVALID, -EINVAL,
			       "state must be running, paused, hibernated, stopped or lost (got '%.40s')", f->state);
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
	f->tenant = api_tenant(c->api, c->q, &c->who, e);
	return f->tenant ? 0 : -ENOENT;
}

/* Newest first; the id settles what is of the same moment. */
static int newer(const void *a, const void *b)
{
	const struct sandbox *const *x = a, *const *y = b;

	if ((*x)->created_ns != (*y)->created_ns)
		return (*x)->created_ns < (*y)->created_ns ? 1 : -1;
	return -strcmp((*x)->id, (*y)->id);
}

static bool before_cursor(const struct sandbox *b, uint64_t created, const char *id)
{
	return b->created_ns < created || (b->created_ns == created && strcmp(b->id, id) < 0);
}

void get_sandboxes(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct service *s = c->api->s;
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	AUTO_FREE struct sandbox **list = NULL;
	struct json j = JSON_INIT(&out);
	const char *after = "";
	uint64_t created = 0;
	char cursor[96];
	struct err e = { 0 };
	struct filter f;
	struct sandbox *b;
	size_t n = 0, at = 0, i;

	if (read_filter(c, &f, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	if (f.cursor && api_cursor(f.cursor, &created, &after, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	list = calloc(s->sandboxes.count + 1, sizeof(struct sandbox *));
	while (list && (b = map_next(&s->sandboxes, &at)))
		if (fits(&f, b) && (!f.cursor || before_cursor(b, created, after)))
			list[n++] = b;
	if (list)
		qsort(list, n, sizeof(struct sandbox *), newer);
	jout_object(&j, NULL);
	jout_array(&j, "sandboxes");
	for (i = 0; i < n && i < f.limit; i++)
		dto_sandbox(&j, NULL, list[i]);
	jout_end(&j);
	if (i < n)
		snprintf(cursor, sizeof(cursor), "%llu-%s", (unsigned long long)list[i - 1]->created_ns,
			 list[i - 1]->id);
	jout_str(&j, "next", i < n ? cursor : NULL);
	jout_end(&j);
	call_list(c, &j);
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
		if (c->data == NULL) { /* PATCH; `extend` has the time alone */
			limits = limits_read(&c->api->s->o, &j, c->who.scope == SCOPE_ADMIN, &l);
			has_idle = idle_read(&j, &idle);
			json_read_str(&j, "name", &name, NAME_MAX_LEN);
			m = json_read_object(&j, "metadata");
			if (limits && (timeout != UINT64_MAX || has_idle || name || m))
				json_read_bad(&j, "cpus, memory, disk, pids",
					      "must be changed in a separate call");
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
	turn_after(c->api->s->turn, &c->wait, call_answer_sandbox, c);
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
	static const struct egress_counts no_counts;
	const struct warden_stat *st = &c->sandbox->stat;

	if (r < 0) {
		call_fail(c, e);
		return;
	}
	jout_object(&j, NULL);
	jout_u64(&j, "cpu_ms", st->group.cpu_usec / 1000);
	jout_u64(&j, "memory", st->group.memory);
	jout_u64(&j, "memory_peak", st->group.memory_peak);
	jout_u64(&j, "memory_limit", c->sandbox->request->spec->limits.memory);
	jout_u64(&j, "pids", st->group.pids);
	jout_u64(&j, "pids_peak", st->group.pids_peak);
	jout_u64(&j, "oom_kills", st->group.oom_kills);
	jout_object(&j, "kernel_memory");
	for (unsigned i = 0; i < KERNEL_KINDS_COUNT; i++)
		jout_u64(&j, kernel_kind_name(i + 1), st->kernel.bytes[i]);
	jout_end(&j);
	jout_u64(&j, "disk", st->disk_used);
	jout_u64(&j, "disk_limit", st->disk_size);
	jout_u64(&j, "inodes", st->inodes_used);
	jout_u64(&j, "io_bytes", st->group.io_bytes);
	jout_u64(&j, "net_bytes", sandbox_net_bytes(c->sandbox));
	net_counts_write(c->sandbox->net ? &c->sandbox->net->counts : &no_counts, "network", &j);
	jout_u64(&j, "execs", c->sandbox->running);
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
