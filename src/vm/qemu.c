/*
 * One small machine: no default devices, no PCI, no network card, no monitor, no graphics. Its files come as descriptors;
 * what it can do to this host is what QEMU can, and that is little: its own filter here, and around it the jail of any
 * sandbox.
 */
#include "vm/qemu.h"
#include "base/base.h"
#include "base/sys.h"
#include "vm/start.h"

#include <linux/prctl.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#define ARGS_MAX 96
#define TEXT_MAX 4096

struct args {
	char *argv[ARGS_MAX];
	size_t n;
	char text[TEXT_MAX];
	size_t used;
	bool bad;
};

static void add(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct args *a, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(a->text + a->used, TEXT_MAX - a->used, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= TEXT_MAX - a->used || a->n + 1 >= ARGS_MAX) {
		a->bad = true;
		return;
	}
	a->argv[a->n++] = a->text + a->used;
	a->used += (size_t)n + 1;
}

#if defined(__x86_64__)
static void add_machine(struct args *a, const struct qemu_opts *o)
{
	/*
	 * `max` is slow without hardware. The count of the processor's clock is told (below): on a busy host the guest could
	 * not measure it, and there is no other clock on this board.
	 */
	add(a, "-M");
	add(a, "microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on");
	add(a, "-cpu");
	add(a, "Nehalem-v1");
	add(a, "-append");
	add(a, "console=ttyS0 quiet loglevel=1 panic=-1 reboot=t rdinit=/init random.trust_cpu=on cryptomgr.notests audit=0 "
	       "cgroup_no_v1=all no_timer_check mitigations=off tsc=reliable tsc_early_khz=%u", o->tsc_khz);
}
#elif defined(__aarch64__)
static void add_machine(struct args *a, const struct qemu_opts *o)
{
	(void)o;
	add(a, "-M");
	add(a, "virt,gic-version=3,its=off");
	add(a, "-cpu");
	add(a, "cortex-a57");
	add(a, "-append");
	add(a, "console=ttyAMA0 quiet loglevel=1 panic=-1 reboot=t rdinit=/init random.trust_cpu=on cryptomgr.notests audit=0 "
	       "cgroup_no_v1=all mitigations=off");
}
#endif

static void add_disk(struct args *a, const struct qemu_opts *o, int fd, const char *name, bool read_only)
{
	const char *ro = read_only ? "on" : "off";

	add(a, "-add-fd");
	add(a, "fd=%d,set=%d", fd, fd);
	add(a, "-blockdev");
	add(a, "driver=file,node-name=f-%s,filename=/dev/fdset/%d,read-only=%s,locking=off%s", name, fd, ro,
	    read_only ? "" : ",discard=unmap");
	add(a, "-blockdev");
	add(a, "driver=raw,node-name=d-%s,file=f-%s,read-only=%s%s", name, name, ro, read_only ? "" : ",discard=unmap");
	if (o->io_bps) {
		add(a, "-blockdev");
		add(a, "driver=throttle,node-name=t-%s,throttle-group=io,file=d-%s", name, name);
	}
	add(a, "-device");
	add(a, "virtio-blk-device,drive=%s-%s,serial=%s", o->io_bps ? "t" : "d", name, name);
}

static void add_devices(struct args *a, const struct qemu_opts *o)
{
	add(a, "-chardev");
	add(a, "socket,id=con,fd=%d", o->console);
	add(a, "-serial");
	add(a, "chardev:con");
	add(a, "-chardev");
	add(a, "socket,id=agent,fd=%d", o->port);
	add(a, "-device");
	add(a, "virtio-serial-device,max_ports=2");
	add(a, "-device");
	add(a, "virtserialport,chardev=agent,name=cloche");
	add(a, "-object");
	add(a, "rng-builtin,id=rng");
	add(a, "-device");
	add(a, "virtio-rng-device,rng=rng");
	if (o->io_bps) {
		add(a, "-object");
		add(a, "throttle-group,id=io,x-bps-read=%llu,x-bps-write=%llu", (unsigned long long)o->io_bps,
		    (unsigned long long)o->io_bps);
	}
	add_disk(a, o, o->root, "root", true);
	add_disk(a, o, o->disk, "rw", false);
	if (o->usr >= 0)
		add_disk(a, o, o->usr, "usr", true);
}

static void fill(struct args *a, const struct qemu_opts *o)
{
	static const char *const fixed[] = { QEMU_PROGRAM, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-sandbox",
					     "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", "-accel",
					     "tcg,tb-size=64", "-kernel", VM_KERNEL };

	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		add(a, "%s", fixed[i]);
	add(a, "-initrd");
	add(a, "/proc/self/fd/%d", o->initrd);
	add(a, "-m");
	add(a, "%uM", o->memory_mib);
	add(a, "-smp");
	add(a, "%u", o->cpus);
	add_machine(a, o);
	add_devices(a, o);
}

pid_t qemu_start(const struct qemu_opts *o)
{
	static struct args a;
	static char *const envp[] = { NULL };
	const int keep[] = { o->initrd, o->root, o->disk, o->port, o->console, o->usr };
	pid_t pid, parent = getpid();

	a = (struct args){ 0 };
	fill(&a, o);
	if (a.bad)
		return -E2BIG;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid)
		return pid;
	sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(1);
	for (size_t i = 0; i < ARRAY_LEN(keep); i++)
		if (keep[i] >= 0 && sys_fcntl(keep[i], F_SETFD, 0) < 0)
			_exit(1);
	sys_execve(QEMU_PROGRAM, a.argv, envp);
	dprintf(STDERR_FILENO, "%s: %s\n", QEMU_PROGRAM, strerror(errno));
	_exit(127);
}
