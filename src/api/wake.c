/* Wakes sandboxes for the requests that need them. */
#include "api/api.h"
#include "base/base.h"

struct waking {
	struct api *api;
	struct http_req *q;
	const struct route *r;
	struct sandbox *sandbox;
	struct sandbox_waiter w;
};

static void waking_free(struct waking *x)
{
	sandbox_rest(x->sandbox);
	sandbox_unref(x->sandbox);
	free(x);
}

static void on_gone(void *arg)
{
	struct waking *x = arg;

	sandbox_wait_cancel(x->sandbox, &x->w);
	waking_free(x);
}

static void on_awake(void *arg, int r, const struct err *e)
{
	struct waking *x = arg;
	struct http_req *q = x->q;
	const struct route *route = x->r;
	struct api *a = x->api;

	http_set_gone(q, NULL, NULL);
	if (r < 0 && e && e->kind == ERR_EXHAUSTED)
		http_fail_retry(q, e, 1);
	else if (r < 0 && e && e->kind == ERR_REFUSED && !e->remedy[0]) {
		struct err more = *e;

		snprintf(more.remedy, sizeof(more.remedy),
			 "POST .../resume?memory=0 wakes it with its files, without its processes");
		http_fail(q, &more);
	} else if (r < 0)
		http_fail(q, e);
	else
		route->handle(a, q, route);
	waking_free(x);
}

bool api_awake(struct api *a, struct http_req *q, const struct route *r)
{
	struct err e = { 0 };
	bool memory = true;
	struct who who;
	struct waking *x;
	struct sandbox *b;

	if (!(r->flags & ROUTE_WAKES))
		return true;
	if ((r->flags & ROUTE_RESUMES) && api_flag(q, "memory", &memory, &e) < 0) {
		http_fail(q, &e);
		return false;
	}
	who = api_who(q);
	b = sandbox_find(a->s, &who, router_param(r, q, "id"), NULL);
	if (!b)
		return true;
	/* Its body may come later: what counts as a use keeps it awake until then. */
	if (sandbox_serves(b, r->flags & ROUTE_OPENS ? SANDBOX_NEED_FILES : SANDBOX_NEED_PROCESSES))
		return true;
	if (!memory)
		sandbox_forget_memory(b);
	x = calloc(1, sizeof(*x));
	if (!x)
		abort();
	*x = (struct waking){ .api = a, .q = q, .r = r, .sandbox = b, .w = { .fn = on_awake, .arg = x } };
	if (sandbox_wake(b, &x->w)) {
		free(x);
		return true;
	}
	sandbox_ref(b);
	sandbox_use(b);
	http_set_gone(q, on_gone, x);
	return false;
}
