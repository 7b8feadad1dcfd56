/*
 * How machines run: with KVM, or emulated. A trial of some instructions (linux/kvm.h) tells where KVM is not; where it is, but
 * this host is a machine itself, those run and a kernel may still hang, so there the first thing is a trial boot: the tier's own
 * kernel, in a jail as any machine's, until it says its first word. Who asked for a machine meanwhile waits. What came of it is
 * remembered for all wardens of this host (verdict.h).
 *
 * What a trial does not show, the first template does: one that does not come up with KVM is booted emulated, and when that
 * works it was KVM's fault. When neither works it was not, nor once a machine has come up with it, and KVM stays: nobody can
 * take it from others by asking for what cannot boot, or not in time.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "linux/kvm.h"
#include "vm/host/host.h"
#include "vm/host/verdict.h"

#define TRIAL_MEMORY (128 * MIB)
#define TRIAL_DISK (16 * MIB)
#define TRIAL_NS (9ULL * 1000000000ULL) /* looked at each second: at most ten */

static void settle(struct vms *v, enum vm_accel accel, const char *why)
{
	v->accel = accel;
	snprintf(v->accel_why, sizeof(v->accel_why), "%.159s", why);
	log_info("virtual machines %s: %s", accel == VM_KVM ? "run with KVM" : "are emulated", why);
}

static void remember(enum vm_accel accel, const char *why)
{
	struct vm_verdict v = { .kvm = accel == VM_KVM };
	struct err e = { 0 };

	snprintf(v.why, sizeof(v.why), "%.159s", why);
	if (vm_verdict_store(&v, &e) < 0)
		log_warn("cannot store whether KVM works: %s", e.msg);
}

/* What a machine has to have for an image. That there is nothing on it is the first thing that a trial's guest says. */
static int make_blank(struct vms *v, struct err *e)
{
	AUTO_CLOSE int fd = sys_openat(v->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char self[32];
	int r = fd < 0 ? fd : sys_ftruncate(fd, MIB);

	if (r == 0) {
		/* QEMU takes a descriptor only for just what it was opened for. */
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		r = v->blank.root = sys_openat(AT_FDCWD, self, O_RDONLY | O_CLOEXEC, 0);
	}
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make a disk for a trial") : 0;
}

static int start_trial(struct warden *w, struct err *e)
{
	AUTO_FREE struct sandbox_spec *spec = calloc(1, sizeof(*spec));
	struct warden_sandbox *s;
	int r;

	if (!spec)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	snprintf(spec->image, sizeof(spec->image), "host");
	spec->flags = SPEC_VM;
	spec->limits = (struct spec_limits){ .memory = TRIAL_MEMORY, .disk = TRIAL_DISK, .cpu_milli = 1000 };
	r = make_blank(w->vms, e);
	if (r == 0)
		r = vm_new_machine(w, spec, &s, e);
	if (r < 0)
		return r;
	s->vm->trial = true;
	s->vm->accel = VM_KVM;
	s->vm->picture = &w->vms->blank;
	r = vm_boot_cold(w, s->vm, e);
	if (r < 0) {
		sandbox_end(w, s, NULL);
		return r;
	}
	w->vms->trial = s->vm;
	log_info("testing whether a virtual machine boots with KVM");
	return 0;
}

/* Left to us, and KVM is there. */
static void decide_auto(struct warden *w, const struct kvm_trial *t, const struct vm_verdict *known)
{
	struct vms *v = w->vms;
	struct err e = { 0 };

	if (t->state != KVM_WORKS && t->state != KVM_NESTED) {
		settle(v, VM_TCG, t->why);
		/* Finding that out may have taken seconds. */
		if (t->state == KVM_FAILS)
			remember(VM_TCG, t->why);
	} else if (known || t->state == KVM_WORKS) {
		settle(v, VM_KVM, known ? known->why : t->why);
	} else if (start_trial(w, &e) < 0) {
		settle(v, VM_TCG, e.msg);
	}
}

int vm_accel_decide(struct warden *w, struct err *e)
{
	struct vms *v = w->vms;
	struct vm_verdict known;
	struct kvm_trial t;
	bool have;

	if (v->accel || v->trial)
		return 0;
	if (w->env.accel == ENV_ACCEL_TCG) {
		settle(v, VM_TCG, "vm_accel is tcg");
		return 0;
	}
	have = w->env.accel == ENV_ACCEL_AUTO && vm_verdict_load(&known) == 0;
	if (have && !known.kvm) {
		settle(v, VM_TCG, known.why);
		return 0;
	}
	kvm_try(&t);
	if (w->env.accel == ENV_ACCEL_AUTO) {
		decide_auto(w, &t, have ? &known : NULL);
		return 0;
	}
	if (t.state == KVM_WORKS || t.state == KVM_NESTED) {
		settle(v, VM_KVM, "vm_accel is kvm");
		return 0;
	}
	/* Not remembered: who mends it need not start us again. */
	err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "vm_accel is kvm, but %s", t.why);
	err_remedy(e, "%s; or set vm_accel to auto or tcg", t.remedy);
	return -EOPNOTSUPP;
}

uint64_t vm_accel_patience(const struct warden *w, const struct machine *m, uint64_t ns)
{
	if (m->trial)
		return TRIAL_NS;
	return m->accel == VM_KVM && w->env.accel == ENV_ACCEL_AUTO ? ns / 4 : ns;
}

void vm_accel_tried(struct warden *w, struct machine *m, int r, const struct err *e)
{
	const bool ran = m->stage == VM_LOADS || m->stage == VM_STANDS;
	struct vms *v = w->vms;
	struct machine *next;
	char why[160];

	if (r == 0)
		snprintf(why, sizeof(why), "a virtual machine boots with it");
	else if (r == -ETIMEDOUT)
		snprintf(why, sizeof(why),
			 "this host is itself a virtual machine with KVM, but a kernel did not boot with it in %llu s",
			 TRIAL_NS / 1000000000ULL);
	else
		snprintf(why, sizeof(why), "KVM exists, but no virtual machine boots with it: %.100s", e->msg);
	v->trial = NULL;
	sandbox_end(w, m->sandbox, NULL);
	fd_close(TAKE_FD(v->blank.root));
	settle(v, r == 0 ? VM_KVM : VM_TCG, why);
	/* What could not even be started says nothing of KVM. */
	if (ran)
		remember(v->accel, why);
	for (m = v->machines; m; m = next) {
		struct err bad = { 0 };

		next = m->next;
		if (m->stage != VM_TRIES || m->finished)
			continue;
		r = vm_begin(w, m, &bad);
		if (r < 0)
			vm_fail(w, m, r, &bad);
	}
	vm_tick(v);
}

int vm_accel_fits(const struct warden *w, enum vm_accel accel, struct err *e)
{
	const struct vms *v = w->vms;

	if (accel != VM_KVM || v->accel == VM_KVM)
		return 0;
	err_set(e, ERR_REFUSED, -ESTALE, "of a virtual machine that ran with KVM, which is not used here: %s",
		v->accel_why);
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
			log_warn("a virtual machine did not start with KVM; trying without: %s", e->msg);
		some = true;
		snprintf(w->vms->no_kvm, sizeof(w->vms->no_kvm), "no machine started with KVM: %.120s",
			 e->msg);
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

void vm_accel_ran(struct warden *w, const struct machine *m)
{
	w->vms->kvm_ran = w->vms->kvm_ran || m->accel == VM_KVM;
}

void vm_accel_blame(struct warden *w, const struct vm_template *t)
{
	struct vms *v = w->vms;

	if (!t->instead || v->accel == VM_TCG)
		return;
	/* Whoever keeps this host busy just while a template boots could take it from all others, and their checkpoints with it. */
	if (v->kvm_ran) {
		log_warn("KVM remains in use, since other virtual machines run with it: %s", v->no_kvm);
		return;
	}
	log_warn("KVM is no longer used: %s", v->no_kvm);
	settle(v, VM_TCG, v->no_kvm);
	remember(VM_TCG, v->no_kvm);
}

int warden_accel(struct warden *w, enum warden_accel_ask ask, bool *ret_kvm, char *why, size_t size, struct err *e)
{
	int r = 0;

	if (ask == WARDEN_ACCEL_TRY) {
		r = vm_ready(e);
		if (r == 0)
			r = vm_open(w, e);
		if (r == 0)
			r = vm_accel_decide(w, e);
	}
	if (r < 0)
		return r;
	if (!w->vms || !w->vms->accel)
		return -EAGAIN;
	*ret_kvm = w->vms->accel == VM_KVM;
	snprintf(why, size, "%s", w->vms->accel_why);
	return 0;
}
