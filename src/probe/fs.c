/* Files: devices, the kernel's files in /proc and /sys, and the host's own behind mounts, links and descriptors. */
#include "probe/probe.h"
#include "base/base.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static bool in_list(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(name, list[i]))
			return true;
	return false;
}

static enum verdict device_list(struct probe_run *p)
{
	static const char *const fine[] = { ".",       "..",	"null",	  "zero",   "full",    "random",
					    "urandom", "tty",	"ptmx",	  "pts",    "shm",     "mqueue",
					    "fd",      "stdin", "stdout", "stderr", "console", "core" };
	DIR *d = opendir("/dev");
	unsigned extra = 0;
	struct dirent *e;

	if (!d)
		return probe_end(p, false, "there is no /dev");
	while ((e = readdir(d))) {
		if (in_list(e->d_name, fine, ARRAY_LEN(fine)))
			continue;
		if (extra++ < 8)
			probe_say(p, "%s ", e->d_name);
	}
	closedir(d);
	return probe_end(p, extra > 0, "at most null, zero, full, random, urandom, tty, ptmx");
}

static enum verdict device_open(struct probe_run *p)
{
	/* clang-format off */
	static const char *const bad[] = {
		"kmsg",		 "mem",		"port",	       "kvm",	    "fuse",	    "cuse",
		"net/tun",	 "vsock",	"vhost-vsock", "vhost-net", "loop-control", "loop0",
		"vda",		 "vdb",		"sda",	       "nvme0n1",   "dm-0",	    "mapper/control",
		"btrfs-control", "uinput",	"snapshot",    "ppp",	    "hpet",	    "rtc0",
		"cpu/0/msr",	 "userfaultfd", "autofs",      "vfio/vfio", "dri/card0",    "ttyS0",
		"tty0",		 "hwrng",	"udmabuf",     "iommu",	    "sev",	    "tpm0",
		"zram0",	 "raw/rawctl"
	};
	/* clang-format on */
	bool hole = false;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char path[64];
		int fd;

		snprintf(path, sizeof(path), "/dev/%s", bad[i]);
		fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
		if (fd < 0)
			continue;
		probe_say(p, "%s ", path);
		hole = true;
		close(fd);
	}
	return probe_end(p, hole, "none opens");
}

static enum verdict device_make(struct probe_run *p)
{
	static const struct {
		mode_t type;
		unsigned major, minor;
	} nodes[] = { { S_IFCHR, 1, 1 }, { S_IFCHR, 1, 11 },  { S_IFCHR, 5, 1 },
		      { S_IFBLK, 7, 0 }, { S_IFBLK, 254, 0 }, { S_IFBLK, 8, 0 } };
	static const char *const dirs[] = { ".", "/tmp", "/dev/shm", "/dev", "/root" };
	bool hole = false;

	for (size_t d = 0; d < ARRAY_LEN(dirs); d++) {
		for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
			char path[64];
			int fd;

			snprintf(path, sizeof(path), "%s/.probe-node-%d", dirs[d], (int)getpid());
			if (mknod(path, nodes[i].type | 0600, makedev(nodes[i].major, nodes[i].minor)) < 0)
				continue;
			fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
			probe_say(p, "%s %u:%u%s; ", dirs[d], nodes[i].major, nodes[i].minor,
				  fd >= 0 ? " and opened" : "");
			hole = true;
			fd_close(fd);
			unlink(path);
		}
	}
	return probe_end(p, hole, "mknod refused everywhere");
}

/* A file hidden behind the null device opens for writing and does nothing. */
static bool is_null_device(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

static bool writable(struct probe_run *p, const char *const *paths, size_t n)
{
	bool hole = false;

	for (size_t i = 0; i < n; i++) {
		int fd = open(paths[i], O_WRONLY | O_CLOEXEC | O_NONBLOCK);

		if (fd >= 0 && !is_null_device(fd)) {
			probe_say(p, "%s ", paths[i]);
			hole = true;
		}
		fd_close(fd);
	}
	return hole;
}

/* Not by a list alone: any file there that opens for writing counts. */
static unsigned walk_writable(struct probe_run *p, const char *dir, unsigned depth)
{
	DIR *d = opendir(dir);
	unsigned found = 0;
	struct dirent *e;

	if (!d)
		return 0;
	while ((e = readdir(d)) && found < 4) {
		char path[PATH_MAX];
		int fd;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (e->d_type == DT_DIR) {
			if (depth)
				found += walk_writable(p, path, depth - 1);
			continue;
		}
		if (e->d_type != DT_REG)
			continue;
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			continue;
		probe_say(p, "%s ", path);
		found++;
		close(fd);
	}
	closedir(d);
	return found;
}

static enum verdict proc_sys(struct probe_run *p)
{
	return probe_end(p, walk_writable(p, "/proc/sys", 5) > 0, "no file below /proc/sys opens for writing");
}

static enum verdict proc_write(struct probe_run *p)
{
	static const char *const paths[] = { "/proc/sysrq-trigger",
					     "/proc/kcore",
					     "/proc/mtrr",
					     "/proc/latency_stats",
					     "/proc/timer_stats",
					     "/proc/irq/default_smp_affinity",
					     "/proc/acpi/wakeup",
					     "/proc/bus/pci/00/00.0",
					     "/proc/scsi/scsi",
					     "/proc/pressure/memory",
					     "/proc/slabinfo",
					     "/proc/dynamic_debug/control",
					     "/proc/fs/nfsd/exports",
					     "/proc/asound/seq/clients",
					     "/proc/driver/rtc",
					     "/proc/vmcore" };

	return probe_end(p, writable(p, paths, ARRAY_LEN(paths)), "none opens for writing");
}

static enum verdict proc_read(struct probe_run *p)
{
	static const char *const paths[] = { "/proc/kcore",	 "/proc/keys",	       "/proc/key-users",
					     "/proc/timer_list", "/proc/sched_debug",  "/proc/kpagecount",
					     "/proc/kpageflags", "/proc/kpagecgroup",  "/proc/vmallocinfo",
					     "/proc/slabinfo",	 "/proc/pagetypeinfo", "/proc/iomem",
					     "/proc/interrupts" };
	bool hole = false;
	char buf[256];

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		int fd = open(paths[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);

		if (fd >= 0 && read(fd, buf, 8) > 0) {
			/* Harmless to read once the addresses are hidden, which they are without privilege. */
			bool mild = strstr(paths[i], "interrupts") || strstr(paths[i], "iomem");

			probe_say(p, "%s%s ", paths[i], mild ? " (no secret in it)" : "");
			hole |= !mild;
		}
		fd_close(fd);
	}
	if (hole)
		return PROBE_OPEN;
	probe_say(p, "nothing of the kernel's state");
	return PROBE_CLOSED;
}

static bool shows_address(const char *path, unsigned column)
{
	FILE *f = fopen(path, "re");
	char line[512];
	bool shown = false;

	if (!f)
		return false;
	for (int i = 0; i < 50 && !shown && fgets(line, sizeof(line), f); i++) {
		char *s = line;

		for (unsigned c = 0; c < column && s; c++)
			s = strchr(s + (c > 0), ' ');
		shown = s && strtoull(s, NULL, 16) > 0xffff;
	}
	fclose(f);
	return shown;
}

static enum verdict addresses(struct probe_run *p)
{
	bool hole = false;

	if (shows_address("/proc/kallsyms", 0)) {
		probe_say(p, "/proc/kallsyms ");
		hole = true;
	}
	if (shows_address("/proc/modules", 5)) {
		probe_say(p, "/proc/modules ");
		hole = true;
	}
	return probe_end(p, hole, "hidden or zero");
}

static enum verdict sys_write(struct probe_run *p)
{
	static const char *const paths[] = { "/sys/kernel/uevent_helper",
					     "/sys/kernel/profiling",
					     "/sys/power/state",
					     "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
					     "/sys/kernel/mm/transparent_hugepage/enabled",
					     "/sys/kernel/mm/ksm/run",
					     "/sys/module/printk/parameters/time",
					     "/sys/block/loop0/queue/nr_requests",
					     "/sys/block/vda/uevent",
					     "/sys/class/net/lo/mtu",
					     "/sys/bus/pci/rescan",
					     "/sys/devices/system/cpu/cpu1/online",
					     "/sys/firmware/efi/vars/del_var",
					     "/sys/kernel/debug/tracing/trace",
					     "/sys/kernel/tracing/trace" };
	static const char *const masked[] = { "/sys/firmware",	      "/sys/kernel/debug", "/sys/kernel/tracing",
					      "/sys/kernel/security", "/sys/fs/bpf",	   "/sys/fs/selinux" };
	bool hole = writable(p, paths, ARRAY_LEN(paths));

	for (size_t i = 0; i < ARRAY_LEN(masked); i++) {
		DIR *d = opendir(masked[i]);
		struct dirent *e;
		unsigned n = 0;

		if (!d)
			continue;
		while ((e = readdir(d)))
			n += e->d_name[0] != '.';
		closedir(d);
		if (n) {
			probe_say(p, "%s has %u entries ", masked[i], n);
			hole = true;
		}
	}
	return probe_end(p, hole,
			 access("/sys", F_OK) == 0 ? "nothing writable, firmware and debug hidden" : "no /sys");
}

static enum verdict cgroup_files(struct probe_run *p)
{
	char path[] = "/sys/fs/cgroup/probe-XXXXXX";
	bool hole = walk_writable(p, "/sys/fs/cgroup", 3) > 0;

	if (mkdtemp(path)) {
		probe_say(p, "made a group; ");
		rmdir(path);
		hole = true;
	}
	return probe_end(p, hole, access("/sys/fs/cgroup", F_OK) == 0 ? "nothing writable" : "no cgroup files");
}

static enum verdict cgroup_paths(struct probe_run *p)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	bool hole = false;
	char line[512];

	if (!f)
		return probe_end(p, false, "/proc/self/cgroup is not there");
	while (fgets(line, sizeof(line), f)) {
		char *path = strchr(line, ':');

		path = path ? strchr(path + 1, ':') : NULL;
		if (!path || !strcmp(path, ":/\n"))
			continue;
		path[strcspn(path, "\n")] = '\0';
		probe_say(p, "%s ", path + 1);
		hole = true;
	}
	fclose(f);
	return probe_end(p, hole, "every path is /");
}

static enum verdict descriptors(struct probe_run *p)
{
	bool hole = p->o->nfds > 0;

	for (unsigned i = 0; i < p->o->nfds; i++) {
		char link[64], target[200];
		ssize_t n;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", p->o->fds[i]);
		n = readlink(link, target, sizeof(target) - 1);
		target[n > 0 ? n : 0] = '\0';
		probe_say(p, "%d is %s; ", p->o->fds[i], target);
	}
	for (int fd = 0; fd < 3; fd++) {
		struct stat st;

		if (fstat(fd, &st) < 0 || (!S_ISDIR(st.st_mode) && !S_ISBLK(st.st_mode)))
			continue;
		probe_say(p, "%d is a folder or a block device; ", fd);
		hole = true;
	}
	return probe_end(p, hole, "none beyond 0, 1 and 2");
}

static bool has_canary(const struct probe_opts *o, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char buf[256];
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	return strstr(buf, o->canary_text) != NULL;
}

static bool canary_at(struct probe_run *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool canary_at(struct probe_run *p, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(path) || !has_canary(p->o, path))
		return false;
	probe_say(p, "read as %.100s; ", path);
	return true;
}

static enum verdict canary(struct probe_run *p)
{
#define UP "../../../../../../../../../../../.."
	static const char *const via[] = { "root", "cwd/" UP, "task/self/root", "map_files/" UP, "fd/0/" UP };
	const char *c = p->o->canary;
	char link[] = "/tmp/probe-link-XXXXXX";
	bool hole = false;
	struct dirent *e;
	DIR *d;

	if (!c) {
		probe_say(p, "needs --canary");
		return PROBE_NA;
	}
	hole |= canary_at(p, "%s", c);
	hole |= canary_at(p, UP "/" UP "%s", c);
	hole |= canary_at(p, "/proc/self/cwd/" UP "%s", c);
	hole |= canary_at(p, "/proc/thread-self/root%s", c);
	hole |= canary_at(p, "/dev/fd/0/" UP "%s", c);
	for (int fd = 0; fd < 64; fd++) {
		hole |= canary_at(p, "/proc/self/fd/%d/" UP "%s", fd, c);
		hole |= canary_at(p, "/proc/self/fd/%d%s", fd, c);
	}
	d = opendir("/proc");
	while (d && (e = readdir(d))) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9')
			continue;
		for (size_t i = 0; i < ARRAY_LEN(via); i++)
			hole |= canary_at(p, "/proc/%s/%s%s", e->d_name, via[i], c);
	}
	if (d)
		closedir(d);
	/* A link is resolved where it is followed: once through a folder that another process may own. */
	if (mkdtemp(link)) {
		char at[64];

		snprintf(at, sizeof(at), "%s/l", link);
		if (symlink("/proc/1/root", at) == 0)
			hole |= canary_at(p, "%s%s", at, c);
		unlink(at);
		rmdir(link);
	}
	return probe_end(p, hole, "not reachable by any of 150 ways");
}

static enum verdict work_folder(struct probe_run *p)
{
	struct stat top, root;
	char cwd[PATH_MAX];
	long n = probe_call(SYS_getcwd, cwd, sizeof(cwd));

	if (n < 0) {
		probe_say(p, "getcwd: %s", strerror((int)-n));
		return PROBE_OPEN;
	}
	if (cwd[0] != '/') {
		probe_say(p, "it is %.100s", cwd);
		return PROBE_OPEN;
	}
	for (int i = 0; i < 64; i++)
		if (chdir("..") < 0)
			break;
	if (stat(".", &top) < 0 || stat("/", &root) < 0)
		return probe_end(p, false, "the top folder cannot be read");
	if (top.st_ino != root.st_ino || top.st_dev != root.st_dev) {
		probe_say(p, "the way up from it ends at another root");
		return PROBE_OPEN;
	}
	return probe_end(p, false, "the way up ends at /");
}

static enum verdict read_only(struct probe_run *p)
{
	const char *path = p->o->read_only;
	struct stat st;
	bool hole = false;

	if (!path || stat(path, &st) < 0) {
		probe_say(p, "needs --ro");
		return PROBE_NA;
	}
	/* A running program also refuses with ETXTBSY, which would prove nothing: ask for what only EROFS refuses. */
	hole |= probe_reached(p, "chmod", chmod(path, st.st_mode & 07777) < 0 ? -errno : 0);
	hole |= probe_reached(p, "utimes", utimensat(AT_FDCWD, path, NULL, 0) < 0 ? -errno : 0);
	hole |= probe_reached(p, "chown", chown(path, (uid_t)-1, (gid_t)-1) < 0 ? -errno : 0);
	return probe_end(p, hole, "stays as it is");
}

static bool copy_self(const char *to)
{
	int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
	    out = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0700);
	bool ok = in >= 0 && out >= 0;
	char buf[16384];
	ssize_t n = 0;

	while (ok && (n = read(in, buf, sizeof(buf))) > 0)
		ok = fd_write_all(out, buf, (size_t)n) == 0;
	ok = ok && n == 0 && fchmod(out, 04755) == 0;
	fd_close(in);
	fd_close(out);
	return ok;
}

/* Root makes a setuid copy of this program, and an ordinary user runs it. */
static enum verdict setuid_program(struct probe_run *p)
{
	char path[64];
	int status = 0;
	pid_t pid;

	if (getuid() != 0) {
		long long nnp = probe_field("/proc/self/status", "NoNewPrivs", 10);

		probe_say(p, "no_new_privs is %s", nnp == 1 ? "on" : "off");
		return nnp == 1 ? PROBE_CLOSED : PROBE_OPEN;
	}
	snprintf(path, sizeof(path), "/tmp/probe-suid-%d", (int)getpid());
	if (!copy_self(path)) {
		unlink(path);
		return probe_end(p, false, "no setuid file can be made");
	}
	pid = fork();
	if (pid == 0) {
		if (setgid(1000) < 0 || setuid(1000) < 0)
			_exit(1);
		execl(path, path, "--euid", (char *)NULL);
		_exit(2);
	}
	waitpid(pid, &status, 0);
	unlink(path);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		probe_say(p, "it ran as root");
		return PROBE_OPEN;
	}
	return probe_end(p, false, "it ran without gaining anything, or not at all");
}

static enum verdict mount_table(struct probe_run *p)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	unsigned n = 0, leaks = 0;
	char line[4096];

	if (!f)
		return probe_end(p, false, "not readable");
	while (fgets(line, sizeof(line), f)) {
		char *dirs = strstr(line, "lowerdir");

		n++;
		leaks += dirs != NULL;
	}
	fclose(f);
	probe_say(p, "%u mounts, %u show where on the host their layers are", n, leaks);
	return PROBE_INFO;
}

/* clang-format off */
static const struct probe probes[] = {
	{ "F01", "no unexpected device in /dev", "devices of the machine", device_list, 0, 0 },
	{ "F02", "no device of the machine opens", "disks, memory, KVM, FUSE, tun", device_open, 0, 0 },
	{ "F03", "no device node can be made", "mknod and raw disk reads", device_make, 0, 0 },
	{ "F04", "nothing below /proc/sys is writable", "CVE-2022-0811: core_pattern, modprobe, binfmt_misc", proc_sys,
	  10, 0 },
	{ "F05", "no other file of /proc is writable", "sysrq-trigger, mtrr", proc_write, 0, 0 },
	{ "F06", "no kernel state in /proc", "kcore, keys, page maps", proc_read, 0, 0 },
	{ "F07", "no kernel addresses", "defeats kernel ASLR", addresses, 0, 0 },
	{ "F08", "nothing of /sys is writable, firmware and debug hidden", "uevent_helper, efi variables, tracing",
	  sys_write, 0, 0 },
	{ "F09", "no cgroup file is writable", "CVE-2022-0492: release_agent; CVE-2021-4197", cgroup_files, 10, 0 },
	{ "F10", "no cgroup path of the host is shown", "names of the host's services", cgroup_paths, 0, 0 },
	{ "F11", "no descriptor is inherited", "CVE-2024-21626, CVE-2016-9962", descriptors, 0, 0 },
	{ "F12", "no file of the host is reachable", "CVE-2024-21626, CVE-2019-5736 by /proc/*/root, cwd, fd", canary,
	  10, 0 },
	{ "F13", "the work folder lies inside the root", "CVE-2024-21626", work_folder, 0, 0 },
	{ "F14", "a read-only mount remains read-only", "CVE-2019-5736: overwriting the host's binary", read_only, 0,
	  0 },
	{ "F15", "a setuid program gains nothing", "CVE-2021-4034", setuid_program, 0, 0 },
	{ "F16", "mount table", "paths of the host", mount_table, 0, 0 },
};
/* clang-format on */
const struct probe_set probes_fs = { probes, ARRAY_LEN(probes) };
