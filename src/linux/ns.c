/* Starts a process in new namespaces. */
#include "linux/ns.h"
#include "base/base.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

long ns_clone(struct clone_args *a, int (*fn)(void *), void *arg)
{
	long r;

#ifdef __SANITIZE_ADDRESS__
	/* Frames of the child before this one were never left in the sanitizer's eyes: it went by execve. */
	__asan_unpoison_memory_region((void *)(uintptr_t)a->stack, a->stack_size);
#endif
#ifdef CLOCHE_FAULTS
	/* The gate of base/sys.c cannot be passed on two stacks, so a fault of clone3 is asked for here. */
	struct clone_args none = { .flags = ~0ULL };

	r = sys_clone3(&none, sizeof(none)); /* -EINVAL unless a fault was injected */
	if (r != -EINVAL)
		return r < 0 ? r : -EAGAIN;
#endif
#if defined(__x86_64__)
	register int (*f)(void *) __asm__("r12") = fn;
	register void *p __asm__("r13") = arg;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(r)
			 : "0"((long)SYS_clone3), "D"(a), "S"(sizeof(*a)), "r"(f), "r"(p), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)a;
	register long x1 __asm__("x1") = sizeof(*a);
	register int (*f)(void *) __asm__("x20") = fn;
	register void *p __asm__("x21") = arg;

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, #0\n\t"
			 "mov x30, #0\n\t"
			 "mov x0, x21\n\t"
			 "blr x20\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc 0\n\t"
			 "brk #0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(f), "r"(p), [exit] "i"(SYS_exit)
			 : "memory", "cc");
	r = x0;
#else
#error "this architecture has no ns_clone yet"
#endif
	return r;
}

int ns_map_ids(pid_t pid, uint32_t inside, uint32_t base, uint32_t count, struct err *e)
{
	AUTO_CLOSE int dir = -1;
	char text[64];
	int r;

	snprintf(text, sizeof(text), "/proc/%d", (int)pid);
	dir = sys_openat(AT_FDCWD, text, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		return err_sys(e, ERR_INTERNAL, dir, "open %s", text);
	snprintf(text, sizeof(text), "%u %u %u", inside, base, count);
	r = fd_put(dir, "uid_map", text);
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "write uid_map '%s'", text);
	r = fd_put(dir, "gid_map", text);
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "write gid_map '%s'", text);
	return 0;
}

static int open_ns(pid_t pid, int pidfd, unsigned long get, const char *name)
{
	char path[64];
	int fd = sys_ioctl(pidfd, get, NULL);

	/* By its path it takes five lookups, each of which leaves something that goes with the process. */
	if (fd != -ENOTTY && fd != -EINVAL && fd != -EOPNOTSUPP)
		return fd;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	return sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

int ns_open_user(pid_t pid, int pidfd)
{
	return open_ns(pid, pidfd, 0xff09 /* PIDFD_GET_USER_NAMESPACE, from 6.11 on */, "user");
}

int ns_open_mnt(pid_t pid, int pidfd)
{
	return open_ns(pid, pidfd, 0xff03 /* PIDFD_GET_MNT_NAMESPACE */, "mnt");
}

int ns_loopback_up(void)
{
	AUTO_CLOSE int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

	if (s < 0)
		return -errno;
	return sys_ioctl(s, SIOCSIFFLAGS, &ifr);
}

bool ns_net_used(void)
{
	char text[4096], *lo;

	if (fd_get(AT_FDCWD, "/proc/thread-self/net/dev", text, sizeof(text)) < 0)
		return true;
	lo = strstr(text, "lo:");
	return !lo || strtoull(lo + 3, NULL, 10) != 0;
}
