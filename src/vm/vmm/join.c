/* JOIN: merges the disks above one into the top one, so that saves can continue for ever (chain.c). */
#include "base/base.h"
#include "vm/vmm/vmm.h"

static int begin(struct vmm *v, struct err *e)
{
	const bool still = v->join.flags & VM_JOIN_STILL;
	int r = 0;

	if ((v->state != VMM_RUNS && v->state != VMM_STAYS) || v->start.role != VM_CLONE ||
	    v->join.flags & ~VM_JOIN_STILL)
		return err_set(e, ERR_CONFLICT, -EBUSY,
			       "the disks of the virtual machine cannot be merged in its present state");
	if (still && v->state == VMM_RUNS)
		r = machine_stop(&v->machine, e);
	return r < 0 ? r : machine_join(&v->machine, v->join.base, e);
}

/* Answers the JOIN; the machine continues in any case. */
static int end(struct vmm *v, int r, const struct err *e)
{
	const uint64_t id = v->join.id;
	int go = 0;

	if (v->join.flags & VM_JOIN_STILL && v->machine.qmp.stopped && v->state == VMM_RUNS)
		go = machine_go(&v->machine, &v->e);
	v->join = v->join_next;
	v->join_next = (struct vm_join){ 0 };
	if (go < 0)
		return go;
	if (r < 0)
		vmm_say_failed(id, e);
	else
		vmm_say(&(struct vm_msg){ .type = VM_JOINED, .joined = { .id = id, .top = machine_top(&v->machine) } });
	return 0;
}

/* Begins JOINs until one has to be waited for. */
static int begin_all(struct vmm *v)
{
	int r = 0;

	while (r == 0 && v->join.id && !v->machine.joins) {
		struct err e = { 0 };
		int done = begin(v, &e);

		/* The job may have ended before QEMU has answered; then no event would follow. */
		if (done == 0)
			done = machine_joined(&v->machine, &e);
		if (done == 0)
			break;
		r = end(v, done, &e);
	}
	return r;
}

int vmm_join(struct vmm *v, const struct vm_join *j)
{
	if (!j->id)
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "the JOIN message is invalid");
	if (v->join.id) {
		v->join_next = *j; /* of a warden that replaced another; the earlier one does not wait for its answer */
		return 0;
	}
	v->join = *j;
	return begin_all(v);
}

int vmm_join_turn(struct vmm *v)
{
	struct err e = { 0 };
	int r;

	if (!v->join.id || !v->machine.joins)
		return 0;
	/* A machine that is stopped cannot answer, so its silence is not counted. */
	v->carry.heard |= v->join.flags & VM_JOIN_STILL;
	r = machine_joined(&v->machine, &e);
	if (r == 0)
		return 0;
	r = end(v, r, &e);
	return r < 0 ? r : begin_all(v);
}
