/*
 * What only programs with a warden of their own ask: whether KVM works here, and what a machine in the making waits for. The
 * first one of an image, or of its kind, takes long.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "vm/host/host.h"

static enum vm_step step_of(const struct vm_work *x, uint64_t *bytes)
{
	*bytes = x ? __atomic_load_n(&x->pace.bytes, __ATOMIC_RELAXED) : 0;
	return x ? (enum vm_step)__atomic_load_n(&x->pace.step, __ATOMIC_RELAXED) : VM_STEP_NONE;
}

static void say_image(const struct vm_picture *p, char *ret, size_t size)
{
	uint64_t bytes;

	switch (step_of(p->work, &bytes)) {
	case VM_STEP_OTHER:
		snprintf(ret, size, "image '%.80s': another process is making a disk image of it", p->path);
		break;
	case VM_STEP_MKFS:
		snprintf(ret, size, "image '%.80s': making a disk image of it, once: %llu MB", p->path,
			 (unsigned long long)(bytes / 1000000));
		break;
	case VM_STEP_NONE:
	case VM_STEP_WALK:
	case VM_STEP_DISK:
		snprintf(ret, size, "image '%.80s': checking it for changes", p->path);
		break;
	}
}

static void say_template(const struct vm_template *t, char *ret, size_t size)
{
	uint64_t bytes;

	switch (t->state) {
	case VM_T_BOOTS:
		if (step_of(t->work, &bytes) == VM_STEP_OTHER)
			snprintf(ret, size, "another process is booting a virtual machine of this kind");
		else
			snprintf(ret, size, "booting the first virtual machine of this kind, once");
		break;
	case VM_T_KEEPS:
		snprintf(ret, size, "saving the virtual machine for all later ones of its kind");
		break;
	case VM_T_LOOKS:
	case VM_T_READY:
		snprintf(ret, size, "reading a virtual machine of this kind from disk");
		break;
	}
}

void vm_doing(const struct machine *m, char *ret, size_t size)
{
	switch (m->stage) {
	case VM_LOOKS:
		say_image(m->picture, ret, size);
		break;
	case VM_TRIES:
		snprintf(ret, size, "testing whether a virtual machine boots with KVM here, once");
		break;
	case VM_WAITS:
		say_template(m->template, ret, size);
		break;
	case VM_FLATTENS:
		snprintf(ret, size, "preparing the virtual machine's memory");
		break;
	case VM_FORMATS:
	case VM_LOADS:
	case VM_STANDS:
	case VM_GOES:
	case VM_RUNS:
		snprintf(ret, size, "starting the virtual machine");
		break;
	}
}

void warden_doing(struct warden *w, char *ret, size_t size)
{
	ret[0] = '\0';
	for (const struct machine *m = w->vms ? w->vms->machines : NULL; m; m = m->next)
		if (m->wanted && !m->finished) {
			vm_doing(m, ret, size);
			return;
		}
}

int warden_accel_try(struct warden *w, bool *ret_kvm, char *why, size_t size, struct err *e)
{
	int r = vm_ready(e);

	if (r == 0)
		r = vm_open(w, e);
	if (r == 0)
		r = vm_accel_decide(w, e);
	return r < 0 ? r : warden_accel(w, ret_kvm, why, size);
}
