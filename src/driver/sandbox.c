#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "driver/driver.h"
#include "linux/cgroup.h"
#include "proto/wire.h"

static int on_ready(struct tier_sandbox *s, const struct frame *f, struct err *e)
{
	struct wire_in r = { f->payload, f->payload + f->len, false };
	uint32_t version = wire_get_u32(&r), abi = wire_get_u32(&r);

	if (r.bad || version != FRAME_VERSION) {
		err_set(e, ERR_INTERNAL, -EPROTO, "the agent speaks protocol version %u, expected %u", version,
			FRAME_VERSION);
		err_remedy(e, "install cloche and cloche-agent of the same version");
		return -EPROTO;
	}
	s->receipt.landlock_abi = abi;
	return 1;
}

int sandbox_frame(struct tier_sandbox *s, const struct frame *f, struct err *e)
{
	if (f->id != 0)
		return 0;
	if (f->type == FRAME_READY)
		return on_ready(s, f, e);
	if (f->type == FRAME_UP) {
		s->up = true;
		return 1;
	}
	if (f->type == FRAME_FAILED)
		return link_error(f, "make the sandbox", e, NULL);
	return 0;
}

static int lost(struct tier_sandbox *s, int r, struct err *e)
{
	struct warden *here = engine_warden(s->engine);
	int why = here ? warden_start_error(here) : 0;

	if (why < 0)
		return err_sys(e, ERR_UNSUPPORTED, why, "start the agent in its namespaces");
	return err_set(e, ERR_LOST, r, "the agent %s before the sandbox was ready",
		       r == -EBADMSG ? "sent an invalid message" : "died");
}

int sandbox_wait_up(struct tier_sandbox *s, int timeout_ms, struct err *e)
{
	uint64_t end = clock_mono_ns() + (uint64_t)timeout_ms * 1000000ULL;

	while (!s->up) {
		uint64_t now = clock_mono_ns();
		struct frame f;
		int fd = -1, r;

		r = now >= end ? 0 : link_next(&s->link, (int)((end - now) / 1000000ULL) + 1, &f, &fd);
		if (r == 0 && clock_mono_ns() >= end)
			return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "sandbox not ready after %d ms", timeout_ms);
		if (r < 0)
			return lost(s, r, e);
		if (r == 0)
			continue;
		fd_close(fd);
		r = sandbox_frame(s, &f, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Those that we may use; 0: not known. */
static unsigned host_cpus(void)
{
	uint64_t mask[16] = { 0 };
	int r = sys_sched_getaffinity(mask, sizeof(mask));
	unsigned n = 0;

	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(mask); i++)
		n += (unsigned)__builtin_popcountll(mask[i]);
	return n;
}

static void say_limits(const struct tier_sandbox *s, const struct sandbox_spec *spec,
		       void (*fn)(void *arg, const char *name, const char *how), void *arg)
{
	const struct spec_limits *l = &spec->limits;
	const bool vm = s->driver == &vm_driver;
	char text[96];

	if (s->receipt.controllers) {
		snprintf(text, sizeof(text), "version %u", s->receipt.cgroup_version);
		fn(arg, "cgroups", text);
	}
	if (l->memory) {
		snprintf(text, sizeof(text), "%llu bytes%s, no swap", (unsigned long long)l->memory,
			 vm ? " with the guest's kernel" : "");
		fn(arg, "memory", text);
	}
	if (l->pids) {
		snprintf(text, sizeof(text), "%u processes and threads", l->pids);
		fn(arg, "pids", text);
	}
	if (l->cpu_milli) {
		const unsigned host = l->cpu_milli > 1000 && !vm ? host_cpus() : 0;
		int n = snprintf(text, sizeof(text), "%u.%03u cores", l->cpu_milli / 1000, l->cpu_milli % 1000);

		if (host && l->cpu_milli > host * 1000)
			snprintf(text + n, sizeof(text) - (size_t)n, "; " SANDBOX_HOST_HAS " %u", host);
		fn(arg, "cpus", text);
	}
	if (l->io_bps) {
		snprintf(text, sizeof(text), "%llu bytes per second in each direction", (unsigned long long)l->io_bps);
		fn(arg, "io", text);
	}
	if (l->memory && !vm)
		fn(arg, "kernel_memory",
		   "sockets, locks, listings, descriptors and filters are included in the memory limit, checked every "
		   "10 ms");
	if (l->memory && !vm && s->receipt.sockets) {
		snprintf(text, sizeof(text), "%u to the internet, buffers of at most 212992 bytes (BPF)",
			 s->receipt.sockets);
		fn(arg, "sockets", text);
	}
	if (s->receipt.tenant_share) {
		snprintf(text, sizeof(text), "%u %% of the host's pools, for all sandboxes of the tenant", s->receipt.tenant_share);
		fn(arg, "tenant_share", text);
	}
	if (s->receipt.disk) {
		snprintf(text, sizeof(text), "%llu bytes, %s", (unsigned long long)s->receipt.disk,
			 vm || spec->flags & SPEC_DISK ? "on disk" : "in memory");
		fn(arg, "disk", text);
	}
	if (s->receipt.inodes) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)s->receipt.inodes);
		fn(arg, "inodes", text);
	}
}

void sandbox_enforced(const struct tier_sandbox *s, const struct sandbox_spec *spec,
		      void (*fn)(void *arg, const char *name, const char *how), void *arg)
{
	const struct warden_receipt *r = &s->receipt;
	char text[96];

	fn(arg, "isolation", s->driver->name);
	if (s->driver == &vm_driver) {
		/* All that follows is so inside, where the same warden made the sandbox. */
		fn(arg, "machine",
		   r->kvm ? "QEMU with KVM, no network card, no default devices, no nested machines" :
			    "QEMU without hardware acceleration, no network card, no default devices");
		fn(arg, "machine_jail",
		   spec->flags & SPEC_NET ?
			   "a container: its own user ids, no capabilities, no_new_privs, two filters, the sandbox's "
			   "network proxy" :
			   "a container: its own user ids, no capabilities, no_new_privs, two filters, no network");
	}
	fn(arg, "namespaces", "user, pid, mount, net, ipc, uts, cgroup, time");
	fn(arg, "user", r->rootless ? "one id, that of the caller" : "65536 ids of its own");
	fn(arg, "root", spec->flags & SPEC_READ_ONLY ? "overlay, pivot_root, read-only" : "overlay, pivot_root");
	fn(arg, "layers", r->idmapped ? "idmapped, read-only" : "read-only, foreign owners shown as nobody");
	fn(arg, "proc", "own, masked; no sysfs");
	fn(arg, "network", spec->flags & SPEC_NET ? "streams that cloche-egress allows, all others refused" : "none");
	fn(arg, "capabilities", spec->uid ? "none" : "chown dac_override fowner fsetid kill setgid setuid "
						     "net_bind_service setfcap, in its own user namespace");
	fn(arg, "no_new_privs", "on");
	snprintf(text, sizeof(text), "allowlist of %u instructions, socket families unix inet inet6 netlink-route",
		 r->filter_len);
	fn(arg, "seccomp", text);
	if (r->landlock_abi) {
		snprintf(text, sizeof(text), "abi %u", r->landlock_abi);
		fn(arg, "landlock", text);
	}
	for (uint32_t i = 0; i < spec->nmounts; i++) {
		if (spec->mount[i].read_only)
			continue;
		fn(arg, "host_files", "writable as their owner; no set-id bits, no file capabilities");
		break;
	}
	say_limits(s, spec, fn, arg);
}
