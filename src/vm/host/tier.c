/* The VM tier's table: a sandbox is a jail with a machine in it (host.h). */
#include "vm/host/tier.h"
#include "base/base.h"
#include "base/log.h"
#include "engine/sandbox/internal.h"
#include "vm/host/host.h"

#include <unistd.h>

#define MEMORY_MIN (96 * MIB)
#define DISK_MIN (16 * MIB)

static int check_spec(const struct sandbox_spec *s, struct err *e)
{
	if (s->nmounts)
		return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
				  "leave the mounts out and copy the files, or use isolation 'container'",
				  "isolation 'vm': folders of the host cannot be mounted");
	if (s->limits.memory < MEMORY_MIN)
		return err_set(e, ERR_INVALID, -EINVAL, "memory: a virtual machine needs at least %lluM",
			       (unsigned long long)(MEMORY_MIN / MIB));
	if (s->limits.disk && s->limits.disk < DISK_MIN)
		return err_set(e, ERR_INVALID, -EINVAL, "disk: a virtual machine needs at least 16M");
	return 0;
}

/* Removes what the last warden left half-made, even if no machine is requested any more. */
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

static void set_tag(struct warden_sandbox *s, void *tag)
{
	s->vm->tag = tag;
}

static int *machine_sock(const struct warden_sandbox *s)
{
	return &s->vm->sock;
}

static int first_group(struct warden_sandbox *s)
{
	/* Restored execs have the first numbers. */
	return s->flags & SPEC_MEMORY || s->vm->group ? -1 : vm_group_fd(s->vm->group = 1, NULL);
}

const struct tier_ops vm_tier = {
	.name = "vm",
	.flag = SPEC_VM,
	.lacks = TIER_LIMITS,
	.machine = true,
	.ready = vm_ready,
	.check = check_spec,
	.open = open_store,
	.close = vm_close,
	.free = vm_free,
	.worked = vm_worked,
	.done = vm_done,
	.unsealed = vm_stack_gone,
	.create = vm_create,
	.adopt = vm_adopt,
	.forget = vm_leave,
	.end = end_machine,
	.record = record_machine,
	.thaw = vm_run_again,
	.set_tag = set_tag,
	.sock = machine_sock,
	.attach = vm_attach,
	.steer = vm_steer,
	.stat = vm_stat,
	.first_group = first_group,
	.group_new = vm_group,
	.group_open = vm_group_fd,
	.group_end = vm_group_end,
	.seal_begin = vm_seal_begin,
	.seal_end = vm_seal_end,
};
