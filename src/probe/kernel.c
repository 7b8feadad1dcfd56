/* Parts of the kernel that sandboxed code has no business in: each is a class of past escapes. */
#include "probe/probe.h"
#include "base/base.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* Numbers that older headers lack; the same on every architecture we know. */
#define NR_IO_URING_SETUP 425
#define NR_IO_URING_ENTER 426
#define NR_IO_URING_REGISTER 427
#define NR_OPEN_TREE 428
#define NR_MOVE_MOUNT 429
#define NR_FSOPEN 430
#define NR_FSCONFIG 431
#define NR_FSMOUNT 432
#define NR_FSPICK 433
#define NR_CLONE3 435
#define NR_MOUNT_SETATTR 442
#define NR_LANDLOCK_CREATE 444
#define NR_LANDLOCK_ADD 445
#define NR_LANDLOCK_RESTRICT 446
#define NR_MEMFD_SECRET 447

static enum verdict io_uring(struct probe_run *p)
{
	char params[120] = { 0 };
	bool hole = probe_reached(p, "io_uring_setup", probe_call(NR_IO_URING_SETUP, 4UL, params));

	hole |= probe_reached(p, "io_uring_enter", probe_call(NR_IO_URING_ENTER, -1L, 0UL, 0UL, 0UL, 0UL, 0UL));
	hole |= probe_reached(p, "io_uring_register", probe_call(NR_IO_URING_REGISTER, -1L, 0UL, 0UL, 0UL));
	return probe_end(p, hole, "refused");
}

static enum verdict bpf(struct probe_run *p)
{
	struct bpf_insn ret0[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K }, { .code = BPF_JMP | BPF_EXIT } };
	union bpf_attr map = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1 };
	union bpf_attr prog = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
				.insn_cnt = 2,
				.insns = (uintptr_t)ret0,
				.license = (uintptr_t) "GPL" };
	bool hole = probe_reached(p, "map", probe_call(SYS_bpf, (long)BPF_MAP_CREATE, &map, sizeof(map)));

	hole |= probe_reached(p, "program", probe_call(SYS_bpf, (long)BPF_PROG_LOAD, &prog, sizeof(prog)));
	return probe_end(p, hole, "refused");
}

static enum verdict perf(struct probe_run *p)
{
	struct perf_event_attr hw = { .type = PERF_TYPE_HARDWARE, .size = sizeof(hw), .exclude_kernel = 1 };
	struct perf_event_attr sw = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(sw), .exclude_kernel = 1 };
	bool hole;

	sw.config = PERF_COUNT_SW_TASK_CLOCK;
	hole = probe_reached(p, "hardware counter", probe_call(SYS_perf_event_open, &hw, 0L, -1L, -1L, 0UL));
	hole |= probe_reached(p, "software counter", probe_call(SYS_perf_event_open, &sw, 0L, -1L, -1L, 0UL));
	return probe_end(p, hole, "refused");
}

static enum verdict userfault(struct probe_run *p)
{
	bool hole = probe_reached(p, "userfaultfd", probe_call(SYS_userfaultfd, (long)O_CLOEXEC));
	int fd;

	hole |= probe_reached(p, "userfaultfd for user mode", probe_call(SYS_userfaultfd, (long)O_CLOEXEC | 1));
	fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		probe_say(p, "/dev/userfaultfd opened; ");
		hole = true;
	}
	return probe_end(p, hole, "refused");
}

static enum verdict keyrings(struct probe_run *p)
{
	long id = probe_call(SYS_add_key, "user", "cloche-probe", "x", 1UL, (long)KEY_SPEC_PROCESS_KEYRING);
	bool hole = probe_reached(p, "add_key", id);

	hole |= probe_reached(p, "keyctl",
			      probe_call(SYS_keyctl, (long)KEYCTL_GET_KEYRING_ID, (long)KEY_SPEC_SESSION_KEYRING, 0L));
	hole |= probe_reached(p, "request_key", probe_call(SYS_request_key, "user", "cloche-probe-none", 0L, 0L));
	return probe_end(p, hole, "refused");
}

static const struct {
	unsigned long flag;
	const char *name;
} namespaces[] = {
	{ CLONE_NEWNS, "mount" }, { CLONE_NEWNET, "net" },	 { CLONE_NEWPID, "pid" },   { CLONE_NEWIPC, "ipc" },
	{ CLONE_NEWUTS, "uts" },  { CLONE_NEWCGROUP, "cgroup" }, { CLONE_NEWTIME, "time" },
};

/* A raw clone with fork's behaviour. The order of arguments past the stack differs by machine, but all are 0. */
static long clone_raw(unsigned long flags)
{
	long r = probe_call(SYS_clone, flags | SIGCHLD, 0UL, 0UL, 0UL, 0UL);

	if (r == 0)
		_exit(0);
	if (r > 0)
		waitpid((pid_t)r, NULL, 0);
	return r;
}

static long clone3_raw(unsigned long flags)
{
	struct clone_args a = { .flags = flags, .exit_signal = SIGCHLD };
	long r = probe_call(NR_CLONE3, &a, sizeof(a));

	if (r == 0)
		_exit(0);
	if (r > 0)
		waitpid((pid_t)r, NULL, 0);
	return r;
}

static enum verdict user_namespace(struct probe_run *p)
{
	bool hole = probe_reached(p, "clone", clone_raw(CLONE_NEWUSER));

	hole |= probe_reached(p, "clone3", clone3_raw(CLONE_NEWUSER));
	hole |= probe_reached(p, "clone with a new mount namespace too", clone_raw(CLONE_NEWUSER | CLONE_NEWNS));
	hole |= probe_reached(p, "unshare", probe_call(SYS_unshare, (unsigned long)CLONE_NEWUSER));
	return probe_end(p, hole, "unshare, clone and clone3 refuse");
}

static enum verdict other_namespaces(struct probe_run *p)
{
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(namespaces); i++) {
		bool one = !probe_refused(clone3_raw(namespaces[i].flag));

		if (namespaces[i].flag != CLONE_NEWTIME) /* clone reads that bit as part of the exit signal */
			one |= !probe_refused(clone_raw(namespaces[i].flag));
		one |= !probe_refused(probe_call(SYS_unshare, namespaces[i].flag));
		if (one)
			probe_say(p, "%s ", namespaces[i].name);
		hole |= one;
	}
	return probe_end(p, hole, "unshare, clone and clone3 refuse all seven kinds");
}

static enum verdict enter_namespaces(struct probe_run *p)
{
	static const char *const kinds[] = { "mnt", "net", "pid", "ipc", "uts", "cgroup", "time", "user" };
	static const char *const who[] = { "1", "self" };
	bool hole = probe_reached(p, "setns itself", probe_call(SYS_setns, -1L, 0UL));
	long pidfd;

	for (size_t w = 0; w < ARRAY_LEN(who); w++) {
		for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
			char path[64];
			int fd;

			snprintf(path, sizeof(path), "/proc/%s/ns/%s", who[w], kinds[k]);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd < 0)
				continue;
			if (probe_call(SYS_setns, (long)fd, 0UL) >= 0) {
				probe_say(p, "joined %s; ", path);
				hole = true;
			}
			close(fd);
		}
	}
	pidfd = probe_call(SYS_pidfd_open, 1UL, 0UL);
	if (pidfd >= 0 && probe_call(SYS_setns, pidfd, (unsigned long)CLONE_NEWUTS) >= 0) {
		probe_say(p, "joined by pidfd of pid 1; ");
		hole = true;
	}
	return probe_end(p, hole, "refused");
}

static enum verdict mount_call(struct probe_run *p)
{
	char dir[] = "/tmp/probe-mount-XXXXXX";
	bool hole;

	hole = probe_reached(p, "remount", probe_call(SYS_mount, "none", "/cloche/no/such", "none", 0UL, 0UL));
	hole |= probe_reached(p, "umount", probe_call(SYS_umount2, "/cloche/no/such", (long)MNT_DETACH));
	if (!mkdtemp(dir))
		return probe_end(p, hole, "refused (no folder to test it on)");
	if (probe_call(SYS_mount, "none", dir, "tmpfs", 0UL, "size=4k") >= 0) {
		probe_say(p, "mounted a tmpfs; ");
		umount2(dir, MNT_DETACH);
		hole = true;
	}
	if (probe_call(SYS_mount, "/proc", dir, "none", (unsigned long)MS_BIND | MS_REC, 0UL) >= 0) {
		probe_say(p, "bound /proc elsewhere; ");
		umount2(dir, MNT_DETACH);
		hole = true;
	}
	if (probe_call(SYS_mount, "none", dir, "cgroup", 0UL, "memory") >= 0) {
		probe_say(p, "mounted a cgroup hierarchy; ");
		umount2(dir, MNT_DETACH);
		hole = true;
	}
	rmdir(dir);
	return probe_end(p, hole, "refused");
}

static enum verdict mount_api(struct probe_run *p)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID };
	bool hole;

	hole = probe_reached(p, "fsopen", probe_call(NR_FSOPEN, "tmpfs", 1UL));
	hole |= probe_reached(p, "fspick", probe_call(NR_FSPICK, (long)AT_FDCWD, "/", 1UL));
	hole |= probe_reached(p, "fsconfig", probe_call(NR_FSCONFIG, -1L, 0UL, "x", 0UL, 0UL));
	hole |= probe_reached(p, "fsmount", probe_call(NR_FSMOUNT, -1L, 1UL, 0UL));
	hole |= probe_reached(
		p, "open_tree clone",
		probe_call(NR_OPEN_TREE, (long)AT_FDCWD, "/", (unsigned long)(OPEN_TREE_CLONE | O_CLOEXEC)));
	hole |= probe_reached(p, "move_mount", probe_call(NR_MOVE_MOUNT, -1L, "", -1L, "", 4UL, 0UL));
	/* A guess at a secret in an argument that should not matter. */
	hole |= probe_reached(p, "move_mount with a sixth argument",
			      probe_call(NR_MOVE_MOUNT, -1L, "", -1L, "", 4UL, ~0UL));
	hole |= probe_reached(p, "mount_setattr",
			      probe_call(NR_MOUNT_SETATTR, -1L, "/cloche/no/such", 0UL, &attr, sizeof(attr)));
	return probe_end(p, hole, "refused");
}

static enum verdict change_root(struct probe_run *p)
{
	bool hole = probe_reached(p, "pivot_root", probe_call(SYS_pivot_root, "/cloche/no/such", "/cloche/no/such"));

	hole |= probe_reached(p, "chroot with a sixth argument", probe_call(SYS_chroot, ".", 0UL, 0UL, 0UL, 0UL, ~0UL));
	hole |= probe_reached(p, "chroot", probe_call(SYS_chroot, "."));
	return probe_end(p, hole, "refused");
}

static enum verdict modules(struct probe_run *p)
{
	bool hole = probe_reached(p, "init_module", probe_call(SYS_init_module, 0L, 0UL, ""));

	hole |= probe_reached(p, "finit_module", probe_call(SYS_finit_module, -1L, "", 0UL));
	hole |= probe_reached(p, "delete_module", probe_call(SYS_delete_module, "cloche_none", (long)O_NONBLOCK));
	return probe_end(p, hole, "refused");
}

static enum verdict kexec(struct probe_run *p)
{
	/* Flags that no kernel knows, so that even a success of the check loads nothing. */
	bool hole = probe_reached(p, "kexec_load", probe_call(SYS_kexec_load, 0UL, 0UL, 0UL, 0xffffffffUL));

#ifdef SYS_kexec_file_load
	hole |= probe_reached(p, "kexec_file_load", probe_call(SYS_kexec_file_load, -1L, -1L, 0UL, "", 0xffffffffUL));
#endif
	return probe_end(p, hole, "refused");
}

static enum verdict power(struct probe_run *p)
{
	return probe_end(p, probe_reached(p, "reboot", probe_call(SYS_reboot, 0UL, 0UL, 0UL, 0UL)), "refused");
}

static enum verdict swap(struct probe_run *p)
{
	bool hole = probe_reached(p, "swapon", probe_call(SYS_swapon, "/cloche/no/such", 0UL));

	hole |= probe_reached(p, "swapoff", probe_call(SYS_swapoff, "/cloche/no/such"));
	return probe_end(p, hole, "refused");
}

static enum verdict clocks(struct probe_run *p)
{
	struct timex tx = { .modes = ADJ_TICK, .tick = 1 }; /* a tick that is refused even with the right to set it */
	bool hole = probe_reached(p, "settimeofday", probe_call(SYS_settimeofday, 0UL, 0UL));

	hole |= probe_reached(p, "adjtimex", probe_call(SYS_adjtimex, &tx));
	tx = (struct timex){ .modes = ADJ_TICK, .tick = 1 };
	hole |= probe_reached(p, "clock_adjtime", probe_call(SYS_clock_adjtime, 0UL, &tx));
	return probe_end(p, hole, "refused");
}

static enum verdict kernel_log(struct probe_run *p)
{
	static const char *const logs[] = { "/dev/kmsg", "/proc/kmsg" };
	char buf[64];
	bool hole = probe_reached(p, "syslog read", probe_call(SYS_syslog, 3UL, buf, sizeof(buf)));

	hole |= probe_reached(p, "syslog size", probe_call(SYS_syslog, 10UL, 0UL, 0UL));
	for (size_t i = 0; i < ARRAY_LEN(logs); i++) {
		int fd = open(logs[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);

		if (fd >= 0 && read(fd, buf, sizeof(buf)) > 0) {
			probe_say(p, "%s read; ", logs[i]);
			hole = true;
		}
		fd_close(fd);
	}
	return probe_end(p, hole, "refused");
}

static enum verdict by_handle(struct probe_run *p)
{
	/* Inode 2 is the root folder of most disk filesystems. */
	struct {
		unsigned bytes;
		int type;
		uint32_t ino, gen;
	} h = { 8, 1, 2, 0 };

	return probe_end(p,
			 probe_reached(p, "open_by_handle_at",
				       probe_call(SYS_open_by_handle_at, (long)AT_FDCWD, &h, (long)O_RDONLY)),
			 "refused");
}

static enum verdict accounting(struct probe_run *p)
{
	char buf[128];
	bool hole = probe_reached(p, "acct", probe_call(SYS_acct, "/cloche/no/such"));

	hole |= probe_reached(p, "quotactl", probe_call(SYS_quotactl, 0x80000700UL, "/cloche/no/such", 0UL, buf));
	return probe_end(p, hole, "refused");
}

static enum verdict names(struct probe_run *p)
{
	struct utsname u;
	bool hole;

	if (uname(&u) < 0)
		return probe_end(p, false, "uname refused too");
	/* The names it has already: a success changes nothing. */
	hole = probe_reached(p, "sethostname",
			     probe_call(SYS_sethostname, u.nodename, strlen(u.nodename), 0UL, 0UL, 0UL, 0UL));
	hole |= probe_reached(p, "sethostname with a sixth argument",
			      probe_call(SYS_sethostname, u.nodename, strlen(u.nodename), 0UL, 0UL, 0UL, ~0UL));
	hole |= probe_reached(p, "setdomainname", probe_call(SYS_setdomainname, u.domainname, strlen(u.domainname)));
	return probe_end(p, hole, "refused");
}

static enum verdict calls_32bit(struct probe_run *p)
{
#ifdef __x86_64__
	long r = 20; /* getpid in the 32-bit table */

	__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
	probe_say(p, "int 0x80 answered %ld", r);
	return r > 0 ? PROBE_OPEN : PROBE_CLOSED;
#else
	probe_say(p, "this machine has no second call gate");
	return PROBE_NA;
#endif
}

static enum verdict calls_x32(struct probe_run *p)
{
#ifdef __x86_64__
	long r = probe_call(0x40000000L | SYS_getpid);

	return probe_end(p, probe_reached(p, "getpid by its x32 number", r), "refused");
#else
	probe_say(p, "x86-64 only");
	return PROBE_NA;
#endif
}

static enum verdict port_io(struct probe_run *p)
{
#ifdef __x86_64__
	bool hole = probe_reached(p, "iopl", probe_call(SYS_iopl, 3UL));

	hole |= probe_reached(p, "ioperm", probe_call(SYS_ioperm, 0x80UL, 1UL, 1UL));
	return probe_end(p, hole, "refused");
#else
	probe_say(p, "this machine has no I/O ports");
	return PROBE_NA;
#endif
}

static enum verdict fanotify(struct probe_run *p)
{
	return probe_end(p,
			 probe_reached(p, "fanotify_init", probe_call(SYS_fanotify_init, 0UL, (unsigned long)O_RDONLY)),
			 "refused");
}

/*
 * A process cannot query whether it is under Landlock. But layers are limited to sixteen: the number that can still be
 * added gives the number that is there.
 */
static enum verdict landlock(struct probe_run *p)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_SYM };
	long abi = probe_call(NR_LANDLOCK_CREATE, 0UL, 0UL, 1UL), rs;
	int more = 0;

	if (abi == -ENOSYS || abi == -EOPNOTSUPP) {
		probe_say(p, "no Landlock in this kernel, or its calls are filtered (%s)", strerror((int)-abi));
		return PROBE_NA;
	}
	rs = probe_call(NR_LANDLOCK_CREATE, &attr, sizeof(attr), 0UL);
	if (rs < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		probe_say(p, "cannot be queried: %s", strerror(rs < 0 ? (int)-rs : errno));
		return PROBE_INFO;
	}
	while (more < 17 && probe_call(NR_LANDLOCK_RESTRICT, rs, 0UL) >= 0)
		more++;
	probe_say(p, "%d of 16 layers in use", 16 - more);
	return more < 16 ? PROBE_CLOSED : PROBE_OPEN;
}

static enum verdict secret_memory(struct probe_run *p)
{
	long r = probe_call(NR_MEMFD_SECRET, 0UL);

	probe_say(p, "memfd_secret %s", r >= 0 ? "allowed" : strerror((int)-r));
	return PROBE_INFO;
}

static const struct probe probes[] = {
	{ "K01", "no io_uring", "CVE-2022-29582, CVE-2023-2598", io_uring, 0, 0 },
	{ "K02", "no BPF maps or programs", "CVE-2021-3490, CVE-2022-23222", bpf, 0, 0 },
	{ "K03", "no performance counters", "CVE-2013-2094, CVE-2023-5717", perf, 0, 0 },
	{ "K04", "no userfaultfd", "widens kernel races: CVE-2021-22555 and others", userfault, 0, 0 },
	{ "K05", "no kernel keyrings", "CVE-2016-0728; keyrings are not namespaced", keyrings, 0, 0 },
	{ "K06", "no nested user namespace", "CVE-2022-0185, CVE-2023-0386, CVE-2023-2640", user_namespace, 0, 0 },
	{ "K07", "no new namespace of any other kind", "CVE-2022-0492, CVE-2022-0185", other_namespaces, 0, 0 },
	{ "K08", "no entering of namespaces", "setns as the second half of many escapes", enter_namespaces, 0, 0 },
	{ "K09", "no mount or umount", "CVE-2022-0492, CVE-2021-3493", mount_call, 0, 0 },
	{ "K10", "no new mount API", "CVE-2022-0185", mount_api, 0, 0 },
	{ "K11", "no chroot or pivot_root", "the classic double chroot", change_root, 0, 0 },
	{ "K12", "no kernel modules", "code in the kernel", modules, 0, 0 },
	{ "K13", "no kexec", "code in place of the kernel", kexec, 0, 0 },
	{ "K14", "no reboot", "power control of the host", power, 0, 0 },
	{ "K15", "no swap control", "memory of the machine", swap, 0, 0 },
	{ "K16", "no setting of clocks", "time of the machine", clocks, 0, 0 },
	{ "K17", "no kernel log", "addresses and secrets of the machine", kernel_log, 0, 0 },
	{ "K18", "no opening of files by handle", "the 2014 Docker breakout by open_by_handle_at", by_handle, 0, 0 },
	{ "K19", "no process accounting or quota control", "files written by the kernel", accounting, 0, 0 },
	{ "K20", "no change of host or domain name", "identity of the sandbox", names, 0, 0 },
	{ "K21", "no 32-bit system calls", "a second table past a filter that forgot it", calls_32bit, 0,
	  PROBE_SEGV_NA },
	{ "K22", "no x32 system calls", "CVE-2014-0038; a third table", calls_x32, 0, 0 },
	{ "K23", "no port I/O", "iopl, ioperm", port_io, 0, 0 },
	{ "K24", "no fanotify", "watching whole filesystems", fanotify, 0, 0 },
	{ "K25", "Landlock is on", "a second wall when a mount is wrong", landlock, 0, 0 },
	{ "K26", "memory hidden from the kernel", "policy, not an escape", secret_memory, 0, 0 },
};
const struct probe_set probes_kernel = { probes, ARRAY_LEN(probes) };
