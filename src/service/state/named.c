/* Adds, finds and removes named things of tenants. */
#include "service/state/named.h"
#include "base/base.h"

static int by_name(const void *a, const void *b)
{
	const struct named *x = a, *y = b;
	int r = strcmp(tenant_id(x->tenant), tenant_id(y->tenant));

	return r ? r : strcmp(x->name, y->name);
}

int named_list(const struct service *s, const struct named_kind *k, const struct tenant *t, struct named **ret,
	       size_t *ret_n)
{
	AUTO_FREE struct named *list = NULL;
	size_t at = 0, n = 0, room = 0;
	struct named one;

	while ((one = k->next(s, &at)).what) {
		if (!one.name || (t && one.tenant != t))
			continue;
		if (n == room) {
			struct named *more = reallocarray(list, room ? 2 * room : 16, sizeof(*more));

			if (!more)
				return -ENOMEM;
			list = more;
			room = room ? 2 * room : 16;
		}
		list[n++] = one;
	}
	if (n)
		qsort(list, n, sizeof(*list), by_name);
	*ret = TAKE_PTR(list);
	*ret_n = n;
	return 0;
}
