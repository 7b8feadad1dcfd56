/* Runs a few instructions in a virtual machine, to test KVM. */
#include "linux/kvm.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE "/dev/kvm"
#define PAGE 4096U
#define LIMIT_MS 5000
#define EXITS_MAX 16

/* What the child has found, in memory that is shared with it. */
struct found {
	char step[48]; /* "": it has come to its end */
	int errnum; /* 0: it went wrong without one */
	uint32_t reason, detail; /* KVM_EXIT_*, when ->errnum is 0 */
};

struct small {
	int vm, cpu;
	struct kvm_run *run;
	size_t size; /* of that */
	unsigned char *page;
};

#if defined(__x86_64__)
#define CODE_AT 0x1000U
#define PORT 0x3f8
#define ANSWER '7'

/*
 * Real mode: an addition, a word to memory and back, a loop, the sum to a port, and the halt. It also needs
 * instructions that some hosts have to emulate.
 */
/* clang-format off */
static const unsigned char code[] = {
	0xb0, 0x03, /* mov al, 3 */
	0xb3, 0x02, /* mov bl, 2 */
	0x00, 0xd8, /* add al, bl */
	0xa2, 0x80, 0x1f, /* mov [0x1f80], al */
	0x30, 0xc0, /* xor al, al */
	0xa0, 0x80, 0x1f, /* mov al, [0x1f80] */
	0xb9, 0x02, 0x00, /* mov cx, 2 */
	0xfe, 0xc0, /* inc al */
	0xe2, 0xfc, /* loop to that */
	0x04, 0x30, /* add al, '0' */
	0xba, 0xf8, 0x03, /* mov dx, PORT */
	0xee, /* out dx, al */
	0xf4, /* hlt */
};
/* clang-format on */

/* Whether this host is a machine itself. */
static bool is_guest(void)
{
	unsigned a = 1, b, c = 0, d;

	__asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c >> 31;
}

static int set_start(const struct small *s)
{
	struct kvm_regs regs = { .rip = CODE_AT, .rflags = 2, .rsp = CODE_AT + PAGE };
	struct kvm_sregs sregs;
	int r = sys_ioctl(s->cpu, KVM_GET_SREGS, &sregs);

	if (r < 0)
		return r;
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	r = sys_ioctl(s->cpu, KVM_SET_SREGS, &sregs);
	return r < 0 ? r : sys_ioctl(s->cpu, KVM_SET_REGS, &regs);
}

/* 1: the end, 0: continue, -1: not the exit that the code must cause. */
static int judge(const struct small *s, bool *said)
{
	const struct kvm_run *run = s->run;

	if (run->exit_reason == KVM_EXIT_HLT)
		return *said ? 1 : -1;
	if (run->exit_reason != KVM_EXIT_IO || run->io.port != PORT || run->io.data_offset >= s->size || *said ||
	    ((const char *)run)[run->io.data_offset] != ANSWER)
		return -1;
	*said = true;
	return 0;
}
#elif defined(__aarch64__)
#define CODE_AT 0x10000U
#define MMIO_AT 0x10000000U
#define ANSWER 42

static const uint32_t code[] = {
	0x52800540, /* mov w0, ANSWER */
	0xd2a20001, /* movz x1, MMIO_AT >> 16, lsl 16 */
	0x39000020, /* strb w0, [x1] */
	0x14000000, /* b . */
};

static bool is_guest(void)
{
	return false; /* no register shows it */
}

static int set_start(const struct small *s)
{
	struct kvm_vcpu_init init = { 0 };
	uint64_t pc = CODE_AT;
	struct kvm_one_reg reg = { .id = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM_CORE |
					 KVM_REG_ARM_CORE_REG(regs.pc),
				   .addr = (uintptr_t)&pc };
	int r = sys_ioctl(s->vm, KVM_ARM_PREFERRED_TARGET, &init);

	if (r == 0)
		r = sys_ioctl(s->cpu, KVM_ARM_VCPU_INIT, &init);
	return r < 0 ? r : sys_ioctl(s->cpu, KVM_SET_ONE_REG, &reg);
}

static int judge(const struct small *s, bool *said)
{
	const struct kvm_run *run = s->run;

	(void)said;
	return run->exit_reason == KVM_EXIT_MMIO && run->mmio.is_write && run->mmio.phys_addr == MMIO_AT &&
			       run->mmio.data[0] == ANSWER ?
		       1 :
		       -1;
}
#endif

static int make(struct small *s, int kvm, struct found *f)
{
	struct kvm_userspace_memory_region reg = { .guest_phys_addr = CODE_AT, .memory_size = PAGE };
	int r;

	snprintf(f->step, sizeof(f->step), "create a virtual machine");
	r = s->vm = sys_ioctl(kvm, KVM_CREATE_VM, NULL);
	if (r < 0)
		return r;
	snprintf(f->step, sizeof(f->step), "give it memory");
	s->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->page == MAP_FAILED)
		return -errno;
	memcpy(s->page, code, sizeof(code));
	reg.userspace_addr = (uintptr_t)s->page;
	r = sys_ioctl(s->vm, KVM_SET_USER_MEMORY_REGION, &reg);
	if (r < 0)
		return r;
	snprintf(f->step, sizeof(f->step), "give it a processor");
	r = s->cpu = sys_ioctl(s->vm, KVM_CREATE_VCPU, NULL);
	if (r < 0)
		return r;
	r = sys_ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, NULL);
	if (r < (int)PAGE)
		return r < 0 ? r : -EINVAL;
	s->size = (size_t)r;
	s->run = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED, s->cpu, 0);
	return s->run == MAP_FAILED ? -errno : set_start(s);
}

static void run(int kvm, struct found *f)
{
	struct small s = { .vm = -1, .cpu = -1 };
	bool said = false;
	int r = make(&s, kvm, f), end = 0;

	if (r == 0)
		snprintf(f->step, sizeof(f->step), "run it");
	for (unsigned i = 0; r == 0 && !end && i < EXITS_MAX; i++) {
		r = sys_ioctl(s.cpu, KVM_RUN, NULL);
		if (r == 0)
			end = judge(&s, &said);
	}
	if (r == 0 && end == 1) {
		f->step[0] = '\0';
		return;
	}
	f->errnum = r < 0 ? -r : 0;
	if (r == 0) {
		f->reason = s.run->exit_reason;
		f->detail = f->reason == KVM_EXIT_INTERNAL_ERROR ? s.run->internal.suberror : 0;
	}
}

/* 0 when it has ended by itself. */
static int wait_child(pid_t pid)
{
	AUTO_CLOSE int pidfd = sys_pidfd_open(pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int n, status = 0;

	do
		n = pidfd < 0 ? 0 : poll(&p, 1, LIMIT_MS);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return n != 1 ? -ETIMEDOUT : WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

static int in_child(int kvm, struct found *f)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		run(kvm, f);
		_exit(0);
	}
	return wait_child(pid);
}

static void fails(struct kvm_trial *t, const struct found *f, int r)
{
	char how[64];

	t->state = KVM_FAILS;
	if (r < 0 || f->errnum)
		snprintf(how, sizeof(how), "%.60s",
			 r == -ETIMEDOUT ? "it does not respond" : strerror(f->errnum ? f->errnum : -r));
	else if (f->reason == KVM_EXIT_INTERNAL_ERROR)
		snprintf(how, sizeof(how), "KVM internal error %u", f->detail);
	else
		snprintf(how, sizeof(how), "it stops with exit reason %u", f->reason);
	snprintf(t->why, sizeof(t->why), DEVICE " opens, but no virtual machine runs: %s: %s", f->step, how);
	snprintf(t->remedy, sizeof(t->remedy),
		 "if this host is itself a virtual machine: its provider must enable nested virtualization");
}

void kvm_try_device(const char *path, struct kvm_trial *ret)
{
	AUTO_CLOSE int kvm = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	struct found *f;
	int r;

	*ret = (struct kvm_trial){ .state = KVM_ABSENT };
	if (kvm == -EACCES || kvm == -EPERM) {
		ret->state = KVM_DENIED;
		snprintf(ret->why, sizeof(ret->why), DEVICE " cannot be opened: %s", strerror(-kvm));
		snprintf(ret->remedy, sizeof(ret->remedy), "%s",
			 geteuid() ? "run as root, or add the user to group kvm" :
				     "allow device 10:232 in the container of this process");
		return;
	}
	/* Something else by that name, a file for instance, is no KVM either. */
	if (kvm < 0 || sys_ioctl(kvm, KVM_GET_API_VERSION, NULL) != KVM_API_VERSION) {
		if (kvm == -ENOENT)
			snprintf(ret->why, sizeof(ret->why), DEVICE " does not exist");
		else
			snprintf(ret->why, sizeof(ret->why), DEVICE " has no driver%s%s", kvm < 0 ? ": " : "",
				 kvm < 0 ? strerror(-kvm) : "");
		snprintf(ret->remedy, sizeof(ret->remedy),
			 "load kvm-intel or kvm-amd; enable virtualization in the firmware, or nested virtualization "
			 "for this host");
		return;
	}
	f = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (f == MAP_FAILED) {
		fails(ret, &(struct found){ .step = "test it", .errnum = errno }, 0);
		return;
	}
	r = in_child(kvm, f);
	if (r < 0 || f->step[0]) {
		if (!f->step[0])
			snprintf(f->step, sizeof(f->step), "test it");
		fails(ret, f, r);
	} else if (is_guest()) {
		ret->state = KVM_NESTED;
		snprintf(ret->why, sizeof(ret->why),
			 "instructions run; this host is itself a virtual machine, where a kernel may hang: the first "
			 "boot decides");
		snprintf(ret->remedy, sizeof(ret->remedy),
			 "set vm_accel to kvm where KVM is known to work inside a virtual machine");
	} else {
		ret->state = KVM_WORKS;
		snprintf(ret->why, sizeof(ret->why), "a virtual machine runs");
	}
	munmap(f, PAGE);
}

void kvm_try(struct kvm_trial *ret)
{
	kvm_try_device(DEVICE, ret);
}
