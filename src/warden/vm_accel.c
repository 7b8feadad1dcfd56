/*
 * How machines run: with KVM, or emulated. Decided once, by a trial (linux/kvm.h); what a trial of some instructions does not
 * show, the first template does: one that does not come up with KVM is booted emulated, and when that works it was KVM's
 * fault. When neither works it was not, and KVM stays: nobody can take it from others by asking for what can not boot.
 */
#include "warden/inside.h"
#include "base/base.h"
#include "base/log.h"
#include "linux/kvm.h"
#include "warden/vm.h"

int vm_accel_decide(struct warden *w, struct err *e)
{
	struct vms *v = w->vms;
	struct kvm_trial t;

	if (v->accel)
		return 0;
	if (w->env.accel == ENV_ACCEL_TCG) {
		v->accel = VM_TCG;
		snprintf(v->no_kvm, sizeof(v->no_kvm), "vm_accel is tcg");
		return 0;
	}
	kvm_try(&t);
	if (t.state == KVM_WORKS || (t.state == KVM_NESTED && w->env.accel == ENV_ACCEL_KVM)) {
		v->accel = VM_KVM;
		log_info("machines run with KVM");
		return 0;
	}
	if (w->env.accel == ENV_ACCEL_KVM) {
		/* Not remembered: who mends it need not start us again. */
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "vm_accel is kvm, but %s", t.why);
		err_remedy(e, "%s; or set vm_accel to auto or tcg", t.remedy);
		return -EOPNOTSUPP;
	}
	v->accel = VM_TCG;
	snprintf(v->no_kvm, sizeof(v->no_kvm), "%s", t.why);
	log_info("machines are emulated: %s", t.why);
	return 0;
}

int vm_accel_fits(const struct warden *w, enum vm_accel accel, struct err *e)
{
	const struct vms *v = w->vms;

	if (accel != VM_KVM || v->accel == VM_KVM)
		return 0;
	err_set(e, ERR_REFUSED, -ESTALE, "of a machine that ran with KVM, which is not used here: %s", v->no_kvm);
	err_remedy(e, "restore it where KVM works: see `cloche doctor`");
	return -ESTALE;
}

void vm_accel_instead(struct warden *w, struct vm_template *t, const struct err *e)
{
	struct machine *next;
	bool some = false;

	if (w->env.accel != ENV_ACCEL_AUTO)
		return;
	for (struct machine *m = w->vms->machines; m; m = next) {
		struct err why = { 0 };
		int r;

		next = m->next;
		if (m->template != t || m->stage != VM_WAITS || m->sandbox->layers || m->accel != VM_KVM || m->finished)
			continue;
		if (!some)
			log_warn("a machine did not come up with KVM, and is tried without: %s", e->msg);
		some = true;
		snprintf(w->vms->no_kvm, sizeof(w->vms->no_kvm), "with it a machine did not come up: %.200s", e->msg);
		vm_template_drop(t);
		m->template = NULL;
		m->accel = VM_TCG;
		m->instead = true;
		/* It may be another machine's from here on. */
		r = vm_looked(w, m, &why);
		if (r < 0)
			vm_fail(w, m, r, &why);
	}
}

void vm_accel_blame(struct warden *w, const struct vm_template *t)
{
	if (!t->instead || w->vms->accel == VM_TCG)
		return;
	w->vms->accel = VM_TCG;
	log_warn("machines are emulated from now on; KVM is not used: %s", w->vms->no_kvm);
}
