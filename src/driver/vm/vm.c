/*
 * The VM tier. A sandbox is a virtual machine; the machine runs in a container of its own, made by the same warden as any
 * other: with cloche-vmm as its only command, and QEMU beside it (vm/main.c). So what QEMU could do to this host, were it
 * taken over from inside, is what any sandbox can. What runs inside is spoken to through cloche-vmm as if that were an
 * agent.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "driver/driver.h"
#include "driver/exec.h"
#include "driver/vm/vm.h"
#include "vm/start.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define VMM "/vm/cloche-vmm" /* where it is in the jail */
#define VMM_EXEC 1U
#define VMM_UID 1000U
#define MEMORY_MIN (96 * MIB)
#define MEMORY_OVER (192 * MIB) /* QEMU itself, its translated code, cloche-vmm */
#define MEMORY_OVER_CPU (16 * MIB)
#define JAIL_PIDS 64
#define JAIL_DISK (4 * MIB)
#define CPUS_MAX 16U
#define BOOT_MS 120000 /* emulated, on a busy machine */
#define STAT_MS 3000
#define LOG_MAX 4096

struct vm {
	struct sandbox jail;
	bool jailed;
	int side; /* to cloche-vmm */
	int sock; /* the agent's, as far as anybody knows */
	int log; /* what cloche-vmm and QEMU say */
	uint64_t cpu_base; /* what booting took */
	struct mux_stat last; /* that the guest told */
};

static struct vm *tier(struct sandbox *s)
{
	return s->tier;
}

static int unsupported(const char *what, const char *remedy, struct err *e)
{
	err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "isolation 'vm': %s", what);
	err_remedy(e, "%s", remedy);
	return -EOPNOTSUPP;
}

static int check(struct engine *g, const struct sandbox_spec *s, struct err *e)
{
	int r;

	if (!engine_warden(g))
		return unsupported("not through a daemon in this version", "use `cloche run`", e);
	r = vm_ready(e);
	if (r < 0)
		return err_wrap(e, r, "isolation 'vm'");
	if (s->nmounts)
		return unsupported("folders of the host cannot be mounted in this version", "leave --mount out", e);
	if (s->layers || s->flags & SPEC_MEMORY)
		return unsupported("checkpoints are not in this version", "use --isolation container", e);
	if (s->net.mode != STEER_NONE)
		return unsupported("there is no network in this version", "use --network none", e);
	if (s->limits.memory < MEMORY_MIN)
		return err_set(e, ERR_INVALID, -EINVAL, "memory: a virtual machine needs a size of at least %lluM",
			       (unsigned long long)(MEMORY_MIN / MIB));
	return spec_check(s, e);
}

static uint32_t cpus(const struct spec_limits *l)
{
	long here = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t n = l->cpu_milli ? (l->cpu_milli + 999) / 1000 : here > 0 ? (uint32_t)here : 1;

	return n < CPUS_MAX ? n : CPUS_MAX;
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

/* What QEMU is to live in. */
static int make_jail(struct engine *g, const struct sandbox_spec *spec, struct sandbox *ret, struct err *e)
{
	AUTO_FREE struct sandbox_spec *jail = calloc(1, sizeof(*jail));
	char path[512];
	int r;

	if (!jail)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	jail->tenant = spec->tenant;
	snprintf(jail->image, sizeof(jail->image), "host");
	snprintf(jail->hostname, sizeof(jail->hostname), "vm");
	snprintf(jail->workdir, sizeof(jail->workdir), "/tmp");
	jail->uid = jail->gid = VMM_UID;
	jail->limits = (struct spec_limits){
		.memory = spec->limits.memory + MEMORY_OVER + cpus(&spec->limits) * MEMORY_OVER_CPU,
		.disk = JAIL_DISK,
		.cpu_milli = spec->limits.cpu_milli,
		.pids = JAIL_PIDS,
	};
	r = vm_file("kernel", path, sizeof(path), e);
	if (r == 0)
		r = add_mount(jail, path, VM_KERNEL, e);
	if (r == 0)
		r = program_path("cloche-vmm", path, sizeof(path), e);
	if (r == 0)
		r = add_mount(jail, path, VMM, e);
	if (r == 0)
		r = container_driver.create(g, jail, ret, e);
	return r < 0 ? err_wrap(e, r, "the machine's jail") : 0;
}

static int start_vmm(struct vm *v, int side, int log, struct err *e)
{
	static const char *const argv[] = { VMM };
	const struct exec_spec x = { .argv = argv, .argc = 1, .cwd = "/", .uid = VMM_UID, .gid = VMM_UID, .filter = -1 };

	return exec_send(&v->jail, VMM_EXEC, &x, (int[]){ side, log, log }, e);
}

static int send_start(const struct vm *v, const struct sandbox_spec *spec, const int fds[OLD_FDS], struct err *e)
{
	static_assert(sizeof(*spec) <= VM_SPEC_MAX, "the spec fits");
	struct old_start s = {
		.version = VM_START_VERSION,
		.memory_mib = (uint32_t)(spec->limits.memory / MIB),
		.cpus = cpus(&spec->limits),
		.io_bps = spec->limits.io_bps,
		.spec_len = sizeof(*spec),
	};
	AUTO_FREE uint8_t *out = malloc(sizeof(s) + sizeof(*spec));
	int r;

	if (!out)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a message");
	memcpy(out, &s, sizeof(s));
	memcpy(out + sizeof(s), spec, sizeof(*spec));
	r = fd_send(v->side, out, sizeof(s) + sizeof(*spec), fds, fds[OLD_FD_USR] < 0 ? OLD_FD_USR : OLD_FDS);
	return r < 0 ? err_sys(e, ERR_LOST, r, "tell cloche-vmm what to run") : 0;
}

/* Of image `host` there are two: the skeleton, which is small and changes with /etc, and /usr. */
static int open_images(struct engine *g, const struct sandbox_spec *spec, int fds[OLD_FDS], struct err *e)
{
	const struct image_host *host = warden_image(engine_warden(g));
	int r;

	if (strcmp(spec->image, "host"))
		return vm_image(spec->image, &fds[OLD_FD_ROOT], e);
	r = vm_image_of("host", host->root, &fds[OLD_FD_ROOT], e);
	return r < 0 ? r : vm_image_of("/usr", host->usr, &fds[OLD_FD_USR], e);
}

static int open_files(struct engine *g, const struct sandbox_spec *spec, int fds[OLD_FDS], struct err *e)
{
	int r = open_images(g, spec, fds, e);

	if (r == 0)
		r = vm_initrd(&fds[OLD_FD_INITRD], e);
	if (r == 0)
		r = vm_disk(spec->limits.disk, spec->limits.inodes, &fds[OLD_FD_DISK], e);
	return r;
}

/* The last line that cloche-vmm or QEMU said, as far as it is one. "" when none. */
static void last_words(const struct vm *v, char *ret, size_t size)
{
	char text[LOG_MAX + 1], *end, *line;
	ssize_t n = read(v->log, text, LOG_MAX), more = n;
	size_t k = 0;

	ret[0] = '\0';
	while (more > 0) {
		char next[LOG_MAX];

		more = read(v->log, next, sizeof(next));
		if (more > 0)
			memcpy(text, next, (size_t)(n = more));
	}
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

/* When the machine did not come up: the jail, or what was said, may tell more than the end of a socket. */
static int explain(struct vm *v, int r, struct err *e)
{
	char said[160];
	struct frame f;
	int fd = -1;

	while (link_next(&v->jail.link, 0, &f, &fd) == 1) {
		fd_close(fd);
		if (f.type == FRAME_FAILED)
			return link_error(&f, f.id ? "start cloche-vmm" : "make the machine's jail", e, NULL);
	}
	last_words(v, said, sizeof(said));
	if (!said[0] || r == -ETIMEDOUT)
		return r;
	err_set(e, ERR_UNSUPPORTED, r, "the machine did not start: %s", said);
	if (strstr(said, "/qemu-system"))
		err_remedy(e, "install QEMU: qemu-system-x86 or qemu-system-arm");
	return r;
}

static void vm_free(struct vm *v)
{
	fd_close(v->side);
	fd_close(v->sock);
	fd_close(v->log);
	free(v);
}

static int bring_up(struct vm *v, const struct sandbox_spec *spec, struct sandbox *s, struct err *e)
{
	int fds[OLD_FDS] = { -1, -1, -1, -1, -1 }, side[2] = { -1, -1 }, sock[2] = { -1, -1 }, log[2] = { -1, -1 };
	struct warden_stat st;
	int r = open_files(s->engine, spec, fds, e);

	if (r == 0)
		r = make_jail(s->engine, spec, &v->jail, e);
	if (r < 0)
		goto out;
	v->jailed = true;
	r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, side);
	if (r == 0)
		r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock);
	if (r == 0)
		r = sys_pipe2(log, O_CLOEXEC | O_NONBLOCK);
	v->side = side[0];
	v->sock = sock[0];
	v->log = log[0];
	fds[OLD_FD_AGENT] = sock[1];
	if (r < 0) {
		err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
		goto out;
	}
	s->pidfd = v->jail.pidfd;
	s->receipt = v->jail.receipt;
	s->receipt.uid_base = 0; /* nothing of ours belongs to anybody inside */
	s->receipt.disk = spec->limits.disk;
	s->receipt.inodes = 0;
	link_init(&s->link, v->sock);
	r = start_vmm(v, side[1], log[1], e);
	if (r == 0)
		r = send_start(v, spec, fds, e);
	/* With our copies open we would not hear of their end. */
	fd_close_many(fds, OLD_FDS);
	fd_close(TAKE_FD(side[1]));
	fd_close(TAKE_FD(log[1]));
	sock[1] = -1;
	if (r == 0)
		r = sandbox_wait_up(s, BOOT_MS, e);
	if (r < 0)
		r = explain(v, r, e);
	else if (container_driver.stat(&v->jail, &st, NULL) == 0)
		v->cpu_base = st.group.cpu_usec;
out:
	fd_close(side[1]);
	fd_close(log[1]);
	fd_close_many(fds, OLD_FDS);
	return r;
}

static int vm_destroy(struct sandbox *s, struct err *e)
{
	struct vm *v = tier(s);
	int r = 0;

	link_done(&s->link);
	if (v->jailed)
		r = v->jail.driver->destroy(&v->jail, e);
	vm_free(v);
	s->tier = NULL;
	return r;
}

static int vm_create(struct engine *g, const struct sandbox_spec *spec, struct sandbox *ret, struct err *e)
{
	struct sandbox s = { .driver = &vm_driver, .engine = g, .pidfd = -1 };
	struct vm *v;
	int r = check(g, spec, e);

	if (r < 0)
		return r;
	v = calloc(1, sizeof(*v));
	if (!v)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a machine");
	v->side = v->sock = v->log = -1;
	s.tier = v;
	link_init(&s.link, -1);
	r = bring_up(v, spec, &s, e);
	if (r < 0) {
		vm_destroy(&s, NULL);
		return r;
	}
	*ret = s;
	return 0;
}

/* What the guest says of itself, for as long as it says anything. */
static void ask(struct vm *v)
{
	uint64_t end = clock_mono_ns() + STAT_MS * 1000000ULL;
	const char what = VM_ASK_STAT;
	uint8_t data[MUX_STAT_LEN];
	bool answered = false;

	if (send(v->side, &what, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		end = 0; /* its last word may be there */
	while (!answered || end == 0) {
		struct pollfd p = { .fd = v->side, .events = POLLIN };
		uint64_t now = clock_mono_ns();
		ssize_t n;

		if (poll(&p, 1, end > now ? (int)((end - now) / 1000000ULL) + 1 : 0) <= 0)
			return;
		n = recv(v->side, data, sizeof(data), MSG_DONTWAIT);
		if (n <= 0)
			return;
		answered = mux_stat_decode(&(struct mux){ .payload = data, .len = (uint32_t)n }, &v->last) == 0;
	}
}

static int vm_stat(struct sandbox *s, struct warden_stat *ret, struct err *e)
{
	struct vm *v = tier(s);
	struct warden_stat st;
	int r = v->jail.driver->stat(&v->jail, &st, e);

	if (r < 0)
		return r;
	ask(v);
	*ret = (struct warden_stat){
		.group = {
			.memory = v->last.memory,
			.memory_peak = v->last.memory_peak,
			.memory_files = v->last.memory_files,
			/* The machine itself, too: it has a limit of its own. */
			.oom_kills = v->last.oom_kills + st.group.oom_kills,
			.pids = v->last.pids,
			.pids_peak = v->last.pids_peak,
			.pids_refused = v->last.pids_refused,
			/* As this host counts it: of emulation, too, since that is what it costs. */
			.cpu_usec = st.group.cpu_usec > v->cpu_base ? st.group.cpu_usec - v->cpu_base : 0,
			.throttled_usec = st.group.throttled_usec,
			.io_bytes = v->last.io_bytes,
		},
		.disk_used = v->last.disk_used,
		.disk_size = v->last.disk_size,
		.inodes_used = v->last.inodes_used,
		.inodes_size = v->last.inodes_size,
	};
	return 0;
}

static int vm_freeze(struct sandbox *s, struct err *e)
{
	return container_driver.freeze(&tier(s)->jail, e);
}

static int vm_thaw(struct sandbox *s, struct err *e)
{
	return container_driver.thaw(&tier(s)->jail, e);
}

static int vm_refresh(struct sandbox *s)
{
	(void)s;
	return 0;
}

const struct driver vm_driver = {
	.name = "vm",
	.abilities = DRIVER_FREEZE,
	.create = vm_create,
	.destroy = vm_destroy,
	.stat = vm_stat,
	.freeze = vm_freeze,
	.thaw = vm_thaw,
	.refresh = vm_refresh,
};
