/* The container tier: namespaces, cgroups and a filter, made by a warden in this process. */
#include "base/base.h"
#include "driver/driver.h"

#include <poll.h>

#define ASK_MS 100

static struct warden_sandbox *tier(struct tier_sandbox *s)
{
	return s->tier;
}

/* One that is not there at once: nothing else is done here meanwhile. Who gives up has all of it end with the warden. */
static int wait_made(struct engine *g, struct warden_sandbox **ret, struct err *e)
{
	struct warden *w = engine_warden(g);
	struct pollfd p = { .fd = warden_done_fd(w), .events = POLLIN };
	const int nap = engine_asks(g) ? ASK_MS : -1;
	struct warden_done d;
	char doing[160];
	int r;

	for (;;) {
		while (warden_done(w, &d)) {
			if (d.what != WARDEN_DONE_RESTORED)
				continue;
			if (d.result < 0)
				*e = d.e;
			else
				*ret = d.sandbox;
			return d.result;
		}
		if (poll(&p, 1, nap) < 0 && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "poll");
		warden_doing(w, doing, sizeof(doing));
		r = engine_waits(g, doing, e);
		if (r < 0)
			return r;
	}
}

static int container_create(struct engine *g, const struct sandbox_spec *spec, struct tier_sandbox *ret, struct err *e)
{
	struct warden_sandbox *ws;
	int r;

	if (engine_maker(g))
		return engine_maker(g)->create(g, spec, ret, e);
	r = warden_create(engine_warden(g), spec, &ws, e);
	if (r == 1) {
		r = wait_made(g, &ws, e);
		engine_waits(g, NULL, NULL);
	}
	if (r < 0)
		return r;
	*ret = (struct tier_sandbox){ .driver = &container_driver, .engine = g, .tier = ws };
	ret->pidfd = warden_pidfd(ws);
	ret->receipt = *warden_receipt(ws);
	link_init(&ret->link, warden_sock(ws));
	warden_net_sockets(ws, ret->net);
	return 0;
}

static int container_destroy(struct tier_sandbox *s, struct err *e)
{
	link_done(&s->link);
	fd_close_many(s->net, STEER_SOCKETS);
	return warden_destroy(engine_warden(s->engine), tier(s), e);
}

static int container_stat(struct tier_sandbox *s, struct warden_stat *ret, struct err *e)
{
	int r = warden_stat(engine_warden(s->engine), tier(s), ret);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read the sandbox's usage") : 0;
}

static int container_freeze(struct tier_sandbox *s, struct err *e)
{
	return warden_freeze(engine_warden(s->engine), tier(s), e);
}

static int container_thaw(struct tier_sandbox *s, struct err *e)
{
	return warden_thaw(engine_warden(s->engine), tier(s), e);
}

static int container_refresh(struct tier_sandbox *s)
{
	return warden_refresh(engine_warden(s->engine), tier(s));
}

static int container_who(struct tier_sandbox *s, const struct warden_who *who, struct socket_owner *ret, struct err *e)
{
	return warden_who(engine_warden(s->engine), tier(s), who, ret, e);
}

static int container_denied(struct tier_sandbox *s, struct steer_denied ret[STEER_DENIED], struct err *e)
{
	return warden_denied(engine_warden(s->engine), tier(s), ret, e);
}

const struct driver container_driver = {
	.name = "container",
	.abilities = DRIVER_FREEZE,
	.create = container_create,
	.destroy = container_destroy,
	.stat = container_stat,
	.freeze = container_freeze,
	.thaw = container_thaw,
	.refresh = container_refresh,
	.who = container_who,
	.denied = container_denied,
};
