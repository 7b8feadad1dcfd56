/*
 * A machine's state, saved while it is stopped: QEMU's devices, its own pages, the port. What was written to its disk
 * so far stays below; later writes go into a new file. Only the last step cannot fail, so a machine whose save failed
 * still has the disks it had.
 */
#include "base/base.h"
#include "base/clock.h"
#include "vm/vmm/pages.h"
#include "vm/vmm/vmm.h"

#define QUIET_NS (20ULL * 1000000000ULL) /* time for the guest to become quiet */
#define TEMPLATE_NS (100ULL * 1000000000ULL)

static void close_save(struct vmm *v)
{
	fd_close_many(v->save, ARRAY_LEN(v->save));
}

static void stop_at(struct vmm *v, uint64_t ns)
{
	v->since = clock_mono_ns();
	v->until = v->since + ns;
	v->state = VMM_STOPS;
}

int vmm_save(struct vmm *v, const struct vm_save *s, int *fds, size_t nfds)
{
	int r;

	if (nfds != VMM_SAVE_FDS)
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "SAVE came with %zu descriptors", nfds);
	if ((v->state != VMM_RUNS && v->state != VMM_STAYS) || v->start.role != VM_CLONE || s->flags & ~VM_SAVE_STAY)
		return err_set(&v->e, ERR_CONFLICT, -EBUSY, "the virtual machine cannot be saved in its present state");
	/* The new disk is prepared while the machine runs. */
	r = machine_overlay(&v->machine, s->disk, fds[VMM_SAVE_DISK], &v->e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < VMM_SAVE_FDS; i++)
		v->save[i] = TAKE_FD(fds[i]);
	r = v->state == VMM_STAYS ? 0 : carry_quiesce(&v->carry);
	if (r < 0) {
		machine_overlay_drop(&v->machine);
		close_save(v);
		return err_sys(&v->e, ERR_CONFLICT, r, "stop the virtual machine");
	}
	v->save_id = s->id;
	v->stay = s->flags & VM_SAVE_STAY;
	stop_at(v, QUIET_NS);
	return 0;
}

int vmm_save_template(struct vmm *v)
{
	int r = carry_quiesce(&v->carry);

	if (r < 0)
		return err_sys(&v->e, ERR_INTERNAL, r, "stop the virtual machine");
	stop_at(v, TEMPLATE_NS);
	return 0;
}

int vmm_save_wait(const struct vmm *v)
{
	uint64_t now = clock_mono_ns();

	if (v->state != VMM_STOPS && v->state != VMM_WARMS)
		return -1;
	/* If the machine was stopped already, no event would wake this loop. */
	if (v->state == VMM_STOPS && carry_quiet(&v->carry))
		return 0;
	return now >= v->until ? 0 : (int)((v->until - now) / 1000000ULL) + 1;
}

/* Writes the state, without memory and disk, to @fd. */
static int write_meta(struct vmm *v, int fd)
{
	AUTO_FREE uint8_t *state = NULL, *carry = NULL;
	struct vm_meta m = v->was;
	size_t state_len = 0, carry_len = 0;
	int r = machine_state(&v->machine, &state, &state_len, &v->e);

	if (r < 0)
		return r;
	r = kept_save(v->kept, META_CARRY_MAX, &carry, &carry_len);
	if (r < 0)
		return err_sys(&v->e, ERR_EXHAUSTED, r, "save the virtual machine's port");
	m.state_len = state_len;
	m.carry_len = carry_len;
	m.epoch = v->carry.epoch;
	return meta_save(fd, &m, carry, state, &v->e);
}

static int finish_template(struct vmm *v)
{
	int r = machine_stop(&v->machine, &v->e);

	if (r == 0)
		r = write_meta(v, v->meta);
	if (r == 0 && machine_end(&v->machine) < 0)
		r = err_set(&v->e, ERR_LOST, -EIO, "QEMU failed when it ended");
	if (r < 0)
		return r;
	v->state = VMM_ENDED;
	vmm_say(&(struct vm_msg){ .type = VM_TEMPLATED });
	return 0;
}

static int take(struct vmm *v, uint64_t *ret_pages)
{
	const struct qemu_opts *o = &v->machine.opts;
	int r = machine_stop(&v->machine, &v->e);

	if (r == 0)
		r = write_meta(v, v->save[VMM_SAVE_META]);
	if (r == 0)
		r = pages_write(v->machine.pid, o->ram, o->memory_mib * MIB, v->save[VMM_SAVE_PAGES], ret_pages, &v->e);
	if (r == 0)
		r = machine_overlay_switch(&v->machine, &v->e);
	return r;
}

/* Lets the machine run again, saved or not; with STAY it remains stopped. */
static int go_on(struct vmm *v, int saved, uint64_t pages)
{
	struct vm_msg m = { .type = VM_SAVED, .saved = { .id = v->save_id, .pages = pages } };
	const bool stays = v->stay && carry_quiet(&v->carry) > 0 && v->machine.qmp.stopped;
	struct err e = { 0 };
	int r = stays ? 0 : machine_go(&v->machine, &e);

	if (r == 0 && saved < 0)
		machine_overlay_drop(&v->machine);
	if (r == 0 && !stays)
		r = carry_go_on(&v->carry);
	m.saved.pause_ns = clock_mono_ns() - v->since;
	close_save(v);
	v->state = stays ? VMM_STAYS : VMM_RUNS;
	if (r < 0)
		return err_set(&v->e, ERR_LOST, r, "the virtual machine does not continue after its checkpoint");
	if (saved < 0)
		vmm_say_failed(v->save_id, &v->e);
	else
		vmm_say(&m);
	v->e = (struct err){ 0 };
	return 0;
}

int vmm_go_on(struct vmm *v)
{
	int r;

	v->stay = false;
	if (v->state != VMM_STAYS)
		return 0;
	r = machine_go(&v->machine, &v->e);
	if (r < 0)
		return r;
	v->state = VMM_RUNS;
	r = carry_go_on(&v->carry);
	return r < 0 ? err_set(&v->e, ERR_LOST, r, "the virtual machine does not continue after its checkpoint") : 0;
}

int vmm_save_turn(struct vmm *v)
{
	uint64_t pages = 0;
	int r;

	if (v->state != VMM_STOPS)
		return 0;
	r = carry_quiet(&v->carry);
	if (r == 0 && clock_mono_ns() >= v->until)
		r = -ETIMEDOUT;
	if (r == 0)
		return 0;
	if (r < 0)
		err_sys(&v->e, ERR_TIMEOUT, r, "the guest does not stop");
	if (v->start.role == VM_TEMPLATE)
		return r < 0 ? r : finish_template(v);
	if (r > 0)
		r = take(v, &pages);
	return go_on(v, r, pages);
}
