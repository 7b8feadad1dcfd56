/* Routes requests: authenticates the caller, checks scope, quotas and disk space, and calls the handler. */
#include "api/api.h"
#include "api/native/native.h"
#include "api/noid/noid.h"
#include "api/port.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"

#define ROUTES_MAX 160
#define LOOK_MS 1000

/* State of a request once its caller is known. */
struct caller {
	struct tenant *tenant;
	enum scope scope;
	char token[ID_SIZE];
	struct token_mark mark;
};
static_assert(sizeof(struct caller) <= 64, "http_note has so much room");

static const struct {
	const struct route *(*list)(size_t *n);
	/* sets the headers of answers and the format of errors; NULL: the native ones */
	void (*dress)(struct http_req *q);
} dialects[] = { { native_routes, NULL }, { noid_routes, noid_dress } };

static struct {
	struct route all[ROUTES_MAX];
	size_t n;
	bool whole;
} table;

static void add(const struct route *r, size_t n)
{
	assert(table.n + n <= ROUTES_MAX);
	memcpy(table.all + table.n, r, n * sizeof(*r));
	table.n += n;
}

const struct route *api_routes(size_t *ret_n)
{
	/* Built at the first call; constant from then on. */
	for (size_t i = 0; i < ARRAY_LEN(dialects) && !table.whole; i++) {
		size_t n;
		const struct route *r = dialects[i].list(&n);

		add(r, n);
	}
	table.whole = true;
	*ret_n = table.n;
	return table.all;
}

int api_new(struct service *s, const struct api_opts *o, struct api **ret, struct err *e)
{
	struct api *a = calloc(1, sizeof(*a));
	const struct route *r;
	size_t n;

	if (!a)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the API");
	*a = (struct api){ .s = s,
			   .loop = o->loop,
			   .access = o->access,
			   .audit = o->audit,
			   .turn = o->turn,
			   .owner = o->owner,
			   .noid_isolation = o->noid_isolation,
			   .ports_domain = o->ports_domain,
			   .started_ns = clock_real_ns() };
	r = api_routes(&n);
	a->router = router_new(r, n);
	if (!a->router || map_init(&a->busy) < 0) {
		router_free(a->router);
		free(a);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the routes");
	}
	*ret = a;
	return 0;
}

struct who api_who(struct http_req *q)
{
	const struct caller *c = http_note(q);
	struct who w = { .tenant = c->tenant, .scope = c->scope, .mark = c->mark };

	snprintf(w.token, sizeof(w.token), "%s", c->token);
	snprintf(w.request_id, sizeof(w.request_id), "%s", http_request_id(q));
	return w;
}

struct tenant *api_tenant(struct api *a, struct http_req *q, const struct who *who, struct err *e)
{
	const char *name = http_query(q, "tenant");
	struct tenant *t = who->tenant;

	if (name && who->scope != SCOPE_ADMIN) {
		err_set(e, WHY_ADMIN_ONLY, -EPERM, "only an admin may access other tenants");
		return NULL;
	}
	if (name)
		t = tenant_find(a->access, name);
	if (!t)
		err_set(e, WHY_TENANT_MISSING, -ENOENT, "no tenant '%.64s'", name ? name : "");
	return t;
}

const char *api_bearer(const struct http_req *q)
{
	const char *h = http_header(q, "Authorization");

	if (!h || strncasecmp(h, "Bearer ", 7))
		return NULL;
	h += 7;
	h += strspn(h, " ");
	/* Noid's clients accept only tokens with this prefix. */
	return strncmp(h, "noid_tok_cloche_", 16) ? h : h + 9;
}

/* Requests without a valid token are recorded, at most one per second, so that they cannot fill the log. */
static void note_refused(struct api *a, const struct http_req *q, const char *why)
{
	struct audit_rec rec = { .kind = "auth.fail", .request_id = http_request_id(q) };
	uint64_t now = clock_mono_ns();
	struct json *j;

	a->refused++;
	if (now - a->refused_noted_ns < 1000000000ULL)
		return;
	a->refused_noted_ns = now;
	j = audit_begin(a->audit, &rec);
	jout_str(j, "peer", http_peer(q));
	jout_str(j, "why", why);
	jout_u64(j, "count", a->refused);
	audit_end(a->audit, NULL);
	turn_dirty(a->turn);
}

int api_note(struct http_req *q, struct tenant *t, enum scope scope, const char *token, struct err *e)
{
	struct caller *c = http_note(q);

	if (tenant_gone(t))
		return err_set(e, WHY_TENANT_MISSING, -ENOENT, "the token's tenant was removed");
	*c = (struct caller){ .tenant = t, .scope = scope };
	snprintf(c->token, sizeof(c->token), "%s", token);
	return 0;
}

int api_share(struct http_req *q, struct err *e)
{
	const struct caller *c = http_note(q);
	struct tenant_calls *t = tenant_calls(c->tenant);

	if (c->scope == SCOPE_ADMIN) {
		http_give(q, NULL, NULL);
		return 0;
	}
	http_give(q, &t->conns, &t->unsent);
	if (t->conns > http_conns_max(q) / 2) {
		http_last(q);
		err_set(e, ERR_EXHAUSTED, -EAGAIN, "tenant '%s' has reached its limit of %u connections",
			tenant_id(c->tenant), t->conns - 1);
		err_remedy(e, "close some connections, or send several requests over one");
		return -EAGAIN;
	}
	if (http_method(q) == HTTP_M_GET && t->unsent > API_UNSENT_MAX)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "too many unread answers (%zu bytes are waiting to be read)",
			       t->unsent);
	return 0;
}

int api_try(struct api *a, struct http_req *q, enum scope scope, unsigned *ret_retry, struct err *e)
{
	const char *text = api_bearer(q);
	int64_t uid = http_peer_uid(q);
	struct token_view v = { 0 };
	struct token *k = NULL;
	struct token_mark mark;
	char name[ID_SIZE];
	int r;

	if (!text && uid >= 0 && (uid == 0 || uid == (int64_t)a->owner)) {
		snprintf(name, sizeof(name), "uid-%lld", (long long)uid);
		return api_note(q, tenant_find(a->access, TENANT_DEFAULT), SCOPE_ADMIN, name, e);
	}
	if (!text) {
		err_set(e, WHY_TOKEN_MISSING, -EACCES, "missing token");
		err_remedy(e,
			   "send it as `Authorization: Bearer TOKEN`; the CLI and the SDKs take it from CLOCHE_TOKEN");
		return -EACCES;
	}
	r = token_check(a->access, text, &k, &mark, ret_retry, e);
	if (k)
		v = token_view(k);
	if (r == 0 && v.scope < scope) {
		r = err_set(e, WHY_SCOPE_TOO_SMALL, -EPERM, "this token has scope '%s'; the call needs '%s'",
			    scope_name(v.scope), scope_name(scope));
		err_remedy(e, "use a token with a larger scope");
	}
	if (r == 0)
		r = api_note(q, v.tenant, v.scope, v.id, e);
	if (r == 0)
		((struct caller *)http_note(q))->mark = mark;
	return r;
}

void api_refuse(struct api *a, struct http_req *q, const struct err *e, unsigned retry)
{
	if (e->kind == ERR_UNAUTHORIZED || e->kind == ERR_DENIED)
		note_refused(a, q, e->msg);
	if (e->kind == ERR_UNAUTHORIZED)
		http_set(q, "WWW-Authenticate", "Bearer");
	http_fail_retry(q, e, retry);
}

/* Checks the token, or answers. */
static int let_in(struct api *a, struct http_req *q, const struct route *r)
{
	struct err e = { 0 };
	unsigned retry = 0;
	int rc;

	if (r->scope == SCOPE_NONE)
		return 0;
	rc = api_try(a, q, (enum scope)r->scope, &retry, &e);
	/*
	 * One tenant must leave connections and memory to the others; admins are always admitted, so that they can
	 * help.
	 */
	if (rc == 0) {
		rc = api_share(q, &e);
		retry = rc < 0;
	}
	if (rc < 0)
		api_refuse(a, q, &e, retry);
	return rc;
}

/*
 * Calls that change something are recorded, which needs disk space. When the disk is almost full, the last of it is for
 * calls that free space or end something. Calls that read, or that write to a process's stdin, are not recorded.
 */
static bool takes_room(const struct route *r)
{
	if (r->method == HTTP_M_GET || r->method == HTTP_M_HEAD || r->method == HTTP_M_DELETE)
		return false;
	return !(r->flags & ROUTE_NO_DISK);
}

/* Whether there is room for the record; otherwise the request is answered. */
static bool has_room(struct api *a, struct http_req *q, const struct route *r)
{
	struct err e = { 0 };

	if (r->method == HTTP_M_GET || r->method == HTTP_M_HEAD || (!takes_room(r) && !turn_stuck(a->turn)) ||
	    service_room(a->s, &e) == 0)
		return true;
	http_fail_retry(q, &e, 1);
	return false;
}

bool api_foreign(void *arg, const struct http_req *q)
{
	const struct api *a = arg;
	struct port_place p;

	return port_place(a->ports_domain, q, &p);
}

void api_request(void *arg, struct http_req *q)
{
	struct api *a = arg;
	const struct route *r;

	a->requests++;
	if (http_foreign(q)) {
		port_proxy(a, q);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
		if (dialects[i].dress)
			dialects[i].dress(q);
	r = router_find(a->router, q);
	if (r && let_in(a, q, r) == 0 && has_room(a, q, r) && api_awake(a, q, r))
		r->handle(a, q, r);
}

static void on_look(uv_timer_t *t)
{
	api_check_streams(t->data);
}

/* Without memory for the timer, the end of a token's validity is not noticed; a revocation is. */
static void look_from_now_on(struct api *a)
{
	if (!a->looks) {
		a->looks = calloc(1, sizeof(*a->looks));
		if (!a->looks)
			return;
		uv_timer_init(a->loop, a->looks);
		a->looks->data = a;
	}
	if (!uv_is_active((const uv_handle_t *)a->looks))
		uv_timer_start(a->looks, on_look, LOOK_MS, LOOK_MS);
}

void api_stream_add(struct api *a, struct api_stream *s, const struct who *who, stream_end_fn *end, void *arg)
{
	*s = (struct api_stream){ .next = a->streams, .prev = &a->streams, .mark = who->mark, .end = end, .arg = arg };
	if (s->next)
		s->next->prev = &s->next;
	a->streams = s;
	look_from_now_on(a);
}

void api_stream_remove(struct api_stream *s)
{
	if (!s->prev)
		return;
	*s->prev = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->prev = NULL;
}

void api_check_streams(struct api *a)
{
	struct api_stream *s = a->streams;

	if (!s && a->looks)
		uv_timer_stop(a->looks);
	while (s) {
		if (token_still(a->access, &s->mark)) {
			s = s->next;
			continue;
		}
		api_stream_remove(s);
		s->end(s->arg, STREAM_DENIED);
		s = a->streams; /* ending it may have ended others */
	}
}

void api_end_streams(struct api *a)
{
	struct api_stream *s;

	while ((s = a->streams)) {
		api_stream_remove(s);
		s->end(s->arg, STREAM_STOP);
	}
}
