/* Finds the tier for a name or a spec. Apart from the array, because the program that stays root needs none of this. */
#include "base/base.h"
#include "tier/tiers.h"

/* "container or vm" */
static const char *names(char *to, size_t size)
{
	size_t n = 0;

	to[0] = '\0';
	for (const struct tier_ops *const *t = tiers; *t && n < size; t++)
		n += (size_t)snprintf(to + n, size - n, "%s%s", t == tiers ? "" : t[1] ? ", " : " or ", (*t)->name);
	return to;
}

int tier_find(const char *name, const struct tier_ops **ret, struct err *e)
{
	static const char *const planned[] = { "process", "wasm" };
	char all[96];
	int r = -EINVAL;

	for (const struct tier_ops *const *t = tiers; *t; t++)
		if (!strcmp((*t)->name, name)) {
			*ret = *t;
			return 0;
		}
	for (size_t i = 0; i < ARRAY_LEN(planned); i++)
		if (!strcmp(planned[i], name))
			r = err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "isolation '%s' is not supported in this version",
				    name);
	if (r == -EINVAL)
		err_set(e, ERR_INVALID, r, "unknown isolation '%.60s'", name);
	err_remedy(e, "use isolation %s", names(all, sizeof(all)));
	return r;
}

const struct tier_ops *tier_of(uint32_t flags)
{
	for (const struct tier_ops *const *t = tiers; *t; t++)
		if ((*t)->flag == (flags & SPEC_TIERS))
			return *t;
	return NULL;
}

bool tier_is_machine(uint32_t flags)
{
	const struct tier_ops *t = tier_of(flags);

	return t && t->machine;
}

bool tier_ready(const struct tier_ops *t)
{
	struct err e = { 0 };

	return !t->ready || t->ready(&e) == 0 || e.errnum == EPERM;
}

int tier_check(const struct sandbox_spec *spec, struct err *e)
{
	const struct tier_ops *t;
	int r = spec_check(spec, e);

	if (r < 0)
		return r;
	t = tier_of(spec->flags);
	if (!t)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this isolation is not available here");
	return t->check ? t->check(spec, e) : 0;
}
