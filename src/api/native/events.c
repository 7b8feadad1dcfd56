/* Events of sandboxes as server-sent events. */
#include "api/native/native.h"
#include "base/base.h"
#include "base/str.h"
#include "service/state/event.h"

struct listener {
	struct call *c;
	struct event_listener l;
	struct api_stream registered;
	const struct tenant *tenant; /* NULL = all */
	char sandbox[ID_SIZE]; /* "" = all */
	bool replaying; /* sends stored events, which are bounded in number */
};

static void listener_end(struct call *c)
{
	struct listener *l = c->data;

	event_unlisten(&l->l);
	api_stream_remove(&l->registered);
	free(l);
	c->data = NULL;
}

static void on_event(void *arg, const struct event *ev)
{
	struct listener *l = arg;
	char id[24];

	if ((l->tenant && strcmp(tenant_id(l->tenant), ev->tenant)) ||
	    (l->sandbox[0] && strcmp(l->sandbox, ev->sandbox)))
		return;
	/* A client that does not read is disconnected: it can continue with Last-Event-ID. */
	if (!l->c->q || (!l->replaying && http_queued(l->c->q) > HTTP_HIGH)) {
		struct call *c = l->c;
		struct http_req *q = c->q;

		if (q) {
			listener_end(c);
			http_cut(q);
			c->q = NULL;
			call_free(c);
		}
		return;
	}
	snprintf(id, sizeof(id), "%llu", (unsigned long long)ev->seq);
	sse_event(l->c->q, id, ev->kind, ev->json, strlen(ev->json));
}

static void on_stop(void *arg, enum stream_end why)
{
	struct listener *l = arg;
	struct call *c = l->c;

	(void)why;
	listener_end(c);
	c->gone = NULL;
	http_end(c->q);
	c->q = NULL;
	call_free(c);
}

static void begin(struct call *c, const struct tenant *t, const char *sandbox)
{
	const char *last = http_header(c->q, "Last-Event-ID");
	struct listener *l = calloc(1, sizeof(*l));
	uint64_t seq;

	if (!l)
		abort();
	l->c = c;
	l->tenant = t;
	snprintf(l->sandbox, sizeof(l->sandbox), "%s", sandbox);
	c->data = l;
	c->gone = listener_end;
	sse_begin(c->q);
	l->replaying = true;
	if (last && parse_u64(last, &seq, NULL) == 0)
		event_replay(c->api->s, seq, on_event, l);
	l->replaying = false;
	event_listen(c->api->s, &l->l, on_event, l);
	api_stream_add(c->api, &l->registered, &c->who, on_stop, l);
}

void get_events(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	const char *tenant = http_query(q, "tenant");
	struct err e = { 0 };
	struct tenant *t = NULL;

	if (!(tenant && !strcmp(tenant, "*") && c->who.scope == SCOPE_ADMIN)) {
		t = api_tenant(c->api, q, &c->who, &e);
		if (!t) {
			call_fail(c, &e);
			return;
		}
	}
	begin(c, t, "");
}

void get_sandbox_events(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);

	if (call_sandbox(c) < 0)
		return;
	begin(c, sandbox_tenant(c->sandbox), sandbox_id(c->sandbox));
	call_leave_sandbox(c); /* listening must not keep the sandbox awake */
}
