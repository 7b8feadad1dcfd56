/* Decides whether a tenant may mount a folder. */
#include "service/access/mount_may.h"

#include "base/base.h"
#include "service/access/struct.h"

/* Lexically: there is no ".." in @path, and the warden opens it below that folder without links. */
static bool is_below(const char *folder, const char *path)
{
	size_t n = strlen(folder);

	while (n > 1 && folder[n - 1] == '/')
		n--;
	if (n == 1)
		return *path == '/';
	return !strncmp(path, folder, n) && (path[n] == '/' || !path[n]);
}

static bool may_have(const struct service_opts *o, const struct tenant *t, const char *path)
{
	for (unsigned i = 0; i < o->nmounts; i++)
		if ((!*o->mount_tenant[i] || !strcmp(o->mount_tenant[i], t->id)) && is_below(o->mount_path[i], path))
			return true;
	return false;
}

int mounts_may(const struct service_opts *o, const struct tenant *t, const struct sandbox_spec *spec, struct err *e)
{
	for (uint32_t i = 0; i < spec->nmounts; i++) {
		const char *path = spec->mount[i].src;

		if (may_have(o, t, path))
			continue;
		err_set(e, WHY_HOST_FORBIDS, -EACCES,
			"mount source '%.100s': not below a folder that tenant '%s' may mount", path, t->id);
		err_remedy(e, "an administrator can allow it with --allow-mount (allow_mount = /folder, or %s:/folder)",
			   t->id);
		return -EACCES;
	}
	return 0;
}
