/* Reads and drops capabilities. */
#include "linux/caps.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/capability.h>
#include <linux/prctl.h>

int caps_set(uint64_t pe, uint64_t inh)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	for (unsigned i = 0; i < 2; i++)
		d[i] = (struct __user_cap_data_struct){
			.effective = (uint32_t)(pe >> (32 * i)),
			.permitted = (uint32_t)(pe >> (32 * i)),
			.inheritable = (uint32_t)(inh >> (32 * i)),
		};
	return sys_capset(&h, d);
}

int caps_permitted(uint64_t *ret)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };
	int r = sys_capget(&h, d);

	*ret = (uint64_t)d[1].permitted << 32 | d[0].permitted;
	return r;
}

int caps_raise_effective(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };
	int r = sys_capget(&h, d);

	for (unsigned i = 0; i < 2; i++)
		d[i].effective = d[i].permitted;
	return r < 0 ? r : sys_capset(&h, d);
}

int caps_inherit(uint64_t inheritable)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };
	int r = sys_capget(&h, d);

	for (unsigned i = 0; i < 2; i++)
		d[i].inheritable = (uint32_t)(inheritable >> (32 * i));
	return r < 0 ? r : sys_capset(&h, d);
}

int caps_drop_bounding(uint64_t keep)
{
	for (unsigned long c = 0; c < 64; c++) {
		int r;

		if (keep & (1ULL << c))
			continue;
		r = sys_prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
		/* The kernel has no capability @c. Then it must have none above it, or those would be kept. */
		if (r == -EINVAL && c > CAP_SYS_ADMIN && sys_prctl(PR_CAPBSET_READ, c, 0, 0, 0) == -EINVAL)
			break;
		if (r < 0)
			return r;
	}
	return 0;
}

int caps_raise_ambient(uint64_t set)
{
	for (unsigned long c = 0; c < 64; c++) {
		int r;

		if (!(set & (1ULL << c)))
			continue;
		r = sys_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, c, 0, 0);
		if (r < 0)
			return r;
	}
	return 0;
}
