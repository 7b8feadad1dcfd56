/* Tries what the kernel can do. */
#include "linux/features.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/cgroup.h"
#include "linux/kvm.h"
#include "linux/landlock.h"
#include "linux/mount.h"
#include "linux/ns.h"
#include "linux/steer.h"

#include <linux/capability.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* What a child is asked to do: returns 0 or -errno, which becomes its exit status. */
typedef int child_fn(void *arg);

static int in_child(child_fn *fn, void *arg)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		alarm(5);
		_exit(-fn(arg) & 0xff);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (!WIFEXITED(status))
		return -EINTR;
	return -WEXITSTATUS(status);
}

static void say(struct feature *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct feature *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
}

static void advise(struct feature *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void advise(struct feature *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->remedy, sizeof(f->remedy), fmt, ap);
	va_end(ap);
}

static bool have_cap(unsigned cap)
{
	char status[8192], *line;

	if (fd_get(AT_FDCWD, "/proc/self/status", status, sizeof(status)) < 0)
		return false;
	line = strstr(status, "CapEff:");
	return line && (strtoull(line + 7, NULL, 16) >> cap & 1);
}

/* Where a setting is absent, its kernel does not have that lock: @absent is then the answer. */
static unsigned long long setting(const char *path, unsigned long long absent)
{
	unsigned long long v;

	return fd_get_u64(AT_FDCWD, path, &v) < 0 ? absent : v;
}

/* A user namespace of its own in which the caller is root; the only way to the rest without privileges. */
static int enter_userns(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];
	int r = sys_unshare(CLONE_NEWUSER);

	if (r < 0)
		return r;
	r = fd_put(AT_FDCWD, "/proc/self/setgroups", "deny");
	if (r < 0 && r != -ENOENT)
		return r;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	r = fd_put(AT_FDCWD, "/proc/self/uid_map", map);
	if (r < 0)
		return r;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	return fd_put(AT_FDCWD, "/proc/self/gid_map", map);
}

static int enter_private_mounts(void)
{
	int r = have_cap(CAP_SYS_ADMIN) ? 0 : enter_userns();

	if (r == 0)
		r = sys_unshare(CLONE_NEWNS);
	if (r == 0)
		r = sys_mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return r;
}

static int child_userns(void *arg)
{
	int r = enter_userns();

	(void)arg;
	/* Where AppArmor restricts them a user namespace is made, but holds no power: so use it. */
	return r < 0 ? r : sys_unshare(CLONE_NEWUTS);
}

static int child_private(void *arg)
{
	(void)arg;
	return enter_private_mounts();
}

/* In a chroot the kernel makes no user namespace; what gives it away is a top that is no mount. */
static bool in_chroot(void)
{
	return have_cap(CAP_SYS_ADMIN) && in_child(child_private, NULL) == -EINVAL;
}

static int check_userns(struct feature *f)
{
	unsigned long long max = setting("/proc/sys/user/max_user_namespaces", UINT64_MAX);
	int r = in_child(child_userns, NULL);

	say(f, "%s; at most %llu", r == 0 ? "works" : strerror(-r), max);
	if (r == 0)
		return 0;
	if (max == 0)
		advise(f, "sysctl -w user.max_user_namespaces=65536");
	else if (setting("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0)
		advise(f, "sysctl -w kernel.unprivileged_userns_clone=1, or run as root");
	else if (setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) == 1)
		advise(f, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for cloche "
			  "that "
			  "allows userns, or run as root");
	else
		advise(f, "a kernel with CONFIG_USER_NS; inside a container, one that may nest user namespaces");
	return r;
}

static int child_unshare(void *arg)
{
	int r = have_cap(CAP_SYS_ADMIN) ? 0 : enter_userns();

	return r < 0 ? r : sys_unshare(*(int *)arg);
}

static int check_namespaces(struct feature *f)
{
	static const struct {
		int flag;
		const char *name;
	} kinds[] = { { CLONE_NEWPID, "pid" }, { CLONE_NEWNS, "mount" }, { CLONE_NEWNET, "net" },
		      { CLONE_NEWIPC, "ipc" }, { CLONE_NEWUTS, "uts" },	 { CLONE_NEWCGROUP, "cgroup" } };

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		int flag = kinds[i].flag, r = in_child(child_unshare, &flag);

		if (r < 0) {
			say(f, "%s namespace: %s", kinds[i].name, strerror(-r));
			return r;
		}
	}
	say(f, "pid, mount, net, ipc, uts, cgroup");
	return 0;
}

static int check_timens(struct feature *f)
{
	int flag = CLONE_NEWTIME, r = in_child(child_unshare, &flag);

	say(f, "%s", r == 0 ? "works" : strerror(-r));
	return r;
}

static int child_mount_api(void *arg)
{
	AUTO_CLOSE int mnt = -1;
	int r = enter_private_mounts();

	(void)arg;
	if (r < 0)
		return r;
	mnt = mount_new("tmpfs", (struct mount_opt[]){ { "size", "64k" }, { NULL, NULL } }, 0);
	if (mnt < 0)
		return mnt;
	return mount_attach(mnt, "/tmp", 0);
}

static int check_mount_api(struct feature *f)
{
	int r = in_child(child_mount_api, NULL);

	say(f, "%s", r == 0 ? "works" : strerror(-r));
	return r;
}

/* Lower, upper and work folders on a tmpfs: attached to a private /tmp, or (@arg) never attached anywhere. */
static int child_overlay(void *arg)
{
	const bool detached = *(bool *)arg;
	char lower[64], upper[64], work[64];
	AUTO_CLOSE int mnt = -1, overlay = -1;
	int r = enter_private_mounts();

	if (r < 0)
		return r;
	mnt = mount_new("tmpfs", (struct mount_opt[]){ { "size", "256k" }, { NULL, NULL } }, 0);
	if (mnt < 0)
		return mnt;
	if (!detached && (r = mount_attach(mnt, "/tmp", 0)) < 0)
		return r;
	if ((r = sys_mkdirat(mnt, "l", 0755)) < 0 || (r = sys_mkdirat(mnt, "u", 0755)) < 0 ||
	    (r = sys_mkdirat(mnt, "w", 0755)) < 0)
		return r;
	snprintf(lower, sizeof(lower), "/proc/self/fd/%d/l", mnt);
	snprintf(upper, sizeof(upper), "/proc/self/fd/%d/u", mnt);
	snprintf(work, sizeof(work), "/proc/self/fd/%d/w", mnt);
	overlay = mount_new("overlay",
			    (struct mount_opt[]){
				    { "lowerdir", lower }, { "upperdir", upper }, { "workdir", work }, { NULL, NULL } },
			    0);
	return overlay < 0 ? overlay : 0;
}

static int check_overlay(struct feature *f)
{
	bool detached = false;
	int r = in_child(child_overlay, &detached);

	say(f, "%s", r == 0 ? "works" : strerror(-r));
	if (r == -ENODEV)
		advise(f, "modprobe overlay");
	return r;
}

static int check_overlay_detached(struct feature *f)
{
	bool detached = true;
	int r = in_child(child_overlay, &detached);

	say(f, "%s", r == 0 ? "works" : strerror(-r));
	return r;
}

static int child_xattr(void *arg)
{
	AUTO_CLOSE int mnt = -1, fd = -1;
	int r = enter_userns();

	(void)arg;
	if (r == 0)
		r = sys_unshare(CLONE_NEWNS);
	if (r < 0)
		return r;
	mnt = mount_new("tmpfs", (struct mount_opt[]){ { "size", "64k" }, { NULL, NULL } }, 0);
	if (mnt < 0)
		return mnt;
	fd = sys_openat(mnt, "f", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return fd;
	return fsetxattr(fd, "user.cloche", "1", 1, 0) < 0 ? -errno : 0;
}

static int check_xattr(struct feature *f)
{
	int r = in_child(child_xattr, NULL);

	say(f, "%s", r == 0 ? "works" : strerror(-r));
	return r;
}

static int child_proc(void *arg)
{
	int r = enter_userns(), status;
	pid_t pid;

	(void)arg;
	if (r < 0 || (r = sys_unshare(CLONE_NEWNS | CLONE_NEWPID)) < 0)
		return r;
	pid = fork(); /* the first process of the new pid namespace */
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		AUTO_CLOSE int mnt = mount_new("proc", (struct mount_opt[]){ { NULL, NULL } }, 0);

		_exit(mnt < 0 ? -mnt & 0xff : 0);
	}
	if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return -EINTR;
	return -WEXITSTATUS(status);
}

static int check_proc(struct feature *f)
{
	int r = in_child(child_proc, NULL);

	say(f, "%s", r == 0 ? "a new /proc can be mounted" : strerror(-r));
	return r;
}

int feature_idmap(int dirfd)
{
	AUTO_CLOSE int userns = -1, mnt = -1;
	int up[2], down[2], r;
	char path[64], c = 0;
	pid_t pid;

	r = sys_pipe2(up, O_CLOEXEC);
	if (r < 0)
		return r;
	r = sys_pipe2(down, O_CLOEXEC);
	if (r < 0) {
		fd_close_many(up, 2);
		return r;
	}
	pid = fork();
	if (pid == 0) { /* lends its user namespace until the pipe closes */
		fd_close(down[1]);
		r = sys_unshare(CLONE_NEWUSER);
		c = (char)-r;
		if (sys_write(up[1], &c, 1) == 1)
			sys_read(down[0], &c, 1);
		_exit(0);
	}
	r = pid < 0 ? -errno : 0;
	if (r == 0 && sys_read(up[0], &c, 1) != 1)
		r = -EIO;
	if (r == 0)
		r = -c;
	if (r == 0)
		r = ns_map_ids(pid, 0, 100000, 65536, NULL);
	if (r == 0) {
		snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		userns = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		r = userns < 0 ? userns : 0;
	}
	if (r == 0) {
		mnt = mount_clone(dirfd, "", 0, userns);
		r = mnt < 0 ? mnt : 0;
	}
	fd_close_many(up, 2);
	fd_close_many(down, 2);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}

static int check_idmap(struct feature *f)
{
	static const char *const dirs[] = { "/usr", "/var/lib" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		AUTO_CLOSE int fd = sys_openat(AT_FDCWD, dirs[i], O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		int r = fd < 0 ? fd : feature_idmap(fd);

		if (r < 0) {
			say(f, "%s: %s", dirs[i], strerror(-r));
			if (!have_cap(CAP_SYS_ADMIN))
				advise(f, "only root may; without root a sandbox has a single user");
			return r;
		}
	}
	say(f, "work on /usr and /var/lib");
	return 0;
}

static int check_landlock(struct feature *f)
{
	int abi = landlock_abi();

	if (abi <= 0) {
		say(f, "not in this kernel, or disabled");
		return -ENOSYS;
	}
	say(f, "ABI %d%s", abi, abi >= 6 ? ", with signals and abstract sockets" : "");
	return 0;
}

static int check_seccomp(struct feature *f)
{
	static const struct {
		uint32_t action;
		const char *name;
		bool needed;
	} actions[] = { { SECCOMP_RET_KILL_PROCESS, "kill", true },
			{ SECCOMP_RET_ERRNO, "errno", true },
			{ SECCOMP_RET_USER_NOTIF, "notify", false },
			{ SECCOMP_RET_LOG, "log", false } };
	size_t len = 0;
	int missing = 0;

	for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
		uint32_t action = actions[i].action;
		int r = sys_seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action);

		if (r == 0)
			len += (size_t)snprintf(f->detail + len, sizeof(f->detail) - len, "%s%s", len ? ", " : "",
						actions[i].name);
		else if (actions[i].needed)
			missing = r;
	}
	if (missing)
		say(f, "%s", strerror(-missing));
	return missing;
}

/* Finds where version 2 is mounted; hybrid hosts have it beside version 1. */
static int open_cgroup2(void)
{
	static const char *const at[] = { "/sys/fs/cgroup/unified", "/sys/fs/cgroup" };

	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		AUTO_CLOSE int fd = sys_openat(AT_FDCWD, at[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		char own[512], path[600], *line;

		if (fd < 0 || faccessat(fd, "cgroup.controllers", F_OK, 0) < 0 ||
		    fd_get(AT_FDCWD, "/proc/self/cgroup", own, sizeof(own)) < 0)
			continue;
		line = strstr(own, "0::/");
		if (!line || (line != own && line[-1] != '\n'))
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, sizeof(path), ".%s", line + 3);
		return sys_openat(fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	}
	return -ENOENT;
}

static int check_clone_into(struct feature *f)
{
	AUTO_CLOSE int group = open_cgroup2();
	struct clone_args a = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
	long pid;

	if (group < 0) {
		say(f, "cgroup version 2 is missing; version 1 groups are joined after the start");
		return -ENOENT;
	}
	a.cgroup = (uint64_t)group; /* the group that this process is in, so nothing changes */
	pid = sys_clone3(&a, sizeof(a));
	if (pid == 0)
		_exit(0);
	if (pid < 0) {
		say(f, "%s", strerror((int)-pid));
		return (int)pid;
	}
	waitpid((pid_t)pid, NULL, 0);
	say(f, "works");
	return 0;
}

static int check_cgroup(struct feature *f)
{
	static const struct {
		unsigned bit;
		const char *name;
		bool needed;
	} all[] = { { CGROUP_BIT(CGROUP_MEMORY), "memory", true },    { CGROUP_BIT(CGROUP_PIDS), "pids", true },
		    { CGROUP_BIT(CGROUP_CPU), "cpu", true },	      { CGROUP_BIT(CGROUP_CPUACCT), "cpuacct", false },
		    { CGROUP_BIT(CGROUP_FREEZER), "freezer", false }, { CGROUP_BIT(CGROUP_IO), "io", false } };
	char have[64] = "", lack[64] = "";
	struct cgroup_host h;
	struct err e = { 0 };
	int r = cgroup_host_open(&h, &e);
	bool missing = false;

	if (r < 0) {
		say(f, "%s", e.msg);
		advise(f, "%s", e.remedy);
		return r;
	}
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		char *to = h.have & all[i].bit ? have : lack;
		size_t len = strlen(to);

		snprintf(to + len, sizeof(have) - len, "%s%s", len ? ", " : "", all[i].name);
		missing = missing || (all[i].needed && !(h.have & all[i].bit));
	}
	if (!h.have)
		say(f, "none that this process may use");
	else
		say(f, "version %d: %s%s%s", h.version, *have ? have : "none", *lack ? "; not " : "", lack);
	if (missing && geteuid() != 0)
		advise(f, "run as root, or, where version 2 has them, have systemd delegate: "
			  "Delegate=cpu memory pids io in user@.service");
	else if (missing)
		advise(f, "mount the controllers, or boot with cgroup_enable=memory and without cgroup_disable=");
	cgroup_host_done(&h);
	return missing ? -ENOENT : 0;
}

static int check_swap(struct feature *f)
{
	char swaps[4096];
	ssize_t n = fd_get(AT_FDCWD, "/proc/swaps", swaps, sizeof(swaps));
	const char *second = n > 0 ? strchr(swaps, '\n') : NULL;
	struct cgroup_host h;
	bool counted;

	if (!second || !second[1]) {
		say(f, "the host has no swap: memory limits are exact");
		return 0;
	}
	if (cgroup_host_open(&h, NULL) < 0) {
		say(f, "the host swaps, and there is no memory controller");
		return -ENOENT;
	}
	counted = h.swap_accounted;
	cgroup_host_done(&h);
	say(f, counted ? "counted: sandboxes do not swap" : "the host swaps, and the controller does not count it");
	return counted ? 0 : -ENOENT;
}

static int check_fds(struct feature *f)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int pidfd = sys_pidfd_open(getpid(), 0);
	AUTO_CLOSE int root = sys_openat2(AT_FDCWD, "/", &how);
	int r = sys_close_range(~0U, ~0U, 0);

	say(f, "pidfd_open %s, openat2 %s, close_range %s", pidfd < 0 ? strerror(-pidfd) : "works",
	    root < 0 ? strerror(-root) : "works", r < 0 ? strerror(-r) : "works");
	return pidfd < 0 ? pidfd : root < 0 ? root : r;
}

static int check_loop(struct feature *f)
{
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, "/dev/loop-control", O_RDWR | O_CLOEXEC, 0);

	say(f, "%s", fd < 0 ? strerror(-fd) : "usable");
	if (fd < 0)
		advise(f, fd == -ENOENT ? "modprobe loop" : "run as root");
	return fd < 0 ? fd : 0;
}

static int check_kvm(struct feature *f)
{
	struct kvm_trial t;

	kvm_try(&t);
	say(f, "%s", t.why);
	if (t.state == KVM_WORKS || t.state == KVM_NESTED)
		return 0;
	advise(f, "%s", t.remedy);
	return t.state == KVM_ABSENT ? -ENOENT : t.state == KVM_DENIED ? -EACCES : -EIO;
}

struct steer_result {
	char msg[160], remedy[160];
};

static int child_steer(void *arg)
{
	const struct steer_rules rules = { .mode = STEER_ALLOW };
	struct steer_result *out = arg;
	struct err e = { 0 };
	int flag = CLONE_NEWNET, fds[STEER_SOCKETS], r = child_unshare(&flag);

	if (r == 0)
		r = ns_loopback_up();
	if (r == 0)
		r = steer_up(&rules, &e);
	if (r == 0)
		r = steer_sockets(fds, &e);
	snprintf(out->msg, sizeof(out->msg), "%.159s", e.msg);
	snprintf(out->remedy, sizeof(out->remedy), "%.159s", e.remedy);
	return r;
}

/* The child says what it lacks in memory that we share. */
static int check_steer(struct feature *f)
{
	struct steer_result *res = mmap(NULL, sizeof(*res), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r;

	if (res == MAP_FAILED)
		return -errno;
	r = in_child(child_steer, res);
	say(f, "%s", r == 0 ? "nftables with tproxy, reject, limit" : res->msg[0] ? res->msg : strerror(-r));
	if (r < 0 && res->remedy[0])
		advise(f, "%s", res->remedy);
	munmap(res, sizeof(*res));
	return r;
}

static int check_admin(struct feature *f)
{
	bool yes = have_cap(CAP_SYS_ADMIN);

	say(f, yes ? "yes" : geteuid() == 0 ? "no, although this is root" : "no: user namespaces are used");
	return yes ? 0 : -EPERM;
}

/* clang-format off */
static const struct {
	const char *id, *name;
	int (*fn)(struct feature *f);
	bool needed;
	const char *remedy; /* when the check itself knows no better */
} checks[] = {
	{ "userns", "user namespaces", check_userns, true, "" },
	{ "namespaces", "other namespaces", check_namespaces, true, "a kernel with namespaces of all kinds" },
	{ "timens", "time namespace", check_timens, false, "Linux 5.6 or later, CONFIG_TIME_NS" },
	{ "mount_api", "new mount API", check_mount_api, true, "Linux 5.15 or later" },
	{ "overlay", "overlay filesystem", check_overlay, true, "Linux 5.15 or later with overlay" },
	{ "overlay_detached", "overlay over detached mounts", check_overlay_detached, false,
	  "Linux 6.15 or later; older ones attach in a private folder first" },
	{ "idmap", "idmapped mounts", check_idmap, false, "Linux 5.19 or later, and a filesystem that has them" },
	{ "tmpfs_xattr", "user attributes on tmpfs", check_xattr, false, "Linux 6.6 or later with CONFIG_TMPFS_XATTR" },
	{ "proc", "fresh /proc", check_proc, true,
	  "a /proc without mounts over it: inside a container, an unmasked one (systempaths=unconfined)" },
	{ "seccomp", "system call filter", check_seccomp, true, "a kernel with CONFIG_SECCOMP_FILTER" },
	{ "landlock", "Landlock", check_landlock, false,
	  "Linux 5.19 or later, with landlock in lsm= on the command line" },
	{ "descriptors", "pidfd, openat2, close_range", check_fds, true, "Linux 5.9 or later" },
	{ "cgroup", "control groups", check_cgroup, true, "" },
	{ "clone_into_cgroup", "start inside a control group", check_clone_into, false,
	  "cgroup version 2 and Linux 5.7" },
	{ "steer", "a sandbox's network", check_steer, false,
	  "CONFIG_NF_TABLES_INET, CONFIG_NFT_TPROXY, CONFIG_NFT_REJECT_INET, CONFIG_NFT_LIMIT, CONFIG_IPV6" },
	{ "swap", "swap", check_swap, false, "swapoff -a, or boot with swapaccount=1" },
	{ "admin", "root privileges (CAP_SYS_ADMIN)", check_admin, false,
	  "run as root for idmapped images and all limits" },
	{ "loop", "loop devices", check_loop, false, "" },
	{ "kvm", "KVM", check_kvm, false, "" },
};
/* clang-format on */
static_assert(ARRAY_LEN(checks) <= FEATURES_MAX, "FEATURES_MAX");

size_t features_check(struct feature *out, size_t max)
{
	const bool chroot = in_chroot();
	const bool weak_root = geteuid() == 0 && !have_cap(CAP_SYS_ADMIN); /* of a container, mostly */

	for (size_t i = 0; i < ARRAY_LEN(checks) && i < max; i++) {
		struct feature *f = &out[i];
		int r;

		*f = (struct feature){ .id = checks[i].id, .name = checks[i].name };
		r = checks[i].fn(f);
		if (r == 0) {
			f->remedy[0] = '\0';
			continue;
		}
		f->state = checks[i].needed || (weak_root && checks[i].fn == check_admin) ? FEATURE_MISSING :
											    FEATURE_OPTIONAL_MISSING;
		if (chroot && (r == -EPERM || r == -EINVAL)) {
			f->remedy[0] = '\0';
			advise(f, "not in a chroot: use the host's own root, or make this one a root (pivot_root)");
		}
		if (weak_root && r == -EPERM && !f->remedy[0])
			advise(f,
			       "give CAP_SYS_ADMIN to this container (as with --privileged), or run as another user");
		if (!f->remedy[0])
			advise(f, "%s", checks[i].remedy);
	}
	return ARRAY_LEN(checks);
}
