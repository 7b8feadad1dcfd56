/* Asks the registry for a name's present digest. */
#include "service/image/outdated.h"
#include "base/base.h"
#include "service/image/struct.h"
#include "service/image/registry.h"

struct asking {
	struct image_outdated what;
	struct registry *registry;
	image_outdated_fn *fn;
	void *arg;
};

static void on_found(void *arg, int r, const struct registry_found *f, const struct err *e)
{
	struct asking *a = arg;

	if (r == 0)
		memcpy(a->what.registry_digest, f->digest, sizeof(f->digest));
	a->fn(a->arg, r < 0 ? NULL : &a->what, e);
	registry_free(a->registry, NULL, NULL);
	free(a);
}

int image_outdated(struct service *s, const struct who *who, const struct image *i, const char *login,
		   image_outdated_fn *fn, void *arg, struct err *e)
{
	struct oci_name name;
	const struct registry_plan plan = { .name = &name, .login = login, .digest_only = true };
	struct asking *a;
	int r = oci_name_parse(i->name, &name, e);

	if (r < 0)
		return r;
	if (!name.tag[0])
		return err_set(e, WHY_CONFLICT, -EINVAL, "'%.150s' has no tag: a digest never moves", i->name);
	name.digest[0] = '\0';
	a = calloc(1, sizeof(*a));
	if (!a)
		abort();
	*a = (struct asking){ .fn = fn, .arg = arg };
	memcpy(a->what.name, i->name, sizeof(i->name));
	memcpy(a->what.digest, i->digest, sizeof(i->digest));
	r = registry_find(s, who, &plan, on_found, a, &a->registry, e);
	if (r < 0)
		free(a);
	return r;
}
