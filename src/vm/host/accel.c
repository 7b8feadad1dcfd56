/*
 * Decides whether machines run with KVM or emulated. A trial of some instructions (linux/kvm.h) shows whether KVM is
 * missing. On a host that is a virtual machine itself these may work and a kernel may still hang, so there a trial boot
 * comes first: the tier's own kernel, in a jail like any machine's, until its first message. Machines that are
 * requested meanwhile wait. The result is remembered for all wardens of this host (verdict.h).
 *
 * What a trial does not show, the first template does: one that does not come up with KVM is booted emulated, and when
 * that works KVM is to blame. When neither works it is not, nor once any machine has come up with KVM, and KVM stays:
 * so a tenant cannot take it from others by requesting machines that cannot boot, or not in time.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "linux/kvm.h"
#include "vm/host/host.h"
#include "vm/host/tier.h"

#define TRIAL_MEMORY (128 * MIB)
#define TRIAL_DISK (16 * MIB)
#define TRIAL_NS (9ULL * 1000000000ULL) /* a trial takes at most ten seconds, since it is checked once a second */

static void settle(struct vms *v, enum vm_accel accel, const char *why)
{
	v->accel = accel;
	snprintf(v->accel_why, sizeof(v->accel_why), "%.159s", why);
	log_info("virtual machines %s: %s", accel == VM_KVM ? "run with KVM" : "are emulated", why);
}

/* A process of cloche-vm-files writes the file (verdict.h), and logs why it cannot. */
static void remember(enum vm_accel accel, const char *why)
{
	struct vm_work *x = vm_work_new(VM_REMEMBER, NULL);

	if (!x)
		return;
	x->made.found = accel == VM_KVM;
	snprintf(x->given.path, sizeof(x->given.path), "%s", why);
	vm_work_do(x);
	vm_work_free(x);
}

/* Makes an empty image, as a machine needs one. A trial's guest first reports that nothing is on it. */
static int make_blank(struct vms *v, struct err *e)
{
	AUTO_CLOSE int fd = sys_openat(v->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char self[32];
	int r = fd < 0 ? fd : sys_ftruncate(fd, MIB);

	if (r == 0) {
		/* QEMU accepts a descriptor only if it was opened with exactly the access mode that it needs. */
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
	spec->flags = vm_tier.flag;
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

/* Decides where the configuration leaves it to the warden (vm_accel is auto). */
static void decide_auto(struct warden *w, const struct kvm_trial *t, const char *known)
{
	struct vms *v = w->vms;
	struct err e = { 0 };

	if (t->state != KVM_WORKS && t->state != KVM_NESTED) {
		settle(v, VM_TCG, t->why);
		/* The instructions may have taken seconds, so the result is stored. */
		if (t->state == KVM_FAILS)
			remember(VM_TCG, t->why);
	} else if (known || t->state == KVM_WORKS) {
		settle(v, VM_KVM, known ? known : t->why);
	} else if (start_trial(w, &e) < 0) {
		settle(v, VM_TCG, e.msg);
	}
}

int vm_accel_decide(struct warden *w, struct err *e)
{
	struct vms *v = w->vms;
	struct vm_work *known;
	struct kvm_trial t;
	int r;

	if (v->accel || v->trial)
		return 0;
	if (w->env.accel == ENV_ACCEL_TCG) {
		settle(v, VM_TCG, "vm_accel is tcg");
		return 0;
	}
	if (w->env.accel == ENV_ACCEL_AUTO) {
		known = vm_work_new(VM_KNOWN, e);
		if (!known)
			return -ENOMEM;
		r = vm_work_do(known);
		if (r == 0 && !known->made.found) {
			settle(v, VM_TCG, known->made.e.msg);
		} else {
			kvm_try(&t);
			decide_auto(w, &t, r == 0 ? known->made.e.msg : NULL);
		}
		vm_work_free(known);
		return 0;
	}
	kvm_try(&t);
	if (t.state == KVM_WORKS || t.state == KVM_NESTED) {
		settle(v, VM_KVM, "vm_accel is kvm");
		return 0;
	}
	/* Not remembered, so that a repair takes effect without a restart. */
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
	/* If QEMU could not even be started, that says nothing about KVM. */
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
	return err_advise(e, WHY_MADE_ELSEWHERE, -ESTALE, "restore it where KVM works: see `cloche doctor`",
			  "of a virtual machine that ran with KVM, which is not used here: %s", v->accel_why);
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
		if (m->template != t || m->stage != VM_WAITS || vm_disks(m->sandbox) || m->accel != VM_KVM ||
		    m->finished)
			continue;
		if (!some)
			log_warn("a virtual machine did not start with KVM; trying without: %s", e->msg);
		some = true;
		snprintf(w->vms->no_kvm, sizeof(w->vms->no_kvm), "no machine started with KVM: %.120s", e->msg);
		vm_template_drop(t);
		m->template = NULL;
		m->accel = VM_TCG;
		m->instead = true;
		/* @x may be another machine's after this call. */
		r = vm_looked(w, m, &why);
		if (r < 0)
			vm_fail(w, m, r, &why);
	}
}

void vm_accel_blame(struct warden *w, const struct vm_template *t)
{
	struct vms *v = w->vms;

	if (!t->instead || v->accel == VM_TCG)
		return;
	/*
	 * Otherwise a tenant that keeps this host busy while a template boots could take KVM from all others, and their
	 * checkpoints with it.
	 */
	if (v->kvm_ran) {
		log_warn("KVM remains in use, since other virtual machines run with it: %s", v->no_kvm);
		return;
	}
	log_warn("KVM is no longer used: %s", v->no_kvm);
	settle(v, VM_TCG, v->no_kvm);
	remember(VM_TCG, v->no_kvm);
}

int warden_accel(struct warden *w, bool *ret_kvm, char *why, size_t size)
{
	if (!w->vms || !w->vms->accel)
		return -EAGAIN;
	*ret_kvm = w->vms->accel == VM_KVM;
	snprintf(why, size, "%s", w->vms->accel_why);
	return 0;
}
