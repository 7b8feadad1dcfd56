/*
 * One small machine: no default devices, no PCI, no network card, no graphics; its monitor is cloche-vmm's own. Its files
 * come as descriptors. QEMU is confined twice: by its own system call filter, which is set here, and by the jail that every
 * sandbox has.
 */
#include "vm/vmm/qemu.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/prctl.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#define ARGS_MAX 192
#define TEXT_MAX 16384
#define TB_MIB "32"
#define THREADS "8" /* threads for its disks; the jail has room for 64 threads in all */
#define KERNEL_LINE                                                                                                    \
	"console=" CONSOLE                                                                                             \
	" quiet loglevel=1 panic=-1 reboot=t rdinit=/init random.trust_cpu=on cryptomgr.notests audit=0 "              \
	"cgroup_no_v1=all mitigations=off psi=0 lsm=landlock nowatchdog rcupdate.rcu_cpu_stall_suppress=1"

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
#define BOARD "microvm"
#define BOARD_OPTS ",acpi=on,pit=on,pic=on,rtc=on,isa-serial=on"
/* `max` is many times slower without hardware. With arat the guest needs no regular ticks: idle, it costs a fourth. */
#define EMULATED "Nehalem-v1,+arat"
/* No nested virtualization, no performance counters: what is not there cannot be attacked, and need not be saved. */
#define HOST_CPU "host,vmx=off,svm=off,pmu=off"
#define KVM_OPTS BOARD_OPTS
#define CONSOLE "ttyS0"

/* Identifies the host's processor with its features, as a guest with KVM sees them. */
static uint64_t processor(void)
{
	static const unsigned leaves[] = { 1, 7, 0x80000001U };
	uint64_t sum = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < ARRAY_LEN(leaves); i++) {
		unsigned a, b, c, d;

		__asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(leaves[i]), "c"(0));
		if (leaves[i] == 1) {
			b = 0; /* it contains the number of the processor that executes this */
			c &= ~(1U << 27); /* this bit depends on the system (OSXSAVE) */
		}
		for (const unsigned *x = (const unsigned[]){ a, b, c, d }, *end = x + 4; x < end; x++)
			sum = (sum ^ *x) * 0x100000001b3ULL;
	}
	return sum;
}

/*
 * Passes the frequency of the processor's counter: on a busy host the guest could not measure it, and this board has no
 * other clock.
 */
static void add_clock(struct args *a, const struct qemu_opts *o)
{
	add(a, "%s no_timer_check tsc=reliable tsc_early_khz=%u", KERNEL_LINE, o->tsc_khz);
}
#elif defined(__aarch64__)
#define BOARD "virt"
#define BOARD_OPTS ",gic-version=3,its=off"
#define EMULATED "cortex-a57"
#define HOST_CPU "host,pmu=off"
#define KVM_OPTS ",gic-version=host,its=off"
#define CONSOLE "ttyAMA0"

static uint64_t processor(void)
{
	return 0; /* with KVM the kernel sets the frequency; QEMU refuses a saved state with another frequency */
}

static void add_clock(struct args *a, const struct qemu_opts *o)
{
	(void)o;
	add(a, "%s", KERNEL_LINE);
}
#endif

void qemu_machine(const struct qemu_opts *o, char ret[QEMU_MACHINE])
{
	memset(ret, 0, QEMU_MACHINE);
	if (o->accel == VM_KVM)
		snprintf(ret, QEMU_MACHINE, BOARD KVM_OPTS " kvm " HOST_CPU " %016llx%s 2",
			 (unsigned long long)processor(), o->usr >= 0 ? " usr" : "");
	else
		snprintf(ret, QEMU_MACHINE, BOARD BOARD_OPTS " tcg " EMULATED "%s 2", o->usr >= 0 ? " usr" : "");
}

static void add_machine(struct args *a, const struct qemu_opts *o)
{
	const char *ram = o->ram >= 0 ? ",memory-backend=mem" : "";

	add(a, "-M");
	/* States are written without a description of themselves, and read so. */
	add(a, BOARD "%s,suppress-vmdesc=on%s", o->accel == VM_KVM ? KVM_OPTS : BOARD_OPTS, ram);
	add(a, "-cpu");
	add(a, "%s", o->accel == VM_KVM ? HOST_CPU : EMULATED);
	add(a, "-accel");
	/* Translated code is each machine's own memory: a small buffer is filled again when it is full. */
	add(a, "%s", o->accel == VM_KVM ? "kvm" : "tcg,tb-size=" TB_MIB);
	add(a, "-m");
	add(a, "%uM", o->memory_mib);
	add(a, "-smp");
	add(a, "%u", o->cpus);
	if (o->ram >= 0) {
		add(a, "-object");
		add(a, "memory-backend-file,id=mem,size=%uM,mem-path=/proc/self/fd/%d,share=%s", o->memory_mib, o->ram,
		    o->role == VM_TEMPLATE ? "on" : "off");
	}
	add(a, "-global");
	add(a, "migration.send-configuration=off");
	if (o->role == VM_CLONE) {
		add(a, "-S");
		add(a, "-incoming");
		add(a, "defer");
		return;
	}
	add(a, "-kernel");
	add(a, VM_KERNEL);
	add(a, "-initrd");
	add(a, "/proc/self/fd/%d", o->initrd);
	add(a, "-append");
	add_clock(a, o);
}

/* A node "f-NAME" of the file and on it "d-NAME". Its descriptor must have been opened for just what it is used for. */
static void add_node(struct args *a, int fd, const char *name, const char *format, const char *backing, bool read_only)
{
	const char *ro = read_only ? "on" : "off", *discard = read_only ? "" : ",discard=unmap";

	add(a, "-add-fd");
	add(a, "fd=%d,set=%d", fd, fd);
	add(a, "-blockdev");
	/*
	 * Disks of a running machine do not survive a crash of the host, so QEMU need not flush; the warden syncs a
	 * disk that is kept.
	 */
	add(a, "driver=file,node-name=f-%s,filename=/dev/fdset/%d,read-only=%s,locking=off,cache.no-flush=on%s", name,
	    fd, ro, discard);
	add(a, "-blockdev");
	add(a, "driver=%s,node-name=d-%s,file=f-%s,read-only=%s%s%s", format, name, name, ro, backing, discard);
}

static void add_drive(struct args *a, const struct qemu_opts *o, const char *node, const char *serial,
		      const char *read_only)
{
	if (o->io_bps) {
		add(a, "-blockdev");
		add(a, "driver=throttle,node-name=t-%s,throttle-group=io,file=d-%s,read-only=%s", serial, node,
		    read_only);
	}
	add(a, "-device");
	add(a, "virtio-blk-device,drive=%s-%s,serial=%s", o->io_bps ? "t" : "d", o->io_bps ? serial : node, serial);
}

static void add_chain(struct args *a, const struct qemu_opts *o)
{
	char name[32] = "", backing[48] = "";

	for (size_t i = 0; i < o->disks; i++) {
		snprintf(name, sizeof(name), QEMU_DISK "-%zu", i);
		add_node(a, o->disk[i], name, i ? "qcow2" : "raw", backing, i + 1 < o->disks);
		snprintf(backing, sizeof(backing), ",backing=d-%s", name);
	}
	add_drive(a, o, name, QEMU_DISK, "off");
}

static void add_devices(struct args *a, const struct qemu_opts *o)
{
	static const char *const fixed[] = { "-serial", "chardev:con",
					     "-device", "virtio-serial-device,max_ports=2",
					     "-device", "virtserialport,chardev=agent,name=cloche",
					     "-object", "rng-builtin,id=rng",
					     "-device", "virtio-rng-device,rng=rng",
					     "-mon",	"chardev=qmp,mode=control",
					     "-object", ("main-loop,id=loop,thread-pool-max=" THREADS) };
	const struct {
		const char *id;
		int fd;
	} sock[] = { { "con", o->console }, { "agent", o->port }, { "qmp", o->qmp } };

	for (size_t i = 0; i < ARRAY_LEN(sock); i++) {
		add(a, "-chardev");
		add(a, "socket,id=%s,fd=%d", sock[i].id, sock[i].fd);
	}
	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		add(a, "%s", fixed[i]);
	if (o->io_bps) {
		add(a, "-object");
		add(a, "throttle-group,id=io,x-bps-read=%llu,x-bps-write=%llu", (unsigned long long)o->io_bps,
		    (unsigned long long)o->io_bps);
	}
	add_node(a, o->root, "root", "raw", "", true);
	add_drive(a, o, "root", "root", "on");
	add_chain(a, o);
	if (o->usr >= 0) {
		add_node(a, o->usr, "usr", "raw", "", true);
		add_drive(a, o, "usr", "usr", "on");
	}
}

static void fill(struct args *a, const struct qemu_opts *o)
{
	static const char *const fixed[] = {
		QEMU_PROGRAM,
		"-nodefaults",
		"-no-user-config",
		"-display",
		"none",
		"-no-reboot",
		"-sandbox",
		"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
	};

	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		add(a, "%s", fixed[i]);
	add_machine(a, o);
	add_devices(a, o);
}

static int pass(int fd)
{
	return fd < 0 ? 0 : sys_fcntl(fd, F_SETFD, 0);
}

static _Noreturn void become(const struct qemu_opts *o, char *const argv[], pid_t parent)
{
	/* One heap for all threads saves memory. */
	static char arenas[] = "MALLOC_ARENA_MAX=1", *const envp[] = { arenas, NULL };
	const int keep[] = { o->ram, o->initrd, o->root, o->usr, o->port, o->console, o->qmp };

	sys_prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != parent)
		_exit(1);
	for (size_t i = 0; i < ARRAY_LEN(keep); i++)
		if (pass(keep[i]) < 0)
			_exit(1);
	for (size_t i = 0; i < o->disks; i++)
		if (pass(o->disk[i]) < 0)
			_exit(1);
	/* Stdin is replaced: cloche-vmm's own stdin is its socket to the warden. */
	for (int i = 0; i < 3; i++)
		if (sys_dup3(o->console, i, 0) < 0)
			_exit(1);
	/* Its tables and code are small, and huge pages are not shared: each machine would have its own. */
	sys_prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	sys_execve(QEMU_PROGRAM, argv, envp);
	dprintf(STDERR_FILENO, "%s: %s\n", QEMU_PROGRAM, strerror(errno));
	_exit(127);
}

pid_t qemu_start(const struct qemu_opts *o)
{
	static struct args a;
	pid_t pid, parent = getpid();

	a = (struct args){ 0 };
	fill(&a, o);
	if (a.bad)
		return -E2BIG;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become(o, a.argv, parent);
	return pid;
}
