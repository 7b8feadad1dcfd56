#include "linux/steer.h"
#include "base/base.h"

static bool rest_zero(const struct steer_rule *r)
{
	const unsigned size = r->family == 4 ? 4 : 16;

	for (unsigned i = 0; i < 16; i++) {
		const unsigned bits = i >= size ? 0 : r->prefix >= 8 * (i + 1) ? 8 : r->prefix > 8 * i ? r->prefix - 8 * i : 0;

		if (r->addr[i] & (0xff >> bits))
			return false;
	}
	return true;
}

int steer_check(const struct steer_rules *r, struct err *e)
{
	if (r->mode > STEER_OBSERVE)
		return err_set(e, ERR_INVALID, -EINVAL, "network: no mode %u", r->mode);
	if (r->n > STEER_RULES)
		return err_set(e, ERR_INVALID, -E2BIG, "network: at most %d addresses", STEER_RULES);
	if (r->n && r->mode != STEER_ALLOW)
		return err_set(e, ERR_INVALID, -EINVAL, "network: addresses in a mode that does not look at them");
	for (uint32_t i = 0; i < r->n; i++) {
		const struct steer_rule *x = &r->rule[i];

		if ((x->family != 4 && x->family != 6) || x->prefix > (x->family == 4 ? 32 : 128) || !x->first ||
		    x->last < x->first || x->zero || !rest_zero(x))
			return err_set(e, ERR_INVALID, -EINVAL, "network: address %u is none", i);
	}
	return 0;
}
