/*
 * The VM tier, which above the warden is the container tier with one flag: the warden makes the machine and its jail
 * (vm/host/host.h), and what runs inside is spoken to through cloche-vmm as if that were an agent.
 */
#include "base/base.h"
#include "driver/driver.h"

static int vm_create(struct engine *g, const struct sandbox_spec *spec, struct tier_sandbox *ret, struct err *e)
{
	AUTO_FREE struct sandbox_spec *vm = malloc(sizeof(*vm));
	int r;

	if (!vm)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	*vm = *spec;
	vm->flags |= SPEC_VM;
	r = container_driver.create(g, vm, ret, e);
	if (r == 0 && !engine_maker(g))
		ret->driver = &vm_driver;
	return r;
}

static int vm_destroy(struct tier_sandbox *s, struct err *e)
{
	return container_driver.destroy(s, e);
}

static int vm_usage(struct tier_sandbox *s, struct warden_stat *ret, struct err *e)
{
	return container_driver.stat(s, ret, e);
}

static int vm_freeze(struct tier_sandbox *s, struct err *e)
{
	return container_driver.freeze(s, e);
}

static int vm_thaw(struct tier_sandbox *s, struct err *e)
{
	return container_driver.thaw(s, e);
}

static int vm_refresh(struct tier_sandbox *s)
{
	(void)s;
	return 0;
}

static int vm_who(struct tier_sandbox *s, const struct warden_who *who, struct socket_owner *ret, struct err *e)
{
	return container_driver.who(s, who, ret, e);
}

static int vm_denied(struct tier_sandbox *s, struct steer_denied ret[STEER_DENIED], struct err *e)
{
	return container_driver.denied(s, ret, e);
}

const struct driver vm_driver = {
	.name = "vm",
	.abilities = DRIVER_FREEZE,
	.create = vm_create,
	.destroy = vm_destroy,
	.stat = vm_usage,
	.freeze = vm_freeze,
	.thaw = vm_thaw,
	.refresh = vm_refresh,
	.who = vm_who,
	.denied = vm_denied,
};
