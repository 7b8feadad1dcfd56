/* The VM tier as a table: a sandbox is a jail, and a machine in it (host.h). */
#include "vm/host/tier.h"
#include "base/base.h"
#include "base/log.h"
#include "engine/sandbox/internal.h"
#include "vm/host/host.h"

#include <unistd.h>

/* What the last warden left half-made goes, also when no machine is ever asked for again. */
static void open_store(struct warden *w)
{
	struct err e = { 0 };

	if (!w->env.vm[0] || !w->env.persist || access(w->env.vm, F_OK) != 0)
		return;
	if (vm_open(w, &e) < 0)
		log_error("virtual machines: %s", e.msg);
	else
		vm_first_sweep(w);
}

static void end_machine(struct warden *w, struct warden_sandbox *s)
{
	if (s->vm)
		s->vm->ends = true;
	vm_leave(w, s);
}

static void record_machine(const struct warden_sandbox *s, struct record *rec, int *more)
{
	if (s->vm->template)
		memcpy(rec->vm_key, s->vm->template->key, sizeof(rec->vm_key));
	rec->kvm = s->vm->accel == VM_KVM;
	rec->vm_cpu_base = s->vm->cpu_base;
	rec->vm_side = VM_SIDE_VERSION;
	vm_own_record(s->vm, &rec->vm);
	more[0] = s->vm->side;
	more[1] = s->vm->page;
}

static int run_again(struct warden_sandbox *s, struct err *e)
{
	return vm_run_again(s->vm, e);
}

static void set_tag(struct warden_sandbox *s, void *tag)
{
	s->vm->tag = tag;
}

static int *machine_sock(const struct warden_sandbox *s)
{
	return &s->vm->sock;
}

static int steer_machine(struct warden_sandbox *s, const struct steer_rules *rules, struct err *e)
{
	return vm_steer(s->vm, rules, e);
}

static int first_group(struct warden_sandbox *s)
{
	/* Restored execs have the first ones. */
	return s->flags & SPEC_MEMORY || s->vm->group ? -1 : vm_group_fd(s->vm->group = 1, NULL);
}

static int kill_group(struct warden_sandbox *s, uint32_t group, struct err *e)
{
	return vm_group_say(s, VM_GROUP_KILL, group, e);
}

static int end_group(struct warden_sandbox *s, uint32_t group, struct err *e)
{
	return vm_group_say(s, VM_GROUP_END, group, e);
}

const struct tier_ops vm_tier = {
	.name = "vm",
	.flag = SPEC_VM,
	.machine = true,
	.open = open_store,
	.close = vm_close,
	.free = vm_free,
	.worked = vm_worked,
	.done = vm_done,
	.create = vm_create,
	.adopt = vm_adopt,
	.forget = vm_leave,
	.end = end_machine,
	.record = record_machine,
	.thaw = run_again,
	.set_tag = set_tag,
	.sock = machine_sock,
	.attach = vm_attach,
	.steer = steer_machine,
	.stat = vm_stat,
	.first_group = first_group,
	.group_new = vm_group,
	.group_open = vm_group_fd,
	.group_kill = kill_group,
	.group_end = end_group,
	.seal_begin = vm_seal_begin,
	.seal_end = vm_seal_end,
};

const struct tier_ops *const host_tiers[] = { &vm_tier, NULL };
