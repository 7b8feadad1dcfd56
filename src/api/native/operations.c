/* Operations: what takes long, its events, and its end on request. */
#include "api/native/object.h"
#include "base/base.h"
#include "base/str.h"
#include "service/image/operation.h"

struct watcher {
	struct call *c;
	struct operation_watch w;
	struct api_stream registered;
};

/* The one in the path. NULL: it has been answered. */
static struct operation *call_operation(struct call *c)
{
	struct err e = { 0 };
	struct operation *o = operation_find(c->api->s, &c->who, router_param(c->route, c->q, "o"), &e);

	if (!o)
		call_fail(c, &e);
	return o;
}

void call_accepted(struct call *c, const struct operation *o)
{
	AUTO(buf_done) struct buf out = BUF_INIT(OBJECT_MAX);
	struct json j = JSON_INIT(&out);

	operation_write(o, &j);
	call_object(c, 202, &j);
}

static int write_operations(struct call *c, struct json *j)
{
	AUTO_FREE struct operation **list = NULL;
	bool all = false;
	struct tenant *t = call_tenant_of(c, &all);
	size_t n;

	if (!t && !all)
		return -ENOENT;
	operations_list(c->api->s, t, &list, &n);
	for (size_t i = 0; i < n; i++)
		operation_write(list[i], j);
	return 0;
}

DEFINE_LIST(get_operations, "operations", write_operations)
DEFINE_SHOW(get_operation, struct operation, call_operation, operation_write)

void delete_operation(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct operation *o = call_operation(c);
	struct err e = { 0 };

	if (!o)
		return;
	if (operation_cancel(o, &c->who, &e) < 0)
		call_fail(c, &e);
	else
		call_accepted(c, o);
}

/* --- events --- */

static void watcher_end(struct call *c)
{
	struct watcher *w = c->data;

	operation_unlisten(&w->w);
	api_stream_remove(&w->registered);
	free(w);
	c->data = NULL;
}

static void end_stream(struct call *c)
{
	watcher_end(c);
	c->gone = NULL;
	http_end(c->q);
	c->q = NULL;
	call_free(c);
}

static void on_event(void *arg, const struct operation_event *ev)
{
	struct watcher *w = arg;
	struct call *c = w->c;
	char id[24];

	/* A client that does not read misses progress, and nothing else: what is replayed has its bounds. */
	if (!c->q || (!ev->seq && http_queued(c->q) > HTTP_HIGH))
		return;
	snprintf(id, sizeof(id), "%llu", (unsigned long long)ev->seq);
	sse_event(c->q, ev->seq ? id : NULL, ev->kind, ev->json, strlen(ev->json));
	if (ev->last)
		end_stream(c);
}

static void on_stop(void *arg, enum stream_end why)
{
	struct watcher *w = arg;

	(void)why;
	end_stream(w->c);
}

void get_operation_events(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	struct operation *o = call_operation(c);
	const char *last = o ? http_header(q, "Last-Event-ID") : NULL;
	struct watcher *w;
	uint64_t seq = 0;

	if (!o)
		return;
	if (last && parse_u64(last, &seq, NULL) < 0)
		seq = 0;
	w = calloc(1, sizeof(*w));
	if (!w)
		abort();
	w->c = c;
	c->data = w;
	c->gone = watcher_end;
	sse_begin(q);
	api_stream_add(c->api, &w->registered, &c->who, on_stop, w);
	operation_listen(o, seq, &w->w, on_event, w);
}
