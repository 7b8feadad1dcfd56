/*
 * The jail of a machine, and the settings for cloche-vmm. The jail is a container that the warden makes: image `host`,
 * read-only, no capabilities, an id of its own, with cloche-vmm as its only command and QEMU as the child of that. So a
 * QEMU that was taken over from inside can do to this host what any sandbox can.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "engine/program.h"
#include "vm/host/files.h"
#include "vm/host/host.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define VMM "/vm/cloche-vmm" /* its path in the jail */
#define VMM_EXEC 1U
#define VMM_UID 1000U
#define MEMORY_OVER (192 * MIB) /* QEMU itself, its translated code, cloche-vmm */
#define MEMORY_OVER_CPU (16 * MIB)
#define JAIL_PIDS 64
#define JAIL_DISK (4 * MIB)
#define CPUS_MAX 16U
#define CPUS_ANY 4U /* number that any host allows */
#define LOG_MAX 4096
#define LOG_READS 16U

struct machine *vm_machine_new(const struct sandbox_spec *spec)
{
	struct machine *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->spec = *spec;
	m->side = m->sock = m->log = m->page = m->ram = -1;
	for (unsigned i = 0; i < VM_OWN_MAX; i++)
		m->own[i].fd = m->own[i].copy = m->own[i].sums = -1;
	return m;
}

void vm_machine_free(struct machine *m)
{
	if (!m)
		return;
	if (m->stat)
		munmap((void *)(uintptr_t)m->stat, 4096);
	fd_close_many((int[]){ m->side, m->sock, m->log, m->page, m->ram }, 5);
	for (unsigned i = 0; i < VM_OWN_MAX; i++)
		seal_disk_done(&m->own[i]);
	free(m);
}

uint32_t vm_cpus(const struct spec_limits *l)
{
	long here = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t n = l->cpu_milli ? (l->cpu_milli + 999) / 1000 : here > 0 ? (uint32_t)here : 1;

	return n < CPUS_MAX ? n : CPUS_MAX;
}

int vm_fits(const struct spec_limits *l, struct err *e)
{
	const long here = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	/* Some more than the host has do no harm, and a checkpoint may come from a larger host. */
	const uint32_t cpus = here > (long)CPUS_MAX ? CPUS_MAX : here > (long)CPUS_ANY ? (uint32_t)here : CPUS_ANY;
	const uint64_t memory = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;

	if (l->cpu_milli > cpus * 1000U) {
		err_set(e, WHY_HOST_TOO_SMALL, -ERANGE, "cpus: a virtual machine can have at most %u here (got %u)",
			cpus, (l->cpu_milli + 999) / 1000);
		err_remedy(e, "request at most %u; a container may request more than there are", cpus);
		return -ERANGE;
	}
	if (l->memory > memory)
		return err_advise(e, WHY_HOST_TOO_SMALL, -ERANGE, "request less memory than that",
				  "memory: a virtual machine of %lluM is larger than this host, which has %lluM",
				  (unsigned long long)(l->memory / MIB), (unsigned long long)(memory / MIB));
	return 0;
}

void vm_guest_spec(const struct sandbox_spec *from, struct sandbox_spec *to)
{
	*to = *from;
	to->tenant = 0;
	to->flags &= ~(SPEC_TIERS | SPEC_MEMORY);
	to->layers = 0;
	memset(to->layer, 0, sizeof(to->layer));
	memset(to->hostname, 0, sizeof(to->hostname));
	to->limits.cpu_milli = 0;
	to->limits.io_bps = 0;
	/*
	 * The policy is enforced outside, in the jail's own network. The guest gets its settings with GO (vm_steer()).
	 */
	memset(&to->net, 0, sizeof(to->net));
	if (to->flags & SPEC_NET)
		to->net.mode = from->net.mode == STEER_OBSERVE ? STEER_OPEN : from->net.mode;
}

static int add_mount(struct sandbox_spec *s, const char *src, const char *dst, struct err *e)
{
	struct spec_mount *m = &s->mount[s->nmounts++];

	if ((size_t)snprintf(m->src, sizeof(m->src), "%s", src) >= sizeof(m->src))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "%s: the path is too long", src);
	snprintf(m->dst, sizeof(m->dst), "%s", dst);
	m->read_only = 1;
	return 0;
}

static int jail_spec(const struct machine *m, struct sandbox_spec *jail, struct err *e)
{
	const struct spec_limits *l = &m->spec.limits;
	char path[SPEC_PATH * 2];
	int r;

	memset(jail, 0, sizeof(*jail));
	jail->tenant = m->spec.tenant;
	snprintf(jail->image, sizeof(jail->image), "host");
	snprintf(jail->workdir, sizeof(jail->workdir), "/tmp");
	snprintf(jail->hostname, sizeof(jail->hostname), "vm");
	jail->uid = jail->gid = VMM_UID;
	jail->flags = SPEC_READ_ONLY | SPEC_JAIL | (m->accel == VM_KVM ? SPEC_KVM : 0);
	if (m->role != VM_TEMPLATE && m->spec.flags & SPEC_NET) {
		jail->flags |= SPEC_NET;
		jail->net = m->spec.net;
	}
	jail->limits = (struct spec_limits){
		/*
		 * Twice: a clone's first write to a page that its template never touched allocates one in the
		 * template's memfd, too, and is charged to the clone.
		 */
		.memory = 2 * l->memory + MEMORY_OVER + vm_cpus(l) * MEMORY_OVER_CPU,
		.disk = JAIL_DISK,
		.cpu_milli = l->cpu_milli,
		.pids = JAIL_PIDS,
	};
	r = vm_file("kernel", path, sizeof(path), e);
	if (r == 0)
		r = add_mount(jail, path, VM_KERNEL, e);
	if (r == 0)
		r = program_path("cloche-vmm", path, sizeof(path), e);
	return r < 0 ? r : add_mount(jail, path, VMM, e);
}

/* Its stdin is the side socket, its stderr a pipe that never blocks it. */
static int start_vmm(int sock, int side, int log)
{
	static const char *const argv[] = { VMM };
	const struct frame_exec x = { .uid = VMM_UID, .gid = VMM_UID, .cwd = "/", .argc = 1, .argv = argv };
	uint8_t out[FRAME_HEAD + 256];
	long n = frame_exec_encode(&x, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);

	if (n < 0)
		return (int)n;
	frame_head(out, FRAME_EXEC, 3, VMM_EXEC, (uint32_t)n);
	return fd_send(sock, out, FRAME_HEAD + (size_t)n, (int[]){ side, log, log }, 3);
}

int vm_jail(struct warden *w, struct machine *m, struct err *e)
{
	AUTO_FREE struct sandbox_spec *jail = malloc(sizeof(*jail));
	int side[2] = { -1, -1 }, log[2] = { -1, -1 }, r;

	if (!jail)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	r = jail_spec(m, jail, e);
	if (r < 0)
		return r;
	m->page = vm_stat_page(e);
	if (m->page < 0)
		return m->page;
	m->stat = vm_stat_map(m->page);
	if (!m->stat)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	r = sandbox_make(w, jail, m->sandbox, e);
	if (r < 0)
		return err_wrap(e, r, "the virtual machine's jail");
	fd_close_many(m->sandbox->root.fds, m->sandbox->root.setup.mounts.n);
	m->sandbox->root.setup.mounts.n = 0;
	r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, side);
	if (r == 0)
		r = sys_pipe2(log, O_CLOEXEC | O_NONBLOCK);
	if (r == 0)
		r = start_vmm(m->sandbox->blank.sock, side[1], log[1]);
	fd_close_many((int[]){ side[1], log[1] }, 2);
	m->side = side[0];
	m->log = log[0];
	return r < 0 ? err_sys(e, ERR_LOST, r, "start cloche-vmm") : 0;
}

static int say_start(struct warden *w, struct machine *m, struct vm_msg *msg, const int *fds, unsigned n, struct err *e)
{
	AUTO_FREE uint8_t *out = calloc(1, sizeof(*msg) + sizeof(struct sandbox_spec));
	size_t len = sizeof(*msg);
	int r;

	static_assert(sizeof(struct sandbox_spec) <= VM_SPEC_MAX, "the spec fits");
	if (!out)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a message");
	msg->version = VM_SIDE_VERSION;
	msg->type = VM_START;
	msg->start.role = m->role;
	msg->start.accel = m->accel;
	msg->start.memory_mib = (uint32_t)(m->spec.limits.memory / MIB);
	msg->start.cpus = vm_cpus(&m->spec.limits);
	msg->start.io_bps = m->spec.limits.io_bps;
	msg->start.flags = w->env.persist ? VM_KEEP : 0;
	if (m->role != VM_CLONE) {
		struct sandbox_spec *guest = (struct sandbox_spec *)(void *)(out + len);

		vm_guest_spec(&m->spec, guest);
		if (guest->flags & SPEC_NET)
			msg->start.flags |= (1 + guest->net.mode) << VM_WAY_SHIFT;
		/* Clones get the rest later. */
		if (m->role == VM_COLD)
			memcpy(guest->hostname, m->spec.hostname, sizeof(guest->hostname));
		msg->start.spec_len = sizeof(struct sandbox_spec);
	}
	memcpy(out, msg, sizeof(*msg));
	r = fd_send_now(m->side, out, len + msg->start.spec_len, fds, n);
	return r < 0 ? err_sys(e, ERR_LOST, r, "send cloche-vmm its settings") : 0;
}

int vm_start_template(struct warden *w, struct machine *m, const struct vm_work *x, struct err *e)
{
	struct vm_msg msg = { .start = { .disks = 1, .fds = VM_FD_STAT | VM_FD_INITRD | VM_FD_ROOT } };
	const struct vm_picture *p = m->picture;
	int fds[8];
	unsigned n = 0;

	fds[n++] = m->page;
	if (m->role == VM_TEMPLATE) {
		msg.start.fds |= VM_FD_META | VM_FD_RAM;
		fds[n++] = x->fd[VM_FILE_META];
		fds[n++] = x->fd[VM_FILE_RAM];
		memcpy(msg.start.what.key, m->template->key, SHA256_SIZE);
		memcpy(msg.start.what.kernel, x->made.kernel, SHA256_SIZE);
		memcpy(msg.start.what.initrd, x->made.initrd_sum, SHA256_SIZE);
		memcpy(msg.start.what.root, p->root_id, SHA256_SIZE);
		memcpy(msg.start.what.usr, p->usr_id, SHA256_SIZE);
	}
	fds[n++] = x->fd[VM_FILE_INITRD];
	fds[n++] = p->root;
	if (p->usr >= 0) {
		msg.start.fds |= VM_FD_USR;
		fds[n++] = p->usr;
	}
	fds[n++] = x->fd[VM_FILE_DISK];
	return say_start(w, m, &msg, fds, n, e);
}

/* The chain: the template's disk, those of its layers, and one of its own. */
static int chain(struct warden *w, struct machine *m, int *fds, unsigned max, struct err *e)
{
	const struct warden_sandbox *s = m->sandbox;
	unsigned below;
	int r = 0;

	if (vm_disks(s))
		r = vm_layer_disks(w, s->layer + s->vm->stack, vm_disks(s), fds + 1, max - 2, e);
	if (r < 0)
		return r;
	fds[0] = m->template->fd[VM_FILE_DISK];
	below = (unsigned)r + 1;
	r = vm_own_first(w, m, below, e);
	if (r < 0) {
		fd_close_many(fds + 1, below - 1);
		return r;
	}
	fds[below] = m->own[0].fd;
	return (int)below + 1;
}

int vm_start_clone(struct warden *w, struct machine *m, int meta, int ram, struct err *e)
{
	struct vm_msg msg = { .start = { .fds = VM_FD_STAT | VM_FD_META | VM_FD_RAM | VM_FD_ROOT } };
	const struct vm_template *t = m->template;
	int fds[5 + VM_CHAIN_MAX], r;
	unsigned n = 0;

	fds[n++] = m->page;
	fds[n++] = meta;
	fds[n++] = ram;
	fds[n++] = t->fd[VM_FILE_ROOT];
	if (t->fd[VM_FILE_USR] >= 0) {
		msg.start.fds |= VM_FD_USR;
		fds[n++] = t->fd[VM_FILE_USR];
	}
	r = chain(w, m, fds + n, VM_CHAIN_MAX, e);
	if (r < 0)
		return r;
	msg.start.disks = (uint32_t)r;
	static_assert(ARRAY_LEN(fds) <= FD_MSG_MAX, "they go with one message");
	{
		const unsigned disks = (unsigned)r;

		r = say_start(w, m, &msg, fds, n + disks, e);
		fd_close_many(fds + n + 1, disks - 2); /* its layers' */
	}
	return r;
}

int vm_go(struct warden *w, struct machine *m, struct err *e)
{
	struct warden_sandbox *s = m->sandbox;
	struct vm_msg msg = { .version = VM_SIDE_VERSION, .type = VM_GO };
	struct warden_stat st;
	int pair[2], r;

	memcpy(msg.go.hostname, m->spec.hostname, sizeof(msg.go.hostname) - 1);
	if (sys_getrandom(msg.go.generation, sizeof(msg.go.generation), 0) != sizeof(msg.go.generation) ||
	    sys_getrandom(msg.go.seed, sizeof(msg.go.seed), 0) != sizeof(msg.go.seed))
		return err_set(e, ERR_INTERNAL, -EIO, "draw random numbers");
	if (m->role == VM_CLONE)
		msg.go.flags |= VM_GO_FRESH;
	if (vm_disks(s) && !(s->flags & SPEC_MEMORY))
		msg.go.flags |= VM_GO_DROP;
	for (uint32_t i = 0; vm_disks(s) && i < m->spec.ntmpfs; i++)
		if (!strcmp(m->spec.tmpfs[i].path, SPEC_SECRETS))
			msg.go.flags |= VM_GO_SECRETS;
	if (cgroup_stat(&w->env.cgroups, &s->blank.cgroup, &st.group) == 0)
		m->cpu_base = st.group.cpu_usec;
	r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	m->sock = pair[0];
	/* The template or layers may have had another network. */
	r = m->spec.flags & SPEC_NET || vm_disks(s) ? vm_steer(s, m->spec.flags & SPEC_NET ? &m->spec.net : NULL, e) :
						      0;
	/* From now on it may outlive this warden: the next one ends it if it is not up. */
	if (r == 0 && w->env.persist)
		r = sandbox_persist(w, s, e);
	if (r == 0) {
		r = fd_send_now(m->side, &msg, sizeof(msg), &pair[1], 1);
		if (r < 0)
			err_sys(e, ERR_LOST, r, "continue the virtual machine");
	}
	fd_close(pair[1]);
	return r;
}

void vm_last_words(const struct machine *m, char *ret, size_t size)
{
	char text[LOG_MAX + 1], next[LOG_MAX], *end, *line;
	ssize_t n = 0, more = 1;
	size_t k = 0;

	ret[0] = '\0';
	/* At most what a pipe holds, even if the writer continues. */
	for (unsigned i = 0; more > 0 && i <= LOG_READS; i++)
		if ((more = read(m->log, next, sizeof(next))) > 0)
			memcpy(text, next, (size_t)(n = more));
	if (n <= 0)
		return;
	text[n] = '\0';
	for (end = text + n; end > text && strchr(" \r\n", end[-1]); end--)
		end[-1] = '\0';
	line = strrchr(text, '\n');
	for (line = line ? line + 1 : text; *line && k + 1 < size; line++)
		ret[k++] = *line >= ' ' && *line < 127 ? *line : '?';
	ret[k] = '\0';
}

/* Whether its agent failed to start cloche-vmm at all. */
static int jail_failed(const struct machine *m, struct err *e)
{
	uint8_t in[2048];
	struct frame_failed x;
	struct frame f;
	ssize_t n = recv(m->sandbox->blank.sock, in, sizeof(in), MSG_DONTWAIT);
	size_t at = 0;
	long used;

	while (n > 0 && (used = frame_decode(in + at, (size_t)n - at, &f)) > 0) {
		at += (size_t)used;
		if (f.type == FRAME_FAILED && frame_failed_decode(&f, &x) == 0)
			return err_sys(e, ERR_INTERNAL, x.errnum ? -(int)x.errnum : -EIO,
				       "the virtual machine's jail: %s: %s", f.id ? "start cloche-vmm" : "make it",
				       frame_stage_text(x.stage));
	}
	return 0;
}

int vm_explain(struct machine *m, int r, struct err *e)
{
	char said[160];
	int why = m->sandbox->blank.sock >= 0 ? jail_failed(m, e) : 0;

	if (why < 0)
		return why;
	vm_last_words(m, said, sizeof(said));
	if (!said[0] || r == -ETIMEDOUT)
		return r;
	err_set(e, strstr(said, "/qemu-system") ? ERR_UNSUPPORTED : ERR_LOST, r,
		"the virtual machine did not start: %s", said);
	if (strstr(said, "/qemu-system"))
		err_remedy(e, "install QEMU: qemu-system-x86 or qemu-system-arm");
	return r;
}
