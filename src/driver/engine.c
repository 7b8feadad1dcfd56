#include "base/base.h"
#include "base/sys.h"
#include "config.h"
#include "driver/driver.h"

#include <unistd.h>

struct engine {
	struct warden *warden;
};

static const struct driver *const drivers[] = { &container_driver };

const struct driver *driver_find(const char *name, struct err *e)
{
	static const char *const later[] = { "process", "vm", "wasm" };

	for (size_t i = 0; i < ARRAY_LEN(drivers); i++)
		if (!strcmp(drivers[i]->name, name))
			return drivers[i];
	for (size_t i = 0; i < ARRAY_LEN(later); i++) {
		if (strcmp(later[i], name))
			continue;
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "isolation '%s' is not in this version", name);
		err_remedy(e, "use --isolation container");
		return NULL;
	}
	err_set(e, ERR_INVALID, -EINVAL, "isolation '%s': unknown", name);
	err_remedy(e, "use --isolation container");
	return NULL;
}

int program_path(const char *name, char *buf, size_t size, struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);
	char *slash;

	if (n > 0) {
		buf[n] = '\0';
		slash = strrchr(buf, '/');
		if (slash && (size_t)snprintf(slash + 1, size - (size_t)(slash + 1 - buf), "%s", name) <
				     size - (size_t)(slash + 1 - buf) && access(buf, X_OK) == 0)
			return 0;
	}
	if ((size_t)snprintf(buf, size, "%s/%s", CLOCHE_LIBEXEC, name) < size && access(buf, X_OK) == 0)
		return 0;
	err_set(e, ERR_NOT_FOUND, -ENOENT, "%s is neither beside this program nor in %s", name, CLOCHE_LIBEXEC);
	err_remedy(e, "run `make install`, or start cloche from its build folder");
	return -ENOENT;
}

int engine_new(const struct engine_opts *o, struct engine **ret, struct err *e)
{
	struct warden_opts w = {
		.pool = o->pool,
		.env.freezer = o->freezer,
		.env.accounting = o->accounting,
		.env.one_shot = o->one_shot,
		.env.agent = o->agent,
	};
	struct engine *g;
	char path[512];
	int r = 0;

	if (!o->agent) {
		r = program_path("cloche-agent", path, sizeof(path), e);
		w.env.agent = path;
	}
	if (r < 0)
		return r;
	g = calloc(1, sizeof(*g));
	if (!g)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an engine");
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

struct warden *engine_warden(struct engine *g)
{
	return g->warden;
}
