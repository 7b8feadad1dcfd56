/* A warden in this process. */
#include "run/engine.h"
#include "base/base.h"
#include "engine/kernel_memory/looks.h"

#include <poll.h>
#include <sys/stat.h>

#define ASK_MS 100

struct engine {
	struct warden *warden;
	int (*waits)(void *arg, const char *doing, struct err *e); /* as in engine_opts */
	void *arg;
};

int engine_new(const struct engine_opts *o, struct engine **ret, struct err *e)
{
	struct warden_opts w = {
		.tiers = tiers,
		.looker = &kernel_looker_threads,
		.pool = o->pool,
		.env.freezer = o->freezer,
		.env.accounting = o->accounting,
		.env.one_shot = o->one_shot,
		.env.image_fill = image_fill_here,
		.env.alone = &env_alone,
		.env.agent = o->agent,
		.env.cdi = o->cdi,
	};
	struct engine *g;
	int r;

	g = calloc(1, sizeof(*g));
	if (!g)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an engine");
	g->waits = o->waits;
	g->arg = o->arg;
	/*
	 * Files are made for the sandbox's users, whatever the caller's umask: a root of mode 0700 would be
	 * inaccessible to them.
	 */
	umask(022);
	r = warden_new(&w, &g->warden, e);
	if (r < 0) {
		free(g);
		return r;
	}
	*ret = g;
	return 0;
}

void engine_free(struct engine *g)
{
	if (!g)
		return;
	warden_free(g->warden);
	free(g);
}

int engine_accel(struct engine *g, bool *ret_kvm, char *why, size_t size, struct err *e)
{
	struct warden_done d;
	int r;

	while ((r = warden_accel_try(g->warden, ret_kvm, why, size, e)) == -EAGAIN) {
		struct pollfd p = { .fd = warden_done_fd(g->warden), .events = POLLIN };

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "poll");
		warden_done(g->warden, &d); /* no result is expected */
	}
	return r;
}

struct warden *engine_warden(struct engine *g)
{
	return g->warden;
}

/* Waits for a sandbox that is not made at once. If the caller gives up, it ends with the warden. */
static int wait_made(struct engine *g, struct warden_sandbox **ret, struct err *e)
{
	struct pollfd p = { .fd = warden_done_fd(g->warden), .events = POLLIN };
	struct warden_done d;
	char doing[160];
	int r;

	for (;;) {
		while (warden_done(g->warden, &d)) {
			if (d.what != WARDEN_DONE_RESTORED)
				continue;
			if (d.result < 0)
				*e = d.e;
			else
				*ret = d.sandbox;
			return d.result;
		}
		if (poll(&p, 1, g->waits ? ASK_MS : -1) < 0 && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "poll");
		warden_doing(g->warden, doing, sizeof(doing));
		r = g->waits ? g->waits(g->arg, doing, e) : 0;
		if (r < 0)
			return r;
	}
}

int engine_create(struct engine *g, const struct sandbox_spec *spec, struct engine_sandbox *ret, struct err *e)
{
	struct warden_sandbox *made;
	int r = warden_create(g->warden, spec, &made, e);

	if (r == 1) {
		r = wait_made(g, &made, e);
		if (g->waits)
			g->waits(g->arg, NULL, NULL);
	}
	if (r < 0)
		return r;
	*ret = (struct engine_sandbox){ .engine = g, .made = made, .tier = tier_of(spec->flags) };
	ret->pidfd = warden_pidfd(made);
	ret->receipt = *warden_receipt(made);
	link_init(&ret->link, warden_sock(made));
	warden_net_sockets(made, ret->net);
	return 0;
}

int engine_destroy(struct engine_sandbox *s, struct err *e)
{
	link_done(&s->link);
	fd_close_many(s->net, STEER_SOCKETS);
	return warden_destroy(s->engine->warden, s->made, e);
}

int engine_stat(struct engine_sandbox *s, struct warden_stat *ret, struct err *e)
{
	int r = warden_stat(s->engine->warden, s->made, ret);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read the sandbox's usage") : 0;
}
