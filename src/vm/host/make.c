/*
 * How a virtual machine is made: its image is checked, its template is found or booted, the memory of its layers is
 * assembled, a clone is started in a jail and gets its identity, and then it is handed out. Each step starts when what
 * it waits for is done; any failure ends the machine and is reported to the caller.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/sys.h"
#include "vm/host/files.h"
#include "vm/host/host.h"
#include "vm/host/tier.h"
#include "vm/vmm/meta.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SECOND 1000000000ULL
#define BOOT_NS (120 * SECOND)
#define CLONE_NS (30 * SECOND)
#define LOOKED_NS (60 * SECOND) /* how long a check of an image is valid, */
#define AGAIN_NS (20 * SECOND) /* and after which it is repeated in the background */
#define READY_KINDS 4U /* kinds of machines that are kept prebuilt for one tenant */
#define SELDOM 15 /* seconds between ticks */

static void picture_clear(struct vms *v, struct vm_picture *p)
{
	for (struct machine *m = v->machines; m; m = m->next)
		m->picture = m->picture == p ? NULL : m->picture;
	fd_close(p->root);
	fd_close(p->usr);
	*p = (struct vm_picture){ .root = -1, .usr = -1 };
}

int vm_open(struct warden *w, struct err *e)
{
	struct epoll_event in = { .events = EPOLLIN };
	struct vms *v;
	int r;

	if (w->vms)
		return 0;
	r = sandbox_workers(w, e);
	if (r < 0)
		return r;
	v = calloc(1, sizeof(*v));
	if (!v)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for machines");
	for (unsigned i = 0; i < VM_FLATS; i++)
		v->flat[i].ram = -1;
	for (unsigned i = 0; i < VM_PICTURES; i++)
		v->picture[i].root = v->picture[i].usr = -1;
	v->blank.root = v->blank.usr = -1;
	v->epoll = epoll_create1(EPOLL_CLOEXEC);
	v->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	v->dir = vm_store_open(w->env.vm, v->path, sizeof(v->path), e);
	v->cold = getenv("CLOCHE_VM_COLD") != NULL;
	r = v->dir < 0 ? v->dir : 0;
	if (r == 0 && (v->epoll < 0 || v->timer < 0 || epoll_ctl(v->epoll, EPOLL_CTL_ADD, v->timer, &in) < 0 ||
		       epoll_ctl(w->done, EPOLL_CTL_ADD, v->epoll, &in) < 0))
		r = err_sys(e, ERR_EXHAUSTED, -errno, "wait for virtual machines");
	w->vms = v;
	if (r < 0) {
		vm_free(w);
		return r;
	}
	return 0;
}

void vm_first_sweep(struct warden *w)
{
	if (w->vms->swept)
		return;
	w->vms->swept = clock_mono_ns();
	vm_store_sweep(w);
}

void vm_free(struct warden *w)
{
	struct vms *v = w->vms;

	if (!v)
		return;
	for (unsigned i = 0; i < VM_PICTURES; i++)
		picture_clear(v, &v->picture[i]);
	for (unsigned i = 0; i < VM_FLATS; i++)
		fd_close(v->flat[i].ram);
	fd_close_many((int[]){ v->blank.root, v->dir, v->epoll, v->timer }, 4);
	free(v);
	w->vms = NULL;
}

/* Ticks every second while a machine is in the making, else seldom; at once when there is a result to report. */
void vm_tick(struct vms *v)
{
	struct itimerspec t = { .it_interval.tv_sec = v->templates || v->machines ? SELDOM : 0 };
	bool told = false;

	for (const struct machine *m = v->machines; m; m = m->next) {
		if (m->stage != VM_RUNS && m->stage != VM_STANDS)
			t.it_interval.tv_sec = 1;
		told = told || m->finished;
	}
	t.it_value = told ? (struct timespec){ .tv_nsec = 1 } : t.it_interval;
	timerfd_settime(v->timer, 0, &t, NULL);
}

void vm_leave(struct warden *w, struct warden_sandbox *s)
{
	struct machine *m = TAKE_PTR(s->vm);

	if (!m)
		return;
	if (m->prev)
		LIST_REMOVE(m);
	if (m->work)
		m->work->machine = NULL;
	if (m->side >= 0 && w->vms)
		epoll_ctl(w->vms->epoll, EPOLL_CTL_DEL, m->side, NULL);
	/* A persistent machine continues without the warden, and needs its disks. */
	if (!s->blank.recorded || m->ends)
		vm_own_remove_all(w, m);
	vm_template_drop(m->template);
	vm_machine_free(m);
}

void vm_close(struct warden *w)
{
	struct machine *next;

	if (!w->vms)
		return;
	for (struct machine *m = w->vms->machines; m; m = next) {
		next = m->next;
		if (m->stage == VM_RUNS && !m->finished)
			continue;
		for (struct vm_template *t = w->vms->templates; t; t = t->next)
			if (t->boots == m->sandbox)
				t->boots = NULL;
		sandbox_end(w, m->sandbox, NULL);
	}
	vm_templates_end(w->vms);
	for (struct machine *m = w->vms->machines; m; m = m->next)
		m->template = NULL;
	for (unsigned i = 0; i < VM_PICTURES; i++)
		if (w->vms->picture[i].work)
			w->vms->picture[i].work->picture = NULL;
}

void vm_fail(struct warden *w, struct machine *m, int r, const struct err *e)
{
	if (m->finished)
		return;
	m->finished = true;
	m->result = r < 0 ? r : -EIO;
	m->e = *e;
	vm_tick(w->vms);
}

/* A machine without a caller is only removed. */
void vm_give_up(struct warden *w, struct machine *m, int r, struct err *e)
{
	if (m->trial) {
		vm_accel_tried(w, m, r, e);
	} else if (m->role == VM_TEMPLATE && m->template) {
		vm_template_fail(w, m->template, r, e);
	} else if (m->wanted) {
		vm_fail(w, m, r, e);
	} else {
		log_warn("a virtual machine that was kept ready: %s", e->msg);
		sandbox_end(w, m->sandbox, NULL);
	}
}

void vm_loads(struct warden *w, struct machine *m, uint64_t ns)
{
	struct epoll_event in = { .events = EPOLLIN, .data.ptr = m };

	if (!m->prev)
		LIST_ADD(&w->vms->machines, m);
	m->stage = VM_LOADS;
	m->until = clock_mono_ns() + ns;
	epoll_ctl(w->vms->epoll, EPOLL_CTL_ADD, m->side, &in);
	vm_tick(w->vms);
}

/* --- the image --- */

/* Whether a machine or template still needs it. */
static bool picture_used(const struct vms *v, const struct vm_picture *p)
{
	for (const struct machine *m = v->machines; m; m = m->next)
		if (m->picture == p && m->stage < VM_LOADS)
			return true;
	return p->work != NULL;
}

/* An unknown image takes the place with the oldest check: requests may name any number of them, even missing ones. */
static struct vm_picture *picture_get(struct warden *w, const char *path, struct err *e)
{
	struct vms *v = w->vms;
	struct vm_picture *oldest = NULL;

	for (unsigned i = 0; i < VM_PICTURES; i++) {
		struct vm_picture *p = &v->picture[i];

		if (!strcmp(p->path, path))
			return p;
		if (!picture_used(v, p) && (!oldest || p->looked < oldest->looked))
			oldest = p;
	}
	if (!oldest) {
		err_advise(e, ERR_EXHAUSTED, -EAGAIN, "try again in a moment",
			   "virtual machines of too many images are starting");
		return NULL;
	}
	picture_clear(v, oldest);
	snprintf(oldest->path, sizeof(oldest->path), "%s", path);
	return oldest;
}

void vm_picture_drop(struct warden *w, const char *key)
{
	for (unsigned i = 0; i < VM_PICTURES; i++)
		if (!strcmp(w->vms->picture[i].path, key) && !picture_used(w->vms, &w->vms->picture[i]))
			picture_clear(w->vms, &w->vms->picture[i]);
}

/* Looks at the image of @m. */
static int picture_look(struct warden *w, const struct machine *m, struct err *e)
{
	struct vm_picture *p = m->picture;
	const bool host = !strcmp(p->path, "host");
	struct vm_work *x;
	int r;

	if (p->work)
		return 0;
	x = vm_work_new(VM_PICTURE, e);
	if (!x)
		return -ENOMEM;
	if (!strcmp(m->spec.image, SPEC_SCRATCH)) {
		r = vm_stack_look(w, m->sandbox, x, e);
		p->layered = true;
		memcpy(p->root_id, x->made.root_id, sizeof(p->root_id));
	} else if (host) {
		r = x->fd[VM_FILE_ROOT] = sys_fcntl(w->env.image.root, F_DUPFD_CLOEXEC, 3);
		if (r >= 0)
			r = x->fd[VM_FILE_USR] = sys_fcntl(w->env.image.usr, F_DUPFD_CLOEXEC, 3);
		if (r < 0)
			err_sys(e, ERR_EXHAUSTED, r, "open image 'host'");
	} else {
		r = x->fd[VM_FILE_ROOT] = w->env.policy.image(w->env.policy.arg, p->path, e);
	}
	if (r < 0) {
		vm_work_free(x);
		return r;
	}
	snprintf(x->given.path, sizeof(x->given.path), "%s", p->path);
	x->picture = p;
	p->work = x;
	workers_add(w->workers, &x->work);
	return 0;
}

/* --- from its image to its template --- */

int vm_boot_cold(struct warden *w, struct machine *m, struct err *e)
{
	struct vm_work *x = vm_work_new(VM_NEW, e);

	if (!x)
		return -ENOMEM;
	m->role = VM_COLD;
	m->stage = VM_FORMATS;
	x->fd[VM_FILE_DIR] = w->vms->dir;
	x->machine = m;
	x->given.size = m->spec.limits.disk;
	x->given.inodes = m->spec.limits.inodes;
	m->work = x;
	workers_add(w->workers, &x->work);
	return 0;
}

static int wait_template(struct warden *w, struct machine *m, const uint8_t key[SHA256_SIZE], struct err *e)
{
	m->template = vm_template_get(w, m->spec.tenant, key, e);
	if (!m->template)
		return -EAGAIN;
	m->stage = VM_WAITS;
	m->template->instead |= m->instead;
	if (m->template->state == VM_T_READY) {
		vm_accel_blame(w, m->template);
		vm_go_on(w, m);
	}
	return 0;
}

/* Finds a prebuilt machine that fits @m. */
static struct machine *find_ready(struct warden *w, const struct machine *m)
{
	for (struct machine *x = w->vms->machines; x; x = x->next) {
		if (x->stage != VM_STANDS || x->wanted || x->template != m->template || x->dead ||
		    x->spec.limits.cpu_milli != m->spec.limits.cpu_milli ||
		    x->spec.limits.io_bps != m->spec.limits.io_bps || x->sandbox->tenant != m->sandbox->tenant)
			continue;
		return x;
	}
	return NULL;
}

void vm_let_go(struct warden *w, struct machine *m)
{
	struct err e = { 0 };
	/* Its network rules may differ from those that it was prebuilt with. */
	int r = net_fit(w, &m->sandbox->blank, &m->spec, &e);

	m->stage = VM_GOES;
	m->until = clock_mono_ns() + CLONE_NS;
	if (r == 0)
		r = vm_go(w, m, &e);
	if (r < 0)
		vm_give_up(w, m, r, &e);
	else
		vm_tick(w->vms);
}

/* Moves the prebuilt machine @x into @m, since callers know @m's sandbox. */
static void take_ready(struct warden *w, struct machine *m, struct machine *x)
{
	struct warden_sandbox *s = m->sandbox, *from = x->sandbox;

	x->spec = m->spec;
	x->tag = m->tag;
	x->wanted = true;
	x->stack = m->stack;
	s->blank = from->blank;
	s->root = from->root;
	s->receipt = from->receipt;
	s->handle = from->handle; /* its disk has this in its name */
	s->vm = x;
	x->sandbox = s;
	blank_init(&from->blank);
	root_init(&from->root);
	from->vm = m;
	m->sandbox = from;
	sandbox_end(w, from, NULL);
	vm_let_go(w, x);
}

static int start_flatten(struct warden *w, struct machine *m, struct err *e)
{
	const struct warden_sandbox *s = m->sandbox;
	struct vm_work *x = vm_work_new(VM_FLATTEN, e);
	int r = 0;

	if (!x)
		return -ENOMEM;
	x->given.memory = m->spec.limits.memory / MIB * MIB;
	x->fd[VM_FILE_RAM] = sys_fcntl(m->template->fd[VM_FILE_RAM], F_DUPFD_CLOEXEC, 3);
	if (x->fd[VM_FILE_RAM] < 0)
		r = err_sys(e, ERR_EXHAUSTED, x->fd[VM_FILE_RAM], "open a template's memory");
	for (uint32_t i = m->stack; r == 0 && i < s->layers; i++) {
		r = vm_layer_pages(w, s->layer[i], e);
		if (r >= 0) {
			x->pages[x->npages++] = r;
			r = 0;
		}
	}
	if (r < 0) {
		vm_work_free(x);
		return r;
	}
	x->machine = m;
	m->work = x;
	m->stage = VM_FLATTENS;
	workers_add(w->workers, &x->work);
	return 0;
}

/* A layer's state can only be resumed on the same base: the template's state must name what the layer's names. */
static int same_ground(const struct machine *m, int meta, struct err *e)
{
	struct vm_meta mine, theirs;
	const struct {
		const char *what;
		const uint8_t *a, *b;
	} parts[] = {
		{ "kernel", mine.what.kernel, theirs.what.kernel },
		{ "initramfs", mine.what.initrd, theirs.what.initrd },
		{ "image", mine.what.root, theirs.what.root },
		{ "image's /usr", mine.what.usr, theirs.what.usr },
	};
	int r = meta_head(meta, &mine, e);

	if (r == 0)
		r = meta_head(m->template->fd[VM_FILE_META], &theirs, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(parts); i++)
		if (memcmp(parts[i].a, parts[i].b, SHA256_SIZE))
			r = err_set(e, WHY_MADE_ELSEWHERE, -ESTALE,
				    "this checkpoint was made with another %s than its template", parts[i].what);
	return r;
}

static int load(struct warden *w, struct machine *m, struct err *e)
{
	const struct warden_sandbox *s = m->sandbox;
	AUTO_CLOSE int meta = -1;
	char self[32];
	int r;

	m->role = VM_CLONE;
	/* Opened anew: each reader needs a file offset of its own. */
	if (vm_disks(s)) {
		r = meta = vm_layer_meta(w, s->layer[s->layers - 1], e);
		if (r >= 0)
			r = same_ground(m, meta, e);
	} else {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", m->template->fd[VM_FILE_META]);
		r = meta = sys_openat(AT_FDCWD, self, O_RDONLY | O_CLOEXEC, 0);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "open a template");
	}
	if (r >= 0)
		r = vm_jail(w, m, e);
	if (r == 0)
		r = vm_start_clone(w, m, meta, m->ram >= 0 ? m->ram : m->template->fd[VM_FILE_RAM], e);
	if (r < 0)
		return r;
	vm_loads(w, m, CLONE_NS);
	return 0;
}

void vm_go_on(struct warden *w, struct machine *m)
{
	struct warden_sandbox *s = m->sandbox;
	struct machine *x;
	struct err e = { 0 };
	int r;

	if (vm_disks(s) && m->ram < 0) {
		int flat = vm_flat_find(w->vms, s->layer[s->layers - 1]);

		if (flat >= 0)
			m->ram = sys_fcntl(flat, F_DUPFD_CLOEXEC, 3);
		if (m->ram < 0) {
			r = start_flatten(w, m, &e);
			if (r < 0)
				vm_give_up(w, m, r, &e);
			return;
		}
	}
	x = vm_disks(s) || !m->wanted ? NULL : find_ready(w, m);
	if (x) {
		take_ready(w, m, x);
		return;
	}
	r = load(w, m, &e);
	if (r < 0)
		vm_give_up(w, m, r, &e);
}

int vm_looked(struct warden *w, struct machine *m, struct err *e)
{
	uint8_t key[SHA256_SIZE], id[SHA256_SIZE];
	int r;

	if (!m->accel)
		m->accel = w->vms->accel;
	if (!m->accel) {
		m->stage = VM_TRIES;
		return 0;
	}
	if (w->vms->cold && !vm_disks(m->sandbox))
		return vm_boot_cold(w, m, e);
	r = vm_identity(id, e);
	if (r < 0)
		return r;
	r = vm_key(&m->spec, m->accel, id, m->picture->root_id, m->picture->usr_id, key);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "find a template") : wait_template(w, m, key, e);
}

/* Reads which template a layer is based on; its size must match as well. */
static int layer_key(struct warden *w, struct machine *m, uint8_t ret[SHA256_SIZE], struct err *e)
{
	const struct warden_sandbox *s = m->sandbox;
	const char *id = s->layer[s->layers - 1];
	AUTO_CLOSE int fd = vm_layer_meta(w, id, e);
	struct vm_meta meta;
	int r;

	if (fd < 0)
		return fd;
	r = meta_head(fd, &meta, e);
	if (r < 0)
		return err_wrap(e, r, "layer '%s'", id);
	if (meta.memory_mib != m->spec.limits.memory / MIB || meta.cpus != vm_cpus(&m->spec.limits))
		return err_advise(e, WHY_MADE_ELSEWHERE, -EINVAL, "request the same memory and cpus",
				  "layer '%s': of a virtual machine with %uM and %u CPUs", id, meta.memory_mib,
				  meta.cpus);
	m->accel = (enum vm_accel)meta.accel;
	r = vm_accel_fits(w, m->accel, e);
	if (r < 0)
		return err_wrap(e, r, "layer '%s'", id);
	memcpy(ret, meta.what.key, SHA256_SIZE);
	return 0;
}

int vm_begin(struct warden *w, struct machine *m, struct err *e)
{
	const uint64_t now = clock_mono_ns();
	char image[SPEC_PATH];
	uint8_t key[SHA256_SIZE];
	int r;

	if (vm_disks(m->sandbox) && !w->vms->accel) {
		m->stage = VM_TRIES;
		return 0;
	}
	if (vm_disks(m->sandbox)) {
		r = layer_key(w, m, key, e);
		return r < 0 ? r : wait_template(w, m, key, e);
	}
	snprintf(image, sizeof(image), "%s", m->spec.image);
	if (m->stack)
		vm_stack_key(m->sandbox->layer[m->stack - 1], image);
	m->picture = picture_get(w, image, e);
	if (!m->picture)
		return -ENOMEM;
	if (m->picture->looked && m->picture->layered)
		return vm_looked(w, m, e);
	if (m->picture->looked && now < m->picture->looked + LOOKED_NS) {
		/* A failing check in the background is reported to the next request. */
		if (now > m->picture->looked + AGAIN_NS)
			picture_look(w, m, NULL);
		return vm_looked(w, m, e);
	}
	m->stage = VM_LOOKS;
	return picture_look(w, m, e);
}

int vm_new_machine(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e)
{
	struct warden_sandbox *s;
	int r = sandbox_new(spec, &s, e);

	if (r < 0)
		return r;
	s->vm = vm_machine_new(spec);
	if (!s->vm) {
		free(s);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	}
	s->tier = &vm_tier;
	s->vm->sandbox = s;
	s->vm->accel = w->vms->accel;
	s->vm->stack = vm_stack(w, s);
	s->vm->spec.layers = 0;
	LIST_ADD(&w->vms->machines, s->vm);
	if (w->layers)
		layers_hold(w->layers, s->layer, s->layers);
	*ret = s;
	return 0;
}

int vm_create(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e)
{
	struct warden_sandbox *s;
	int r = vm_ready(e);

	if (r == 0 && w->env.rootless)
		r = err_advise(e, ERR_UNSUPPORTED, -EPERM, "run as root", "needs root in this version");
	if (r == 0)
		r = vm_fits(&spec->limits, e);
	if (r < 0)
		return err_wrap(e, r, "isolation 'vm'");
	r = vm_open(w, e);
	if (r < 0)
		return r;
	r = vm_accel_decide(w, e);
	if (r < 0)
		return err_wrap(e, r, "isolation 'vm'");
	vm_first_sweep(w);
	r = vm_new_machine(w, spec, &s, e);
	if (r < 0)
		return r;
	s->vm->wanted = true;
	r = vm_begin(w, s->vm, e);
	if (r < 0) {
		sandbox_end(w, s, NULL);
		return r;
	}
	vm_tick(w->vms);
	*ret = s;
	return 1;
}

static bool is_spare(const struct machine *x)
{
	return !x->wanted && x->stage != VM_RUNS && x->role == VM_CLONE;
}

/*
 * Prebuilt machines are in no quota: a tenant has at most READY_KINDS, and for another kind the oldest is dropped.
 * True: there is room for one more.
 */
static bool make_room(struct warden *w, const struct machine *like)
{
	struct machine *oldest = NULL;
	unsigned kind = 0, tenant = 0, all = 0;

	for (struct machine *x = w->vms->machines; x; x = x->next) {
		if (!is_spare(x))
			continue;
		all++;
		kind += x->template == like->template;
		if (x->spec.tenant != like->spec.tenant)
			continue;
		tenant++;
		if (x->stage == VM_STANDS && x->template != like->template && (!oldest || x->until < oldest->until))
			oldest = x;
	}
	if (kind >= w->env.vm_ready)
		return false;
	if (tenant < READY_KINDS * w->env.vm_ready)
		return all < READY_KINDS * READY_KINDS * w->env.vm_ready;
	if (oldest)
		sandbox_end(w, oldest->sandbox, NULL);
	return oldest;
}

void vm_keep_ready(struct warden *w, const struct machine *like)
{
	struct warden_sandbox *s;
	struct err e = { 0 };

	if (like->role != VM_CLONE || vm_disks(like->sandbox) || w->env.one_shot || like->template->state != VM_T_READY)
		return;
	if (!make_room(w, like) || vm_new_machine(w, &like->spec, &s, &e) < 0)
		return;
	s->vm->template = vm_template_get(w, like->spec.tenant, like->template->key, &e);
	s->vm->role = VM_CLONE;
	s->vm->accel = like->accel;
	if (!s->vm->template || load(w, s->vm, &e) < 0) {
		log_warn("cannot keep a virtual machine ready: %s", e.msg);
		sandbox_end(w, s, NULL);
	}
}
