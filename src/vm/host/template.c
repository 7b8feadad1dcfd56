/*
 * Templates: machines that were booted once, made their sandbox and stopped. A machine of the same kind is a clone of
 * one: it shares its memory and disk until it writes. They are kept in a folder of their own, "t-KEY", and never shared
 * between tenants. One machine boots it, all others of its kind wait.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/program.h"
#include "layers/tree.h"
#include "vm/host/files.h"
#include "vm/host/host.h"
#include "vm/host/tier.h"
#include "vm/vmm/meta.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEY_DIGITS 32
#define OLD_SECONDS (30LL * 24 * 3600)
#define TEMPLATES_MAX 16U /* unused ones on the disk */
#define STORED_MAX 4U /* new ones after which those on the disk are swept */
/* Each different spec needs another template, and no quota counts them: so the number per tenant is limited, */
#define MAKING_MAX 8U /* searched for or booted; */
#define IDLE_MAX 4U /* in memory, without machines */
#define IDLE_NS (300ULL * 1000000000ULL) /* after which its memory is freed */
#define BOOT_NS (120ULL * 1000000000ULL)

int vm_key(const struct sandbox_spec *spec, enum vm_accel accel, const uint8_t id[SHA256_SIZE],
	   const uint8_t root[SHA256_SIZE], const uint8_t usr[SHA256_SIZE], uint8_t ret[SHA256_SIZE])
{
	static const char what[] = "cloche template 1";
	AUTO_FREE struct sandbox_spec *guest = calloc(2, sizeof(*guest));
	uint64_t facts[] = { spec->tenant, accel, vm_cpus(&spec->limits), spec->limits.memory / MIB };
	struct sha256 s;

	if (!guest)
		return -ENOMEM;
	/* Without the bytes after the ends of its texts. */
	vm_guest_spec(spec, &guest[1]);
	spec_put(&guest[1], &guest[0]);
	sha256_init(&s);
	sha256_add(&s, what, sizeof(what));
	sha256_add(&s, facts, sizeof(facts));
	sha256_add(&s, id, SHA256_SIZE);
	sha256_add(&s, root, SHA256_SIZE);
	sha256_add(&s, usr, SHA256_SIZE);
	sha256_add(&s, guest, sizeof(*guest));
	sha256_end(&s, ret);
	return 0;
}

static void put_name(const uint8_t key[SHA256_SIZE], char name[VM_KEY_NAME])
{
	memcpy(name, "t-", 3);
	for (unsigned i = 0; i < KEY_DIGITS / 2; i++)
		snprintf(name + 2 + 2 * i, 3, "%02x", key[i]);
}

static void template_free(struct vms *v, struct vm_template *t)
{
	struct vm_template **at = &v->templates;

	while (*at && *at != t)
		at = &(*at)->next;
	if (*at)
		*at = t->next;
	if (t->work) {
		t->work->template = NULL;
		__atomic_store_n(&t->work->work.stop, 1, __ATOMIC_RELAXED);
	}
	fd_close_many(t->fd, VM_FILE_OF_TEMPLATE);
	free(t);
}

static int start_look(struct warden *w, struct vm_template *t, struct err *e)
{
	struct vm_work *x = vm_work_new(VM_LOOK, e);

	if (!x)
		return -ENOMEM;
	x->fd[VM_FILE_DIR] = w->vms->dir;
	x->template = t;
	memcpy(x->given.name, t->name, sizeof(x->given.name));
	t->work = x;
	workers_add(w->workers, &x->work);
	return 0;
}

struct vm_template *vm_template_hold(struct warden *w, uint64_t tenant, const uint8_t key[SHA256_SIZE], struct err *e)
{
	struct vms *v = w->vms;
	struct vm_template *t;

	for (t = v->templates; t; t = t->next)
		if (!t->failed && !memcmp(t->key, key, SHA256_SIZE))
			break;
	if (!t) {
		t = calloc(1, sizeof(*t));
		if (!t) {
			err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
			return NULL;
		}
		memset(t->fd, 0xff, sizeof(t->fd)); /* -1 */
		t->tenant = tenant;
		memcpy(t->key, key, SHA256_SIZE);
		put_name(key, t->name);
		t->next = v->templates;
		v->templates = t;
	}
	t->users++;
	t->used = clock_mono_ns();
	return t;
}

static int check_making(const struct vms *v, uint64_t tenant, struct err *e)
{
	unsigned n = 0;

	for (const struct vm_template *t = v->templates; t; t = t->next)
		n += t->tenant == tenant && (t->work || t->boots);
	if (n < MAKING_MAX)
		return 0;
	return err_advise(e, ERR_EXHAUSTED, -EAGAIN,
			  "try again when they are ready, or request virtual machines of fewer sizes",
			  "%u other kinds of virtual machines are starting for this tenant", n);
}

struct vm_template *vm_template_get(struct warden *w, uint64_t tenant, const uint8_t key[SHA256_SIZE], struct err *e)
{
	struct vm_template *t = vm_template_hold(w, tenant, key, e);

	if (t && t->state == VM_T_LOOKS && !t->work &&
	    (check_making(w->vms, tenant, e) < 0 || start_look(w, t, e) < 0)) {
		t->users--;
		return NULL;
	}
	return t;
}

void vm_template_drop(struct vm_template *t)
{
	if (!t)
		return;
	t->used = clock_mono_ns();
	t->users--;
}

/* Closes what was made for its boot. */
static void drop_held(struct vm_template *t)
{
	if (!t->work || !t->work->held)
		return;
	tree_remove(t->work->fd[VM_FILE_DIR], t->work->given.part);
	vm_work_free(TAKE_PTR(t->work));
}

void vm_template_fail(struct warden *w, struct vm_template *t, int r, const struct err *e)
{
	struct warden_sandbox *boots = TAKE_PTR(t->boots);

	t->failed = true;
	if (t->state == VM_T_BOOTS)
		vm_accel_instead(w, t, e);
	for (struct machine *m = w->vms->machines; m; m = m->next)
		if (m->template == t && m->stage == VM_WAITS)
			vm_fail(w, m, r, e);
	if (boots)
		sandbox_end(w, boots, NULL);
	drop_held(t);
	/*
	 * Waiting machines count as users until they are notified. Machines of an earlier warden are based on it: its
	 * key goes into their layers.
	 */
	t->state = VM_T_LOOKS;
}

/* The first waiting machine defines it; templates have no layers. */
static struct machine *first_waiting(struct warden *w, const struct vm_template *t)
{
	for (struct machine *m = w->vms->machines; m; m = m->next)
		if (m->template == t && m->stage == VM_WAITS && !vm_disks(m->sandbox))
			return m;
	return NULL;
}

static int start_new(struct warden *w, struct vm_template *t, struct err *e)
{
	const struct machine *m = first_waiting(w, t);
	struct vm_work *x;

	if (!m)
		return err_advise(e, WHY_DAMAGED, -ENOENT,
				  "restore the folder of templates from a copy if there is one",
				  "the template that this checkpoint is based on is missing (%s)", t->name);
	x = vm_work_new(VM_NEW, e);
	if (!x)
		return -ENOMEM;
	x->fd[VM_FILE_DIR] = w->vms->dir;
	x->template = t;
	x->given.template_wanted = true;
	memcpy(x->given.name, t->name, sizeof(x->given.name));
	snprintf(x->given.part, sizeof(x->given.part), "%s.part", t->name);
	x->given.memory = m->spec.limits.memory / MIB * MIB;
	x->given.size = m->spec.limits.disk;
	x->given.inodes = m->spec.limits.inodes;
	t->work = x;
	t->state = VM_T_BOOTS;
	workers_add(w->workers, &x->work);
	return 0;
}

/* Boots it in a machine of its own, which no caller sees. */
static int boot(struct warden *w, struct vm_template *t, const struct machine *like, struct vm_work *x, struct err *e)
{
	struct warden_sandbox *s;
	struct machine *m;
	int r = vm_new_machine(w, &like->spec, &s, e);

	if (r < 0)
		return r;
	m = s->vm;
	m->role = VM_TEMPLATE;
	m->accel = like->accel;
	m->stage = VM_FORMATS;
	m->picture = like->picture;
	m->template = t;
	/* It has no connections yet, and its limits are set for each clone. */
	m->spec.limits.io_bps = 0;
	r = vm_jail(w, m, e);
	if (r == 0)
		r = vm_start_template(w, m, x, e);
	if (r < 0) {
		m->template = NULL;
		sandbox_end(w, s, NULL);
		return r;
	}
	log_info("booting the first virtual machine of a kind: image '%s', %lluM, %u CPUs", like->spec.image,
		 (unsigned long long)(like->spec.limits.memory / MIB), vm_cpus(&like->spec.limits));
	t->users++;
	t->boots = s;
	vm_loads(w, m, vm_accel_patience(w, m, BOOT_NS));
	return 0;
}

/*
 * A background check may have found another image meanwhile, or programs were replaced: then the template does not
 * match its key.
 */
static int still_same(const struct vm_template *t, const struct machine *like, struct err *e)
{
	uint8_t id[SHA256_SIZE], key[SHA256_SIZE];
	int r = vm_identity(id, e);

	if (r < 0)
		return r;
	r = vm_key(&like->spec, like->accel, id, like->picture->root_id, like->picture->usr_id, key);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "find a template");
	if (!memcmp(key, t->key, sizeof(key)))
		return 0;
	return err_advise(e, ERR_CONFLICT, -ESTALE, "try again",
			  "the image or the programs were changed while a template was made from them");
}

static void took_over(struct vm_template *t, struct vm_work *x)
{
	fd_close_many(t->fd, VM_FILE_OF_TEMPLATE);
	for (unsigned i = 0; i < VM_FILE_OF_TEMPLATE; i++)
		t->fd[i] = TAKE_FD(x->fd[i]);
}

static void ready(struct warden *w, struct vm_template *t)
{
	struct machine *next;

	t->state = VM_T_READY;
	vm_accel_blame(w, t);
	for (struct machine *m = w->vms->machines; m; m = next) {
		next = m->next;
		if (m->template == t && m->stage == VM_WAITS)
			vm_go_on(w, m);
	}
}

void vm_template_booted(struct warden *w, struct vm_template *t, struct machine *m)
{
	struct vm_work *x = t->work;
	struct err e = { 0 };

	w->vms->kvm_ran |= m->accel == VM_KVM;
	/* VM_STORE stores the files that VM_NEW made. */
	sandbox_end(w, TAKE_PTR(t->boots), NULL);
	if (!x || t->state != VM_T_BOOTS) {
		vm_template_fail(w, t, err_set(&e, ERR_INTERNAL, -EPROTO, "a template was made without a request"), &e);
		return;
	}
	t->state = VM_T_KEEPS;
	x->task = VM_STORE;
	x->work.slow = false;
	x->held = false;
	x->made.result = 0;
	fd_close(TAKE_FD(x->fd[VM_FILE_INITRD]));
	workers_add(w->workers, &x->work);
}

/* Continues when what it boots with is made. */
static int formatted(struct warden *w, struct vm_template *t, struct vm_work *x, struct err *e)
{
	const struct machine *like = first_waiting(w, t);
	int r;

	if (!like)
		r = err_set(e, ERR_CONFLICT, -ECANCELED, "no request waits for this template any longer");
	else
		r = still_same(t, like, e);
	/* The image is put into the template, since its cache may be swept. */
	if (r == 0) {
		r = x->fd[VM_FILE_ROOT] = sys_fcntl(like->picture->root, F_DUPFD_CLOEXEC, 3);
		if (r >= 0 && like->picture->usr >= 0)
			r = x->fd[VM_FILE_USR] = sys_fcntl(like->picture->usr, F_DUPFD_CLOEXEC, 3);
		r = r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "open the image") : boot(w, t, like, x, e);
	}
	if (r < 0) {
		tree_remove(x->fd[VM_FILE_DIR], x->given.part);
		return r;
	}
	t->work = x; /* kept until it has booted */
	x->held = true;
	return 0;
}

/* Handles the end of the work that a template waits for. */
static int worked(struct warden *w, struct vm_template *t, struct vm_work *x, struct err *e)
{
	if (x->task == VM_LOOK && x->made.result == -ENOENT)
		return start_new(w, t, e);
	if (x->task == VM_NEW && x->made.result == 0 && !x->made.found)
		return formatted(w, t, x, e);
	if (x->made.result == 0) {
		took_over(t, x);
		ready(w, t);
		if (x->task == VM_STORE && ++w->vms->stored >= STORED_MAX)
			vm_store_sweep(w);
	}
	*e = x->made.e;
	return x->made.result;
}

void vm_template_worked(struct warden *w, struct vm_work *x)
{
	struct vm_template *t = x->template;
	struct err e = { 0 };
	int r;

	if (!t) {
		/* Keeps what it boots with; a task that could not lock the folder has nothing. */
		if (x->task == VM_NEW && x->made.result == 0 && !x->made.found)
			tree_remove(x->fd[VM_FILE_DIR], x->given.part);
		vm_work_free(x);
		return;
	}
	t->work = NULL;
	r = worked(w, t, x, &e);
	if (t->work != x)
		vm_work_free(x);
	if (r < 0)
		vm_template_fail(w, t, r, &e);
}

void vm_templates_end(struct vms *v)
{
	while (v->templates) {
		drop_held(v->templates);
		template_free(v, v->templates);
	}
}

int vm_store_open(const char *path, char *ret_path, size_t size, struct err *e)
{
	int r = path[0] ? 0 : program_cache("/vm", ret_path, size, e);

	if (path[0])
		snprintf(ret_path, size, "%s", path); /* as long as that of env, at most */
	return r < 0 ? r : layers_open_dir(ret_path, e);
}

/* Whether a live machine has this disk: "d-HANDLE.N". */
static bool disk_used(const struct warden *w, const char *name)
{
	unsigned long long handle;

	if (sscanf(name, "d-%16llx.", &handle) != 1)
		return false;
	for (const struct warden_sandbox *s = w->alive; s; s = s->next)
		if (s->handle == handle)
			return true;
	/* Machines in the making and prebuilt ones are in no other list yet. */
	for (const struct machine *m = w->vms->machines; m; m = m->next)
		if (m->sandbox->handle == handle)
			return true;
	return false;
}

/* Whether a template in use has this name, or a layer's machine was a clone of it. */
static bool stood_on(struct warden *w, const char *name)
{
	uint8_t key[KEY_DIGITS / 2];

	for (const struct vm_template *t = w->vms->templates; t; t = t->next)
		if (!strcmp(t->name, name))
			return true;
	for (unsigned i = 0; i < sizeof(key); i++) {
		unsigned byte;

		if (sscanf(name + 2 + 2 * i, "%2x", &byte) != 1)
			return false;
		key[i] = (uint8_t)byte;
	}
	return w->layers && layers_of_template(w->layers, key, sizeof(key));
}

static void sweep_part(int dir, const char *name)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		tree_remove(dir, name);
}

static bool is_part(const char *name)
{
	const size_t n = strlen(name);

	return n > 5 && !strcmp(name + n - 5, ".part");
}

/* When a template was last used; 0: @name is not a template, or is gone. */
static int64_t used_at(int dir, const char *name)
{
	struct stat st;

	if (strncmp(name, "t-", 2) || is_part(name) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (int64_t)st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec;
}

/* The time of use of the oldest among the newest TEMPLATES_MAX. 0: there are no more than that. */
static int64_t newest_since(int dir, DIR *d)
{
	int64_t top[TEMPLATES_MAX] = { 0 };
	unsigned least = 0;
	struct dirent *x;

	while ((x = readdir(d))) {
		const int64_t at = used_at(dir, x->d_name);

		if (at <= top[least])
			continue;
		top[least] = at;
		for (unsigned i = 0; i < TEMPLATES_MAX; i++)
			least = top[i] < top[least] ? i : least;
	}
	rewinddir(d);
	return top[least];
}

void vm_store_sweep(struct warden *w)
{
	const int dir = w->vms->dir;
	const int64_t old = (time(NULL) - OLD_SECONDS) * 1000000000LL;
	DIR *d = dir_list(dir);
	struct dirent *x;
	int64_t since;

	w->vms->stored = 0;
	if (!d)
		return;
	since = newest_since(dir, d);
	while ((x = readdir(d))) {
		const char *name = x->d_name;
		const int64_t at = used_at(dir, name);

		if (!strncmp(name, "d-", 2) && w->env.persist && !disk_used(w, name))
			sys_unlinkat(dir, name, 0);
		else if (!strncmp(name, "t-", 2) && is_part(name))
			sweep_part(dir, name);
		else if (vm_stack_unused(w, name))
			sys_unlinkat(dir, name, 0);
		else if (at && (at < old || at < since) && !stood_on(w, name))
			tree_remove(dir, name);
	}
	closedir(d);
}

static bool idle(const struct vm_template *t)
{
	return !t->users && !t->work && !t->boots;
}

/* Whether its tenant has enough templates that were used later. */
static bool outnumbered(const struct vms *v, const struct vm_template *t)
{
	unsigned n = 0;

	for (const struct vm_template *x = v->templates; x; x = x->next)
		n += x != t && x->tenant == t->tenant && idle(x) && x->used >= t->used;
	return n >= IDLE_MAX;
}

/* Frees the memory of templates that were unused for a while. */
void vm_templates_idle(struct vms *v, uint64_t now)
{
	struct vm_template *next;

	for (struct vm_template *t = v->templates; t; t = next) {
		next = t->next;
		if (idle(t) && (t->state != VM_T_READY || now > t->used + IDLE_NS || outnumbered(v, t)))
			template_free(v, t);
	}
}
