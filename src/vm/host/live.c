/* Virtual machines that are up: usage, groups of execs, network; and finding them again after a restart. */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/blank/persist.h"
#include "vm/host/host.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define STAT_TRIES 100
#define AGAIN_TRIES 20U
#define AGAIN_MS 50
#define SIDE_UNTOLD 3U /* in records without this field */
#define PAGE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Sealed to a fixed size: if it could be truncated, reading it would kill the warden. */
int vm_stat_page(struct err *e)
{
	AUTO_CLOSE int fd = sys_memfd_create("stat", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? fd : sys_ftruncate(fd, PAGE);

	if (r == 0)
		r = sys_fcntl(fd, F_ADD_SEALS, PAGE_SEALS | F_SEAL_SEAL);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make an in-memory file") : TAKE_FD(fd);
}

const struct vm_stat *vm_stat_map(int page)
{
	void *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, page, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* The last figures of the guest, also after its end. They are only shown, and decide nothing. */
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
	int r = s->blank.cgroup.mask ? cgroup_stat(&w->env.cgroups, &s->blank.cgroup, &jail) : 0;

	if (r < 0)
		return r;
	*ret = (struct warden_stat){
		.group = {
			.memory = g.memory,
			.memory_peak = g.memory_peak,
			.memory_files = g.memory_files,
			/* Kills of the jail's group as well: it has a limit of its own. */
			.oom_kills = g.oom_kills + jail.oom_kills,
			.pids = g.pids,
			.pids_peak = g.pids_peak,
			.pids_refused = g.pids_refused,
			/* As this host counts it: including emulation, since that is what it costs. */
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

/* The guest makes the group when its exec comes. */
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

int vm_group_end(struct warden_sandbox *s, enum tier_group_end how, uint32_t number, struct err *e)
{
	const enum vm_type type = how == TIER_GROUP_KILL ? VM_GROUP_KILL : VM_GROUP_END;
	const struct vm_msg m = { .version = VM_SIDE_VERSION, .type = type, .group.number = number };
	int r = fd_send_now(s->vm->side, &m, sizeof(m), NULL, 0);

	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* the groups have ended with the machine */
	return r < 0 ? err_sys(e, ERR_CONFLICT, r, "connect to the virtual machine") : 0;
}

int vm_steer(struct warden_sandbox *s, const struct steer_rules *rules, struct err *e)
{
	struct {
		struct vm_msg m;
		struct steer_rules rules;
	} out = { .m = { .version = VM_SIDE_VERSION, .type = VM_STEER, .steer = { .on = rules != NULL } } };
	int r;

	static_assert(sizeof(out) == sizeof(out.m) + sizeof(out.rules) && sizeof(out.rules) <= VM_RULES_MAX,
		      "one behind the other");
	if (rules) {
		out.rules = *rules;
		out.m.steer.len = sizeof(out.rules);
	}
	r = fd_send_now(s->vm->side, &out, sizeof(out.m) + out.m.steer.len, NULL, 0);
	if (r == -EAGAIN)
		return err_set(e, ERR_CONFLICT, r,
			       "the network of the sandbox was changed too often while it was paused");
	return r < 0 ? err_sys(e, ERR_LOST, r, "connect to the virtual machine") : 0;
}

int vm_attach(struct warden_sandbox *s, int *ret_sock, struct err *e)
{
	const struct vm_msg m = { .version = VM_SIDE_VERSION, .type = VM_ATTACH };

	return persist_attach_by(s->vm->side, &m, sizeof(m), ret_sock, e);
}

int vm_run_again(struct warden_sandbox *s, struct err *e)
{
	const struct vm_msg msg = { .version = VM_SIDE_VERSION, .type = VM_GO_ON };
	int r = -EAGAIN;

	/* Messages that were sent while it was paused may fill its socket: it reads them now. */
	for (unsigned i = 0; r == -EAGAIN && i < AGAIN_TRIES; i++) {
		r = fd_send_now(s->vm->side, &msg, sizeof(msg), NULL, 0);
		if (r == -EAGAIN)
			poll(&(struct pollfd){ .fd = s->vm->side, .events = POLLOUT }, 1, AGAIN_MS);
	}
	if (r == -EPIPE || r == -ECONNRESET)
		return 0; /* it has ended, which is reported elsewhere */
	return r < 0 ? err_sys(e, ERR_CONFLICT, r, "connect to the virtual machine") : 0;
}

static int take_page(struct machine *m, const struct blank *s)
{
	struct stat st;
	int r = m->page = persist_vm(s, FRAME_KEEP_STAT);

	if (r < 0)
		return r;
	r = sys_fcntl(m->page, F_GET_SEALS, 0);
	if (r < 0 || (r & PAGE_SEALS) != PAGE_SEALS || fstat(m->page, &st) < 0 || st.st_size != PAGE)
		return -ESTALE;
	m->stat = vm_stat_map(m->page);
	return m->stat ? 0 : -ENOMEM;
}

int vm_adopt(struct warden *w, struct warden_sandbox *s, const struct record *rec, struct err *e)
{
	struct epoll_event in = { .events = EPOLLIN };
	const uint32_t side = rec->vm_side ? rec->vm_side : SIDE_UNTOLD;
	struct machine *m;
	int r = vm_open(w, e);

	if (r < 0)
		return r;
	if (side != VM_SIDE_VERSION)
		return err_set(e, ERR_LOST, -EPROTONOSUPPORT,
			       "its virtual machine belongs to %s version of cloche, which this one does not support; "
			       "it is ended",
			       side < VM_SIDE_VERSION ? "an older" : "a newer");
	{
		struct sandbox_spec spec = { .tenant = rec->spec_tenant,
					     .flags = rec->spec_flags,
					     .limits = { .memory = rec->memory, .disk = rec->disk } };

		m = s->vm = vm_machine_new(&spec);
	}
	if (!m)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	m->sandbox = s;
	m->stack = vm_stack(w, s);
	m->role = rec->vm.cold ? VM_COLD : VM_CLONE;
	m->stage = VM_RUNS;
	m->cpu_base = rec->vm_cpu_base;
	/* Higher than all numbers that the last warden gave. */
	m->group = 0x40000000U | (uint32_t)(clock_mono_ns() >> 20 & 0x3fffffffU);
	r = vm_own_find(w, s, &rec->vm);
	if (r == 0)
		r = take_page(m, &s->blank);
	if (r == 0)
		r = m->side = persist_vm(&s->blank, FRAME_KEEP_SIDE);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "take over a virtual machine");
	if (m->role == VM_CLONE) {
		m->template = vm_template_hold(w, rec->spec_tenant, rec->vm_key, e);
		if (!m->template)
			return -ENOMEM;
	}
	in.data.ptr = m;
	if (epoll_ctl(w->vms->epoll, EPOLL_CTL_ADD, m->side, &in) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "wait for a virtual machine");
	LIST_ADD(&w->vms->machines, m);
	return 0;
}
