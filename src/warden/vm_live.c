/* Virtual machines that are up: what they use, groups of their execs, who speaks to them; finding them again. */
#include "warden/inside.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "warden/keep.h"
#include "warden/vm.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define STAT_TRIES 100
#define PAGE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Of a size that nobody can change: cut off, our reading it would be the end of us. */
int vm_stat_page(struct err *e)
{
	AUTO_CLOSE int fd = sys_memfd_create("stat", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? fd : sys_ftruncate(fd, PAGE);

	if (r == 0)
		r = sys_fcntl(fd, F_ADD_SEALS, PAGE_SEALS | F_SEAL_SEAL);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make a file in memory") : TAKE_FD(fd);
}

const struct vm_stat *vm_stat_map(int page)
{
	void *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, page, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* What it said last, also after its end. Nothing is decided by it but words. */
static struct mux_stat said(const struct vm_stat *from)
{
	struct mux_stat ret = { 0 };

	for (unsigned i = 0; i < STAT_TRIES; i++) {
		const uint64_t seq = __atomic_load_n(&from->seq, __ATOMIC_ACQUIRE);

		ret = from->stat;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(seq & 1) && seq == __atomic_load_n(&from->seq, __ATOMIC_RELAXED))
			break;
	}
	return ret;
}

int vm_stat(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret)
{
	const struct mux_stat g = said(s->vm->stat);
	const uint64_t base = s->vm->cpu_base;
	struct cgroup_stat jail = { 0 };
	int r = s->shell.cgroup.mask ? cgroup_stat(&w->env.cgroups, &s->shell.cgroup, &jail) : 0;

	if (r < 0)
		return r;
	*ret = (struct warden_stat){
		.group = {
			.memory = g.memory,
			.memory_peak = g.memory_peak,
			.memory_files = g.memory_files,
			/* The machine itself, too: it has a limit of its own. */
			.oom_kills = g.oom_kills + jail.oom_kills,
			.pids = g.pids,
			.pids_peak = g.pids_peak,
			.pids_refused = g.pids_refused,
			/* As this host counts it: of emulation, too, since that is what it costs. */
			.cpu_usec = jail.cpu_usec > base ? jail.cpu_usec - base : 0,
			.throttled_usec = jail.throttled_usec,
			.io_bytes = g.io_bytes,
		},
		.disk_used = g.disk_used,
		.disk_size = g.disk_size,
		.inodes_used = g.inodes_used,
		.inodes_size = g.inodes_size,
	};
	return 0;
}

int vm_group_fd(uint32_t number, struct err *e)
{
	AUTO_CLOSE int fd = sys_memfd_create("group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? fd : fd_write_all(fd, &number, sizeof(number));

	if (r == 0)
		r = sys_fcntl(fd, F_ADD_SEALS, PAGE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make an exec group") : TAKE_FD(fd);
}

/* It is made in there, when its exec comes. */
int vm_group(struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e)
{
	const uint32_t number = s->vm->group + 1 ? s->vm->group + 1 : 2;
	int fd = vm_group_fd(number, e);

	if (fd < 0)
		return fd;
	*ret = s->vm->group = number;
	*ret_fd = fd;
	return 0;
}

int vm_group_say(struct warden_sandbox *s, enum vm_type type, uint32_t number, struct err *e)
{
	const struct vm_msg m = { .version = VM_SIDE_VERSION, .type = type, .group.number = number };
	int r = fd_send_now(s->vm->side, &m, sizeof(m), NULL, 0);

	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* with the machine all groups have ended */
	return r < 0 ? err_sys(e, ERR_CONFLICT, r, "reach the machine") : 0;
}

int vm_steer(const struct machine *m, const struct steer_rules *rules, struct err *e)
{
	struct {
		struct vm_msg m;
		struct steer_rules rules;
	} out = { .m = { .version = VM_SIDE_VERSION, .type = VM_STEER, .steer = { .on = rules != NULL } } };
	int r;

	static_assert(sizeof(out) == sizeof(out.m) + sizeof(out.rules) && sizeof(out.rules) <= VM_RULES_MAX, "one behind the other");
	if (rules) {
		out.rules = *rules;
		out.m.steer.len = sizeof(out.rules);
	}
	r = fd_send_now(m->side, &out, sizeof(out.m) + out.m.steer.len, NULL, 0);
	if (r == -EAGAIN)
		return err_set(e, ERR_CONFLICT, r, "the sandbox's network was changed too often while it was paused");
	return r < 0 ? err_sys(e, ERR_LOST, r, "reach the machine") : 0;
}

int vm_attach(struct warden_sandbox *s, int *ret_sock, struct err *e)
{
	const struct vm_msg m = { .version = VM_SIDE_VERSION, .type = VM_ATTACH };
	int pair[2], r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	r = fd_send_now(s->vm->side, &m, sizeof(m), &pair[1], 1);
	fd_close(pair[1]);
	if (r == 0) {
		*ret_sock = pair[0];
		return 0;
	}
	fd_close(pair[0]);
	if (r == -EAGAIN)
		return err_set(e, ERR_CONFLICT, r, "the sandbox was attached to too often while it was paused");
	return err_sys(e, ERR_LOST, r, "reach the machine");
}

static void disk_name(const struct warden_sandbox *s, unsigned n, char *name, size_t size)
{
	snprintf(name, size, "d-%016llx.%u", (unsigned long long)s->handle, n);
}

/* One with a name can be found by the next warden. */
int vm_own_disk(struct warden *w, const struct warden_sandbox *s, unsigned n, struct err *e)
{
	char name[48];
	int fd;

	disk_name(s, n, name, sizeof(name));
	fd = w->env.keep ? sys_openat(w->vms->dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) :
			   sys_openat(w->vms->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd < 0 ? err_sys(e, ERR_EXHAUSTED, fd, "make a disk in %s", w->vms->path) : fd;
}

void vm_own_remove(struct warden *w, const struct warden_sandbox *s, unsigned n)
{
	char name[48];

	disk_name(s, n, name, sizeof(name));
	if (w->env.keep && w->vms)
		sys_unlinkat(w->vms->dir, name, 0);
}

static int take_page(struct machine *m, const struct shell *s)
{
	struct stat st;
	int r = m->page = keep_vm(s, FRAME_KEEP_STAT);

	if (r < 0)
		return r;
	r = sys_fcntl(m->page, F_GET_SEALS, 0);
	if (r < 0 || (r & PAGE_SEALS) != PAGE_SEALS || fstat(m->page, &st) < 0 || st.st_size != PAGE)
		return -ESTALE;
	m->stat = vm_stat_map(m->page);
	return m->stat ? 0 : -ENOMEM;
}

/*
 * A warden that died in the middle of a seal leaves one more than it had written down. cloche-vmm may still be at it, so that
 * one counts in any case: empty or begun, it hides nothing of what is below.
 */
static int take_disks(struct warden *w, struct warden_sandbox *s, uint32_t n)
{
	struct machine *m = s->vm;
	char name[48];

	for (m->nown = 0; m->nown <= n && m->nown < VM_OWN_MAX; m->nown++) {
		AUTO_CLOSE int fd = -1;

		disk_name(s, m->nown, name, sizeof(name));
		fd = sys_openat(w->vms->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
		if (fd == -ENOENT && m->nown == n)
			break;
		if (fd < 0)
			return fd;
		m->own[m->nown] = TAKE_FD(fd);
	}
	return m->nown > n ? records_own(&w->env.records, s->shell.slot, m->nown) : 0;
}

int vm_adopt(struct warden *w, struct warden_sandbox *s, const struct record *rec, struct err *e)
{
	struct epoll_event in = { .events = EPOLLIN };
	struct machine *m;
	int r = vm_open(w, e);

	if (r < 0)
		return r;
	{
		struct sandbox_spec spec = { .tenant = rec->spec_tenant, .flags = rec->spec_flags, .limits.memory = rec->memory };

		m = s->vm = vm_machine_new(&spec);
	}
	if (!m)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	m->sandbox = s;
	m->role = rec->vm_cold ? VM_COLD : VM_CLONE;
	m->stage = VM_RUNS;
	m->cpu_base = rec->vm_cpu_base;
	/* Whatever numbers the last warden gave, these are later ones. */
	m->group = 0x40000000U | (uint32_t)(clock_mono_ns() >> 20 & 0x3fffffffU);
	r = take_disks(w, s, rec->vm_own);
	if (r == 0)
		r = take_page(m, &s->shell);
	if (r == 0)
		r = m->side = keep_vm(&s->shell, FRAME_KEEP_SIDE);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "take over a machine");
	if (m->role == VM_CLONE) {
		m->template = vm_template_hold(w, rec->spec_tenant, rec->vm_key, e);
		if (!m->template)
			return -ENOMEM;
	}
	in.data.ptr = m;
	if (epoll_ctl(w->vms->epoll, EPOLL_CTL_ADD, m->side, &in) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "wait for a machine");
	m->next = w->vms->machines;
	m->prev = &w->vms->machines;
	if (m->next)
		m->next->prev = &m->next;
	w->vms->machines = m;
	return 0;
}

/* How many disks a machine of this one's layer would have. */
static int check_chain(struct warden *w, const struct warden_sandbox *s, struct err *e)
{
	int fds[VM_CHAIN_MAX], n = s->layers ? vm_layer_disks(w, s->layer, s->layers, fds, VM_CHAIN_MAX, e) : 0;

	if (n < 0)
		return n;
	fd_close_many(fds, (size_t)n);
	/* Besides: the template's, and one that is written. */
	if ((unsigned)n + s->vm->nown + 2 <= VM_CHAIN_MAX && s->vm->nown < VM_OWN_MAX && s->layers + 1 < SPEC_LAYERS)
		return 0;
	err_set(e, ERR_REFUSED, -E2BIG, "the machine was sealed as often as its disk can be (%u)", VM_CHAIN_MAX - 2);
	err_remedy(e, "copy what is needed into a new sandbox, and seal that");
	return -E2BIG;
}

int vm_seal_begin(struct warden *w, struct warden_sandbox *s, struct seal_source *from, struct err *e)
{
	struct machine *m = s->vm;
	int r;

	if (m->role != VM_CLONE)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "a machine that was booted without a template can not be sealed");
	if (m->dead)
		return err_set(e, ERR_LOST, -EPIPE, "the machine has ended");
	r = check_chain(w, s, e);
	if (r < 0)
		return r;
	r = vm_own_disk(w, s, m->nown, e);
	if (r < 0)
		return r;
	m->own[m->nown] = r;
	from->side = m->side;
	memcpy(from->key, m->template->key, sizeof(from->key));
	for (unsigned i = 0; r >= 0 && i <= m->nown; i++) {
		r = from->disk[i] = sys_fcntl(m->own[i], F_DUPFD_CLOEXEC, 3);
		from->disks += r >= 0;
	}
	if (r < 0) {
		fd_close_many(from->disk, from->disks);
		from->disks = 0;
		fd_close(TAKE_FD(m->own[m->nown]));
		vm_own_remove(w, s, m->nown);
		return err_sys(e, ERR_EXHAUSTED, r, "open a machine's disk");
	}
	epoll_ctl(w->vms->epoll, EPOLL_CTL_DEL, m->side, NULL);
	m->saving = true;
	return 0;
}

void vm_seal_end(struct warden *w, struct warden_sandbox *s, int result)
{
	struct epoll_event in = { .events = EPOLLIN, .data.ptr = s->vm };
	struct machine *m = s->vm;
	struct stat st;

	/*
	 * An empty one was never put on top, unless who has not answered still does that. One that was not used, but begun, hides
	 * nothing of what is below.
	 */
	if (result != -ETIMEDOUT && fstat(m->own[m->nown], &st) == 0 && st.st_size == 0) {
		fd_close(TAKE_FD(m->own[m->nown]));
		vm_own_remove(w, s, m->nown);
	} else {
		m->nown++;
		if (s->shell.recorded && records_own(&w->env.records, s->shell.slot, m->nown) < 0)
			log_error("slot %u: its record does not know its newest disk", s->shell.slot);
	}
	m->saving = false;
	epoll_ctl(w->vms->epoll, EPOLL_CTL_ADD, m->side, &in);
}
