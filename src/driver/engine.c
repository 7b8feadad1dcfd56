#include "base/base.h"
#include "driver/driver.h"
#include "vm/host/tier.h"

#include <poll.h>
#include <sys/stat.h>

struct engine {
	struct warden *warden; /* in this process, or NULL */
	const struct driver *maker; /* as in engine_opts */
	void *maker_arg;
	void (*maker_free)(void *arg);
	int (*waits)(void *arg, const char *doing, struct err *e); /* as in engine_opts */
	void *arg;
};

static const struct driver *const drivers[] = { &container_driver, &vm_driver };

const struct driver *driver_find(const char *name, struct err *e)
{
	static const char *const later[] = { "process", "wasm" };

	for (size_t i = 0; i < ARRAY_LEN(drivers); i++)
		if (!strcmp(drivers[i]->name, name))
			return drivers[i];
	for (size_t i = 0; i < ARRAY_LEN(later); i++) {
		if (strcmp(later[i], name))
			continue;
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "isolation '%s' is not supported in this version", name);
		err_remedy(e, "use --isolation container or vm");
		return NULL;
	}
	err_set(e, ERR_INVALID, -EINVAL, "unknown isolation '%s'", name);
	err_remedy(e, "use --isolation container or vm");
	return NULL;
}

int engine_new(const struct engine_opts *o, struct engine **ret, struct err *e)
{
	struct warden_opts w = {
		.tiers = host_tiers,
		.pool = o->pool,
		.env.freezer = o->freezer,
		.env.accounting = o->accounting,
		.env.one_shot = o->one_shot,
		.env.agent = o->agent,
	};
	struct engine *g;
	char path[512];
	int r = 0;

	if (!o->agent && !o->maker) {
		r = program_path("cloche-agent", path, sizeof(path), e);
		w.env.agent = path;
	}
	if (r < 0)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an engine");
	g->waits = o->waits;
	g->arg = o->arg;
	/* What is made is for the sandbox's users, whatever who started us keeps from others: a root of mode 0700 lets none in. */
	if (!o->maker) {
		umask(022);
		r = warden_new(&w, &g->warden, e);
	}
	if (r < 0) {
		free(g);
		return r;
	}
	g->maker = o->maker;
	g->maker_arg = o->maker_arg;
	g->maker_free = o->maker_free;
	*ret = g;
	return 0;
}

void engine_free(struct engine *g)
{
	if (!g)
		return;
	warden_free(g->warden);
	if (g->maker)
		g->maker_free(g->maker_arg);
	free(g);
}

int engine_accel(struct engine *g, bool *ret_kvm, char *why, size_t size, struct err *e)
{
	struct warden_done d;
	int r;

	while ((r = warden_accel(g->warden, WARDEN_ACCEL_TRY, ret_kvm, why, size, e)) == -EAGAIN) {
		struct pollfd p = { .fd = warden_done_fd(g->warden), .events = POLLIN };

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "poll");
		warden_done(g->warden, &d); /* nothing was asked of it that it could tell */
	}
	return r;
}

bool engine_asks(const struct engine *g)
{
	return g->waits;
}

int engine_waits(struct engine *g, const char *doing, struct err *e)
{
	return g->waits ? g->waits(g->arg, doing, e) : 0;
}

struct warden *engine_warden(struct engine *g)
{
	return g->warden;
}

const struct driver *engine_maker(const struct engine *g)
{
	return g->maker;
}

void *engine_maker_arg(const struct engine *g)
{
	return g->maker_arg;
}
