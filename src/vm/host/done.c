/*
 * Events that machines in the making wait for: workers, cloche-vmm, the clock. Callers are notified when their machine
 * is ready or has failed.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "vm/host/host.h"

#include <sys/epoll.h>
#include <unistd.h>

#define SECOND 1000000000ULL
#define BOOT_NS (120 * SECOND)
#define STAND_NS (300 * SECOND) /* how long a prebuilt machine is kept */
#define SWEEP_NS (3600 * SECOND)
#define UNASKED_MAX 16U /* late answers that are ignored: those to a save that took too long */
#define AT_ONCE 64U

static void picture_worked(struct warden *w, struct vm_work *x)
{
	struct vm_picture *p = x->picture;
	struct machine *next;

	if (!p) {
		vm_work_free(x);
		return;
	}
	p->work = NULL;
	p->looked = x->made.result < 0 ? 0 : clock_mono_ns();
	if (x->made.result == 0) {
		fd_close(p->root);
		fd_close(p->usr);
		p->root = TAKE_FD(x->fd[VM_FILE_ROOT]);
		p->usr = TAKE_FD(x->fd[VM_FILE_USR]);
		if (!p->layered)
			memcpy(p->root_id, x->made.root_id, sizeof(p->root_id));
		memcpy(p->usr_id, x->made.usr_id, sizeof(p->usr_id));
	}
	for (struct machine *m = w->vms->machines; m; m = next) {
		struct err e = x->made.e;
		int r = x->made.result;

		next = m->next;
		if (m->picture != p || m->stage != VM_LOOKS || m->finished)
			continue;
		if (r == 0)
			r = vm_looked(w, m, &e);
		if (r < 0)
			vm_give_up(w, m, r, &e);
	}
	vm_work_free(x);
}

static void machine_worked(struct warden *w, struct vm_work *x)
{
	struct machine *m = x->machine;
	struct err e = x->made.e;
	int r = x->made.result;

	if (!m) {
		vm_work_free(x);
		return;
	}
	m->work = NULL;
	if (r == 0 && x->task == VM_FLATTEN) {
		const struct warden_sandbox *s = m->sandbox;

		m->ram = sys_fcntl(x->fd[VM_FILE_RAM], F_DUPFD_CLOEXEC, 3);
		if (m->ram < 0)
			r = err_sys(&e, ERR_EXHAUSTED, m->ram, "open the memory of a virtual machine");
		else if (vm_flat_find(w->vms, s->layer[s->layers - 1]) < 0)
			vm_flat_put(w->vms, s->layer[s->layers - 1], TAKE_FD(x->fd[VM_FILE_RAM]));
		if (r == 0)
			vm_go_on(w, m);
	} else if (r == 0) {
		r = vm_jail(w, m, &e);
		if (r == 0)
			r = vm_start_template(w, m, x, &e);
		if (r == 0)
			vm_loads(w, m, vm_accel_patience(w, m, BOOT_NS));
	}
	vm_work_free(x);
	if (r < 0)
		vm_give_up(w, m, r, &e);
}

void vm_worked(struct warden *w, struct work *work)
{
	struct vm_work *x = (struct vm_work *)(void *)work;

	if (x->picture || x->task == VM_PICTURE)
		picture_worked(w, x);
	else if (x->task == VM_FLATTEN || (x->task == VM_NEW && !x->given.template_wanted))
		machine_worked(w, x);
	else
		vm_template_worked(w, x);
	vm_tick(w->vms);
}

static void up(struct warden *w, struct machine *m, const struct vm_up *x)
{
	struct warden_sandbox *s = m->sandbox;
	struct err e = { 0 };
	int r = 0;

	if (s->blank.recorded) {
		r = records_flag(&w->env.records, s->blank.slot, 0);
		/* The jail's agent only keeps the jail alive: its messages are not needed any more. */
		fd_close(TAKE_FD(s->blank.sock));
	}
	if (r < 0) {
		vm_give_up(w, m, err_sys(&e, ERR_INTERNAL, r, "write the sandbox's record"), &e);
		return;
	}
	s->receipt.landlock_abi = x->landlock;
	s->receipt.kvm = m->accel == VM_KVM;
	s->receipt.uid_base = 0; /* no uid of the host is mapped inside */
	s->receipt.disk = m->spec.limits.disk;
	s->receipt.inodes = m->spec.limits.inodes;
	if (s->flags & SPEC_MEMORY) {
		s->receipt.restored = (x->restored & 7U) | WARDEN_RESTORED;
		m->group = 1U << 16; /* restored execs use the lower numbers */
	}
	m->stage = VM_RUNS;
	m->finished = true;
	m->result = 0;
	vm_tick(w->vms);
}

/*
 * The kind of an error that cloche-vmm reported: wrong versions, missing resources of this host, or a broken machine.
 */
static enum err_kind kind_of(int errnum, const char *text)
{
	switch (errnum) {
	case ESTALE:
	case EINVAL:
		return ERR_REFUSED;
	case ENOMEM:
	case ENOSPC:
	case EDQUOT:
	case EMFILE:
		return ERR_EXHAUSTED;
	case ETIMEDOUT:
		return ERR_TIMEOUT;
	case ECANCELED: /* the guest itself reported an error */
		return ERR_UNSUPPORTED;
	default:
		return strstr(text, "/qemu-system") ? ERR_UNSUPPORTED : ERR_LOST;
	}
}

static void failed(struct warden *w, struct machine *m, const struct vm_failed *x)
{
	struct err e = { 0 };
	char text[sizeof(x->text) + 1];

	snprintf(text, sizeof(text), "%.*s", (int)sizeof(x->text), x->text);
	err_clean(text);
	/* The guest's own message is all that a trial needs: there is no image to mount. */
	if (m->trial && m->stage == VM_LOADS && x->errnum == ECANCELED) {
		vm_accel_tried(w, m, 0, NULL);
		return;
	}
	err_set(&e, kind_of(x->errnum, text), x->errnum > 0 && x->errnum < 4096 ? -x->errnum : -EIO,
		"the virtual machine did not start: %.200s", text);
	if (strstr(text, "/qemu-system"))
		err_remedy(&e, "install QEMU: qemu-system-x86 or qemu-system-arm");
	vm_give_up(w, m, -EIO, &e);
}

/* Handles the end of cloche-vmm, which is the end of the machine. */
static void gone(struct warden *w, struct machine *m)
{
	struct err e = { 0 };
	int r;

	epoll_ctl(w->vms->epoll, EPOLL_CTL_DEL, m->side, NULL);
	m->dead = true;
	if (m->stage == VM_RUNS) {
		char said[160];

		vm_last_words(m, said, sizeof(said));
		log_warn("slot %u: its virtual machine has ended: %s", m->sandbox->blank.slot,
			 said[0] ? said : "no reason given");
		/* Nothing in the jail is needed any more. The holder of the pidfd is notified. */
		sys_pidfd_send_signal(m->sandbox->blank.pidfd, SIGKILL);
		return;
	}
	r = err_set(&e, ERR_LOST, -EPIPE, "the virtual machine ended before it was ready");
	r = vm_explain(m, r, &e);
	vm_give_up(w, m, r, &e);
}

static void listen_to(struct warden *w, struct machine *m)
{
	struct vm_msg in;
	size_t nfds = 0;
	ssize_t n;

	if (m->saving)
		return;
	memset(&in, 0, sizeof(in));
	n = fd_recv(m->side, &in, sizeof(in), NULL, 0, &nfds);
	if (n == -EAGAIN || n == -EINTR)
		return;
	if (n != (ssize_t)sizeof(in) || in.version != VM_SIDE_VERSION) {
		gone(w, m);
		return;
	}
	if (in.type == VM_LOADED && m->stage == VM_LOADS && m->trial) {
		vm_accel_tried(w, m, 0, NULL);
	} else if (in.type == VM_LOADED && m->stage == VM_LOADS && m->role != VM_TEMPLATE) {
		m->stage = VM_STANDS;
		m->until = clock_mono_ns() + STAND_NS;
		if (m->wanted)
			vm_let_go(w, m);
	} else if (in.type == VM_TEMPLATED && m->stage == VM_LOADS && m->role == VM_TEMPLATE) {
		vm_template_booted(w, m->template, m);
	} else if (in.type == VM_UP && m->stage == VM_GOES) {
		w->vms->kvm_ran |= m->accel == VM_KVM;
		up(w, m, &in.up);
	} else if (in.type == VM_FAILED && m->stage != VM_RUNS) {
		failed(w, m, &in.failed);
	} else if (m->stage != VM_RUNS || ++m->unasked > UNASKED_MAX) {
		/* A cloche-vmm that sends without end must not delay all others. */
		gone(w, m);
	}
}

static void look_at_clock(struct warden *w)
{
	const uint64_t now = clock_mono_ns();
	struct vms *v = w->vms;
	struct machine *next;
	uint64_t n;

	if (read(v->timer, &n, sizeof(n)) < 0)
		return;
	for (struct machine *m = v->machines; m; m = next) {
		struct err e = { 0 };
		int r;

		next = m->next;
		if (m->finished || !m->until || now < m->until || m->stage == VM_RUNS)
			continue;
		if (m->stage == VM_STANDS) {
			sandbox_end(w, m->sandbox, NULL);
			continue;
		}
		r = err_advise(&e, ERR_TIMEOUT, -ETIMEDOUT,
			       "try again when this host is less busy, or give it more CPUs",
			       "the virtual machine was not ready in time");
		r = vm_explain(m, r, &e);
		vm_give_up(w, m, r, &e);
		next = v->machines; /* more than one machine may have been removed */
	}
	vm_templates_idle(v, now);
	vm_flats_idle(v, now);
	if (now > v->swept + SWEEP_NS) {
		v->swept = now;
		vm_store_sweep(w);
	}
	vm_tick(v);
}

bool vm_done(struct warden *w, struct warden_done *ret)
{
	struct epoll_event ev;
	struct vms *v = w->vms;

	if (!v)
		return false;
	look_at_clock(w);
	/*
	 * One event at a time, since handling it may free another machine. After AT_ONCE events other work gets its
	 * turn: one machine may send without end.
	 */
	for (unsigned i = 0; i < AT_ONCE && epoll_wait(v->epoll, &ev, 1, 0) == 1 && ev.data.ptr; i++)
		listen_to(w, ev.data.ptr);
	for (struct machine *m = v->machines; m; m = m->next) {
		struct warden_sandbox *s = m->sandbox;

		if (!m->finished)
			continue;
		*ret = (struct warden_done){
			.what = WARDEN_DONE_RESTORED, .tag = m->tag, .result = m->result, .e = m->e
		};
		m->finished = m->wanted = false;
		if (m->result < 0) {
			sandbox_end(w, s, NULL);
		} else {
			ret->sandbox = s;
			ret->restored.done = s->receipt.restored & ~WARDEN_RESTORED;
			sandbox_show(w, s);
			vm_keep_ready(w, m);
		}
		vm_tick(v);
		return true;
	}
	return false;
}
