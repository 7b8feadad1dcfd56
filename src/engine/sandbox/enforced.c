/* The receipt in words. Apart from what fills it, because the program that stays root says nothing of it. */
#include "engine/sandbox/enforced.h"
#include "base/base.h"
#include "base/sys.h"
#include "engine/sandbox/sandbox.h"
#include "engine/tier.h"

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

static void say_limits(const struct warden_receipt *r, const struct sandbox_spec *spec, bool vm, enforced_fn *fn,
		       void *arg)
{
	const struct spec_limits *l = &spec->limits;
	char text[96];

	if (r->controllers) {
		snprintf(text, sizeof(text), "version %u", r->cgroup_version);
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
			snprintf(text + n, sizeof(text) - (size_t)n, "; " ENFORCED_HOST_HAS " %u", host);
		fn(arg, "cpus", text);
	}
	if (l->io_bps) {
		snprintf(text, sizeof(text), "%llu bytes per second in each direction, on its own disk",
			 (unsigned long long)l->io_bps);
		fn(arg, "io", text);
	}
	if (l->memory && !vm)
		fn(arg, "kernel_memory",
		   "sockets, locks, listings, descriptors and filters are included in the memory limit, checked every "
		   "10 ms");
	if (l->memory && !vm && r->sockets) {
		snprintf(text, sizeof(text), "%u to the internet, buffers of at most 212992 bytes (BPF)", r->sockets);
		fn(arg, "sockets", text);
	}
	if (r->tenant_share) {
		snprintf(text, sizeof(text), "%u %% of the host's pools, for all sandboxes of the tenant",
			 r->tenant_share);
		fn(arg, "tenant_share", text);
	}
	if (r->disk) {
		snprintf(text, sizeof(text), "%llu bytes, %s", (unsigned long long)r->disk,
			 vm || spec->flags & SPEC_DISK ? "on disk" : "in memory");
		fn(arg, "disk", text);
	}
	if (r->inodes) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)r->inodes);
		fn(arg, "inodes", text);
	}
}

static void say_machine(const struct warden_receipt *r, const struct sandbox_spec *spec, enforced_fn *fn, void *arg)
{
	fn(arg, "machine",
	   r->kvm ? "QEMU with KVM, no network card, no default devices, no nested machines" :
		    "QEMU without hardware acceleration, no network card, no default devices");
	fn(arg, "machine_jail",
	   spec->flags & SPEC_NET ?
		   "a container: its own user ids, no capabilities, no_new_privs, two filters, the sandbox's network "
		   "proxy" :
		   "a container: its own user ids, no capabilities, no_new_privs, two filters, no network");
}

void enforced_say(const struct tier_ops *tier, const struct warden_receipt *r, const struct sandbox_spec *spec,
		  enforced_fn *fn, void *arg)
{
	char text[96];

	fn(arg, "isolation", tier->name);
	if (tier->bare) {
		fn(arg, "nothing", tier->bare);
		return;
	}
	if (tier->machine)
		say_machine(r, spec, fn,
			    arg); /* all that follows is so inside, where the same warden made the sandbox */
	fn(arg, "namespaces", "user, pid, mount, net, ipc, uts, cgroup, time");
	fn(arg, "user", r->rootless ? "one id, that of the caller" : "65536 ids of its own");
	fn(arg, "root", spec->flags & SPEC_READ_ONLY ? "overlay, pivot_root, read-only" : "overlay, pivot_root");
	fn(arg, "layers", r->idmapped ? "idmapped, read-only" : "read-only, foreign owners shown as nobody");
	fn(arg, "proc", "own, masked; no sysfs");
	fn(arg, "network", spec->flags & SPEC_NET ? "streams that cloche-egress allows, all others refused" : "none");
	fn(arg, "capabilities",
	   spec->uid ? "none" :
		       "chown dac_override fowner fsetid kill setgid setuid "
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
	for (uint32_t i = 0, n = 0; i < spec->ndevices; i++) {
		const bool gpu = !strncmp(spec->device[i], "gpu=", 4) || strstr(spec->device[i], "/gpu=");

		if (gpu && n++ == 0)
			fn(arg, "gpus",
			   "their driver runs in the host's kernel and is shared with all who use it; no limit of a GPU's memory or time, but for MIG devices");
		else if (!gpu && i - n == 0)
			fn(arg, "devices", "nodes of the host: what their drivers allow");
	}
	say_limits(r, spec, tier->machine, fn, arg);
}
