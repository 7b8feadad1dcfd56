/*
 * Two kinds of proof: real calls made by children that have the filter on, and the same program run in an interpreter
 * for every number and for many arguments against a plain C model of the rules.
 */
#include "linux/seccomp.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECCOMP_WITH_DECISIONS
#include "tools/seccomp_filter.h"

#define TEST_COOKIE 0xfeedc0de89abcdefULL
#define DIED(sig) (-100000L - (sig))
#define BROKEN (-200000L)

/* Values fixed by the kernel; old headers lack some of the names. */
enum { FAM_UNIX = 1, FAM_INET = 2, FAM_INET6 = 10, FAM_NETLINK = 16, FAM_PACKET = 17, FAM_ALG = 38, FAM_VSOCK = 40 };

/* ---- real calls ------------------------------------------------------------------------------------------------- */

/* Runs @fn in a child under the filter and returns what it returned, or DIED(signal). */
static long filtered(long (*fn)(const void *), const void *arg)
{
	long out = BROKEN;
	int p[2], st;
	pid_t pid;

	if (pipe(p) < 0)
		return BROKEN;
	pid = fork();
	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_install(TEST_COOKIE) < 0)
			_exit(1);
		out = fn(arg);
		_exit(write(p[1], &out, sizeof(out)) == sizeof(out) ? 0 : 1);
	}
	close(p[1]);
	if (pid > 0 && read(p[0], &out, sizeof(out)) != sizeof(out))
		out = BROKEN;
	close(p[0]);
	if (pid > 0 && waitpid(pid, &st, 0) == pid && WIFSIGNALED(st))
		out = DIED(WTERMSIG(st));
	return out;
}

struct call {
	const char *what;
	long nr;
	unsigned long a[6];
	long want;
};

static long make(const void *arg)
{
	const struct call *c = arg;
	long r = syscall(c->nr, c->a[0], c->a[1], c->a[2], c->a[3], c->a[4], c->a[5]);

	return r < 0 ? -errno : 0;
}

static void check_calls(const struct call *c, size_t n)
{
	for (; n--; c++) {
		long got = filtered(make, c);

		if (got != c->want)
			TEST_FAIL("%s gives %ld, not %ld", c->what, got, c->want);
	}
}

TEST(bad_arguments_are_refused)
{
	CHECK_EQ(seccomp_install(0), -EINVAL);
	CHECK_EQ(seccomp_program_len(), ARRAY_LEN(seccomp_program));
	CHECK_EQ(seccomp_install_extra(seccomp_program, 0), -EINVAL);
	CHECK_EQ(seccomp_install_extra(seccomp_program, SECCOMP_PROFILE_MAX + 1), -EINVAL);
}

TEST(socket_families_are_an_allowlist)
{
	/* clang-format off */
	static const struct call calls[] = {
		{ "unix stream", SYS_socket, { FAM_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0 }, 0 },
		{ "unix seqpacket", SYS_socket, { FAM_UNIX, SOCK_SEQPACKET, 0 }, 0 },
		{ "tcp", SYS_socket, { FAM_INET, SOCK_STREAM, 6 }, 0 },
		{ "udp", SYS_socket, { FAM_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0 }, 0 },
		{ "route netlink, raw", SYS_socket, { FAM_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0 }, 0 },
		{ "route netlink, dgram", SYS_socket, { FAM_NETLINK, SOCK_DGRAM, 0 }, 0 },
		{ "nft netlink", SYS_socket, { FAM_NETLINK, SOCK_RAW, 12 }, -EPROTONOSUPPORT },
		{ "audit netlink", SYS_socket, { FAM_NETLINK, SOCK_RAW, 9 }, -EPROTONOSUPPORT },
		{ "vsock", SYS_socket, { FAM_VSOCK, SOCK_STREAM, 0 }, -EAFNOSUPPORT },
		{ "vsock with high bits", SYS_socket, { FAM_VSOCK | 1UL << 32, SOCK_STREAM, 0 }, -EAFNOSUPPORT },
		{ "unix with high bits", SYS_socket, { FAM_UNIX | 1UL << 32, SOCK_STREAM, 0 }, 0 },
		{ "alg", SYS_socket, { FAM_ALG, SOCK_SEQPACKET, 0 }, -EAFNOSUPPORT },
		{ "packet", SYS_socket, { FAM_PACKET, SOCK_RAW, 0 }, -EAFNOSUPPORT },
		{ "raw ipv4", SYS_socket, { FAM_INET, SOCK_RAW, 255 }, -EPERM },
		{ "raw ipv4 with flags", SYS_socket, { FAM_INET, SOCK_RAW | SOCK_CLOEXEC, 1 }, -EPERM },
		{ "raw ipv6", SYS_socket, { FAM_INET6, SOCK_RAW, 58 }, -EPERM },
		{ "old packet", SYS_socket, { FAM_INET, 10, 0 }, -EPERM },
		{ "sctp", SYS_socket, { FAM_INET, SOCK_STREAM, 132 }, -EPROTONOSUPPORT },
		{ "seqpacket on inet", SYS_socket, { FAM_INET, SOCK_SEQPACKET, 0 }, -ESOCKTNOSUPPORT },
	};
	/* clang-format on */
	int pair[2];
	const struct call pairs[] = {
		{ "unix pair", SYS_socketpair, { FAM_UNIX, SOCK_STREAM, 0, (unsigned long)pair }, 0 },
		{ "inet pair", SYS_socketpair, { FAM_INET, SOCK_STREAM, 0, (unsigned long)pair }, -EAFNOSUPPORT },
		{ "tipc pair", SYS_socketpair, { 30, SOCK_STREAM, 0, (unsigned long)pair }, -EAFNOSUPPORT },
	};

	check_calls(calls, ARRAY_LEN(calls));
	check_calls(pairs, ARRAY_LEN(pairs));
}

TEST(namespaces_cannot_be_made_or_joined)
{
	char buf[256] = "";
	const unsigned long mem = (unsigned long)buf;
	/* clang-format off */
	const struct call calls[] = {
		{ "unshare user", SYS_unshare, { CLONE_NEWUSER }, -EPERM },
		{ "unshare time", SYS_unshare, { 0x80 }, -EPERM },
		{ "unshare of an unknown flag", SYS_unshare, { 1UL << 40 }, -EPERM },
		{ "unshare files and fs", SYS_unshare, { CLONE_FILES | CLONE_FS }, 0 },
		{ "clone user", SYS_clone, { CLONE_NEWUSER | SIGCHLD }, -EPERM },
		{ "clone net and thread", SYS_clone, { CLONE_NEWNET | CLONE_VM }, -EPERM },
		{ "clone3", SYS_clone3, { mem, 88 }, -ENOSYS },
		{ "setns", SYS_setns, { 0, 0 }, -EPERM },
		{ "mount", SYS_mount, { mem, mem, mem, 0, 0 }, -EPERM },
		{ "umount2", SYS_umount2, { mem, 0 }, -EPERM },
		{ "pivot_root", SYS_pivot_root, { mem, mem }, -EPERM },
		{ "fsopen", SYS_fsopen, { mem, 0 }, -EPERM },
		{ "open_tree", SYS_open_tree, { (unsigned long)AT_FDCWD, mem, 0 }, -EPERM },
		{ "mount_setattr", SYS_mount_setattr, { (unsigned long)AT_FDCWD, mem, 0, mem, 32 }, -EPERM },
	};
	/* clang-format on */

	check_calls(calls, ARRAY_LEN(calls));
}

TEST(mount_calls_pass_only_with_the_whole_cookie)
{
	static const char none[] = "/nonexistent/cloche";
	const unsigned long p = (unsigned long)none, bad = (unsigned long)-1;
	/* clang-format off */
	const struct call calls[] = {
		/* The kernel looks for the folder before it asks for the capability: ENOENT means the filter passed. */
		{ "chroot with cookie", SYS_chroot, { p, 0, 0, 0, 0, TEST_COOKIE }, -ENOENT },
		{ "chroot without", SYS_chroot, { p, 0, 0, 0, 0, 0 }, -EPERM },
		{ "chroot, low half only", SYS_chroot, { p, 0, 0, 0, 0, (uint32_t)TEST_COOKIE }, -EPERM },
		{ "chroot, high half only", SYS_chroot, { p, 0, 0, 0, 0, TEST_COOKIE >> 32 << 32 }, -EPERM },
		{ "chroot, one bit off", SYS_chroot, { p, 0, 0, 0, 0, TEST_COOKIE ^ 1UL << 63 }, -EPERM },
		{ "chroot, halves swapped",
		  SYS_chroot,
		  { p, 0, 0, 0, 0, TEST_COOKIE >> 32 | TEST_COOKIE << 32 },
		  -EPERM },
		{ "chroot, cookie in the wrong place", SYS_chroot, { p, 0, 0, 0, TEST_COOKIE, 0 }, -EPERM },
		{ "move_mount without", SYS_move_mount, { bad, p, bad, p, 0, 0 }, -EPERM },
		{ "sethostname without", SYS_sethostname, { p, bad, 0, 0, 0, 0 }, -EPERM },
	};
	/* clang-format on */
	/* clang-format off */
	const struct call as_root[] = {
		{ "move_mount with cookie", SYS_move_mount, { bad, p, bad, p, ~0UL, TEST_COOKIE }, -EINVAL },
		{ "clone3 with cookie", SYS_clone3, { p, 1, 0, 0, 0, TEST_COOKIE }, -EINVAL },
		{ "clone3, one bit off", SYS_clone3, { p, 1, 0, 0, 0, TEST_COOKIE ^ 1 }, -ENOSYS },
		{ "clone3, low half only", SYS_clone3, { p, 1, 0, 0, 0, (uint32_t)TEST_COOKIE }, -ENOSYS },
		{ "SO_ATTACH_REUSEPORT_CBPF with cookie", SYS_setsockopt, { bad, 1, 51, p, 16, TEST_COOKIE }, -EBADF },
		{ "userfaultfd with cookie", SYS_userfaultfd, { ~0UL, 0, 0, 0, 0, TEST_COOKIE }, -EINVAL },
		{ "userfaultfd, one bit off", SYS_userfaultfd, { ~0UL, 0, 0, 0, 0, TEST_COOKIE ^ 4 }, -EPERM },
		{ "set_mm with cookie", SYS_prctl, { 35, 15, p, ~0UL, 0, TEST_COOKIE }, -EFAULT },
		{ "set_mm without", SYS_prctl, { 35, 15, p, ~0UL, 0, 0 }, -EPERM },
		{ "set_mm, one bit off", SYS_prctl, { 35, 15, p, ~0UL, 0, TEST_COOKIE ^ 2 }, -EPERM },
		{ "sethostname with cookie", SYS_sethostname, { p, bad, 0, 0, 0, TEST_COOKIE }, -EINVAL },
	};
	/* clang-format on */

	check_calls(calls, ARRAY_LEN(calls));
	if (geteuid() == 0)
		check_calls(as_root, ARRAY_LEN(as_root));
}

TEST(kernel_memory_that_no_limit_counts_is_refused)
{
	static char buf[65536];
	const unsigned long mem = (unsigned long)buf, bad = ~0UL, file = (unsigned long)"/nonexistent/cloche",
			    name = (unsigned long)"user.x";
	/* clang-format off */
	const struct call calls[] = {
		{ "mbind", SYS_mbind, { mem, 4096, 2, mem, 8, 0 }, -EPERM },
		{ "set_mempolicy_home_node", 450, { mem, 4096, 0, 0 }, -EPERM },
		{ "set_mempolicy", SYS_set_mempolicy, { 0, 0, 0 }, 0 },
		{ "mknodat, a pipe", SYS_mknodat, { bad, file, S_IFIFO | 0600, 0 }, -ENOENT },
		{ "mknodat, a file", SYS_mknodat, { bad, file, 0600, 0 }, -ENOENT },
		{ "mknodat, a device", SYS_mknodat, { bad, file, S_IFCHR | 0600, 259 }, -EPERM },
		{ "mknodat, a disk, with high bits", SYS_mknodat, { bad, file, S_IFBLK | 7UL << 32 | 1UL << 16, 259 }, -EPERM },
		{ "setxattrat", 463, { bad, file, 0, name, mem, 16 }, -ENOSYS },
		{ "setxattr, a list of 13 entries", SYS_setxattr, { file, name, mem, 108, 0 }, -ENOENT },
		{ "setxattr, a list of 14 entries", SYS_setxattr, { file, name, mem, 116, 0 }, -E2BIG },
		{ "lsetxattr, a list of 8,190 entries", SYS_lsetxattr, { file, name, mem, 65524, 0 }, -E2BIG },
		{ "fsetxattr, a list of 127 entries", SYS_fsetxattr, { bad, name, mem, 1020, 0 }, -E2BIG },
		{ "setxattr, 1 KiB", SYS_setxattr, { file, name, mem, 1024, 0 }, -ENOENT },
		{ "setxattr, 64 KiB", SYS_setxattr, { file, name, mem, 65536, 0 }, -ENOENT },
		{ "SO_ATTACH_FILTER", SYS_setsockopt, { bad, 1, 26, mem, 16 }, -ENOPROTOOPT },
		{ "SO_ATTACH_FILTER with high bits", SYS_setsockopt, { bad, 1 | 7UL << 32, 26 | 7UL << 32, mem, 16 }, -ENOPROTOOPT },
		{ "SO_ATTACH_BPF", SYS_setsockopt, { bad, 1, 50, mem, 4 }, -ENOPROTOOPT },
		{ "SO_ATTACH_REUSEPORT_CBPF", SYS_setsockopt, { bad, 1, 51, mem, 16 }, -EPERM },
		{ "SO_ATTACH_REUSEPORT_EBPF", SYS_setsockopt, { bad, 1, 52, mem, 4 }, -ENOPROTOOPT },
		{ "TCP_MD5SIG", SYS_setsockopt, { bad, 6, 14, mem, 16 }, -ENOPROTOOPT },
		{ "TCP_MD5SIG_EXT", SYS_setsockopt, { bad, 6, 32, mem, 16 }, -ENOPROTOOPT },
		{ "TCP_AO_ADD_KEY", SYS_setsockopt, { bad, 6, 38, mem, 16 }, -ENOPROTOOPT },
		{ "SO_RCVBUF", SYS_setsockopt, { bad, 1, 8, mem, 4 }, -EBADF },
		{ "TCP_NODELAY", SYS_setsockopt, { bad, 6, 1, mem, 4 }, -EBADF },
		{ "IPV6_FLOWLABEL_MGR", SYS_setsockopt, { bad, 41, 32, mem, 32 }, -ENOPROTOOPT },
		{ "IPV6_RECVERR", SYS_setsockopt, { bad, 41, 25, mem, 4 }, -EBADF },
		{ "TCP_ZEROCOPY_RECEIVE", SYS_getsockopt, { bad, 6 | 7UL << 32, 35 | 7UL << 32, mem, mem }, -ENOPROTOOPT },
		{ "TCP_INFO", SYS_getsockopt, { bad, 6, 11, mem, mem }, -EBADF },
		{ "IP option 35, asked", SYS_getsockopt, { bad, 0, 35, mem, mem }, -EBADF },
		{ "IP option of the same number", SYS_setsockopt, { bad, 0, 26, mem, 16 }, -EBADF },
	};
	/* clang-format on */

	check_calls(calls, ARRAY_LEN(calls));
}

TEST(dangerous_calls_are_refused_and_unknown_ones_are_absent)
{
	char buf[256] = "";
	const unsigned long mem = (unsigned long)buf, here = (unsigned long)AT_FDCWD;
	/* clang-format off */
	const struct call calls[] = {
		{ "io_uring_setup", SYS_io_uring_setup, { 4, mem }, -ENOSYS },
		{ "unknown", 9999, { 0 }, -ENOSYS },
		{ "the next kernel's", 600, { 0 }, -ENOSYS },
		{ "minus one", -1, { 0 }, -ENOSYS },
		{ "bpf", SYS_bpf, { 0, mem, 72 }, -EPERM },
		{ "perf_event_open", SYS_perf_event_open, { mem, 0, 0, 0, 0 }, -EPERM },
		{ "userfaultfd", SYS_userfaultfd, { 1 }, -EPERM },
		{ "add_key", SYS_add_key, { mem, mem, mem, 1, 0 }, -EPERM },
		{ "keyctl", SYS_keyctl, { 0, 0, 0 }, -EPERM },
		{ "ptrace of nobody", SYS_ptrace, { 16, ~0UL, 0, 0 }, -ESRCH },
		{ "open_by_handle_at", SYS_open_by_handle_at, { here, mem, 0 }, -EPERM },
		{ "adjtimex", SYS_adjtimex, { mem }, -EPERM },
		{ "syslog", SYS_syslog, { 3, mem, 64 }, -EPERM },
		{ "kexec_load", SYS_kexec_load, { 0, 0, 0, 0xffffffff }, -EPERM },
		{ "init_module", SYS_init_module, { mem, 0, mem }, -EPERM },
		{ "io_setup", SYS_io_setup, { 1, mem }, -ENOSYS },
		{ "TIOCSTI", SYS_ioctl, { ~0UL, 0x5412, mem }, -EPERM },
		{ "TIOCSTI with high bits", SYS_ioctl, { ~0UL, 0xabcd00005412UL, mem }, -EPERM },
		{ "TIOCLINUX", SYS_ioctl, { ~0UL, 0x541c, mem }, -EPERM },
		{ "TIOCSETD", SYS_ioctl, { ~0UL, 0x5423, mem }, -EPERM },
		{ "TIOCGWINSZ", SYS_ioctl, { ~0UL, 0x5413, mem }, -EBADF },
		{ "PR_SET_MM", SYS_prctl, { 35, 0, 0, 0, 0 }, -EPERM },
		{ "PR_SCHED_CORE", SYS_prctl, { 62, 0, 0, 0, 0 }, -EPERM },
		{ "PR_SET_NAME", SYS_prctl, { 15, mem, 0, 0, 0 }, 0 },
		{ "prlimit, own", SYS_prlimit64, { 0, 7, 0, 0 }, 0 },
		{ "prlimit, of the agent", SYS_prlimit64, { 1, 7, 0, 0 }, -EPERM },
		{ "prlimit, of the agent, upper half", SYS_prlimit64, { 0x700000001, 7, 0, 0 }, -EPERM },
		{ "personality, asked", SYS_personality, { 0xffffffff }, 0 },
		{ "personality, no random layout", SYS_personality, { 0x40000 }, -EPERM },
		{ "personality, readable is executable", SYS_personality, { 0x400000 }, -EPERM },
	};
	/* clang-format on */

	check_calls(calls, ARRAY_LEN(calls));
}

#ifdef __x86_64__
static long int80(const void *arg)
{
	long r;

	(void)arg;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "cc"); /* getpid of 32-bit programs */
	return r > 0 ? 0 : r;
}

static bool has_int80(void)
{
	int st = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(int80(NULL) == 0 ? 0 : 1);
	return waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0;
}

TEST(other_calling_conventions_die)
{
	static const struct call x32 = { "x32 getpid", 0x40000000 | SYS_getpid, { 0 }, DIED(SIGSYS) };

	check_calls(&x32, 1);
	/* A kernel without 32-bit support has no such door at all. */
	CHECK_EQ(filtered(int80, NULL), DIED(has_int80() ? SIGSYS : SIGSEGV));
}
#endif

static void *thread(void *arg)
{
	*(int *)arg = 7;
	return NULL;
}

static long everyday(const void *arg)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int got = 0, ep, efd, in, mem, st;
	pthread_t t;
	pid_t pid;
	uint64_t one = 1;
	void *p;

	(void)arg;
	if (pthread_create(&t, NULL, thread, &got) || pthread_join(t, NULL) || got != 7)
		return 1;
	ep = epoll_create1(EPOLL_CLOEXEC);
	efd = eventfd(0, EFD_CLOEXEC);
	if (ep < 0 || efd < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev) < 0 || write(efd, &one, 8) != 8 ||
	    epoll_wait(ep, &ev, 1, 1000) != 1)
		return 2;
	in = inotify_init1(IN_CLOEXEC);
	if (in < 0 || inotify_add_watch(in, "/tmp", IN_CREATE) < 0)
		return 3;
	mem = memfd_create("x", MFD_CLOEXEC);
	if (mem < 0 || ftruncate(mem, 4096) < 0)
		return 4;
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	if (p == MAP_FAILED || mprotect(p, 4096, PROT_READ) < 0)
		return 5;
	pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "x=$(ls / | wc -l) && [ $x -gt 3 ] && cd /tmp && umask 077 && sleep 0",
		      NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &st, 0) != pid || st)
		return 6;
	return 0;
}

TEST(threads_events_and_a_shell_work_under_the_filter)
{
	CHECK_EQ(filtered(everyday, NULL), 0);
}

/* ---- the interpreter -------------------------------------------------------------------------------------------- */

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif
#define NO_VERDICT 0xdeadU

static uint32_t verdict(const struct sock_filter *prog, size_t len, const struct seccomp_data *d)
{
	uint32_t acc = 0, x = 0;

	for (size_t pc = 0; pc < len; pc++) {
		const struct sock_filter *f = &prog[pc];

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (f->k % 4 || f->k + 4 > sizeof(*d))
				return NO_VERDICT;
			memcpy(&acc, (const char *)d + f->k, 4);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			acc &= f->k;
			break;
		case BPF_ALU | BPF_XOR | BPF_K:
			acc ^= f->k;
			break;
		case BPF_ALU | BPF_OR | BPF_X:
			acc |= x;
			break;
		case BPF_MISC | BPF_TAX:
			x = acc;
			break;
		case BPF_JMP | BPF_JA:
			pc += f->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += acc == f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += acc >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += acc & f->k ? f->jt : f->jf;
			break;
		case BPF_RET | BPF_K:
			return f->k;
		default:
			return NO_VERDICT;
		}
	}
	return NO_VERDICT;
}

#define ERRNO(e) (SECCOMP_RET_ERRNO | (e))

static uint32_t model_socket(int family, int type, int proto)
{
	bool inet = family == FAM_INET || family == FAM_INET6;

	if (family == FAM_UNIX)
		return SECCOMP_RET_ALLOW;
	if (family == FAM_NETLINK)
		return proto == 0 ? SECCOMP_RET_ALLOW : ERRNO(EPROTONOSUPPORT);
	if (!inet)
		return ERRNO(EAFNOSUPPORT);
	type &= 0xf;
	if (type == 3 || type == 10)
		return ERRNO(EPERM);
	if (type != 1 && type != 2)
		return ERRNO(ESOCKTNOSUPPORT);
	return proto == 0 || proto == 1 || proto == 6 || proto == 17 || proto == 58 ? SECCOMP_RET_ALLOW :
										      ERRNO(EPROTONOSUPPORT);
}

/* The rules once more, as one would say them. */
static uint32_t model(int action, const __u64 *a)
{
	uint32_t lo = (uint32_t)a[0], cmd = (uint32_t)a[1];

	switch (action) {
	case DECIDED_ALLOW:
		return SECCOMP_RET_ALLOW;
	case DECIDED_REFUSE:
		return ERRNO(EPERM);
	case DECIDED_SOCKET:
		return model_socket((int)a[0], (int)a[1], (int)a[2]);
	case DECIDED_SOCKETPAIR:
		return lo == FAM_UNIX ? SECCOMP_RET_ALLOW : ERRNO(EAFNOSUPPORT);
	case DECIDED_CLONE:
		return lo & (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
			     CLONE_NEWPID | CLONE_NEWNET) ?
			       ERRNO(EPERM) :
			       SECCOMP_RET_ALLOW;
	case DECIDED_UNSHARE:
		return a[0] & ~(uint64_t)(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM) ? ERRNO(EPERM) : SECCOMP_RET_ALLOW;
	case DECIDED_IOCTL:
		return cmd == 0x5412 || cmd == 0x541c || cmd == 0x541d || cmd == 0x5423 ? ERRNO(EPERM) :
											  SECCOMP_RET_ALLOW;
	case DECIDED_PRCTL:
		if (lo == 35)
			return a[5] == 0 ? SECCOMP_RET_ALLOW : ERRNO(EPERM);
		return lo == 57 || lo == 62 || lo == 67 ? ERRNO(EPERM) : SECCOMP_RET_ALLOW;
	case DECIDED_PERSONALITY:
		return lo == 0 || lo == 8 || lo == 0xffffffff ? SECCOMP_RET_ALLOW : ERRNO(EPERM);
	case DECIDED_NOT_INIT:
		return lo == 1 ? ERRNO(EPERM) : SECCOMP_RET_ALLOW;
	case DECIDED_SETSOCKOPT:
		if (cmd == 1 && (uint32_t)a[2] == 51)
			return a[5] == 0 ? SECCOMP_RET_ALLOW : ERRNO(EPERM);
		return (cmd == 1 && ((uint32_t)a[2] == 26 || (uint32_t)a[2] == 50 || (uint32_t)a[2] == 52)) ||
				       (cmd == 6 &&
					((uint32_t)a[2] == 14 || (uint32_t)a[2] == 32 || (uint32_t)a[2] == 38)) ||
				       (cmd == 41 && (uint32_t)a[2] == 32) ?
			       ERRNO(ENOPROTOOPT) :
			       SECCOMP_RET_ALLOW;
	case DECIDED_GETSOCKOPT:
		return cmd == 6 && (uint32_t)a[2] == 35 ? ERRNO(ENOPROTOOPT) : SECCOMP_RET_ALLOW;
	case DECIDED_SETXATTR:
		return (uint32_t)a[3] > 108 && (uint32_t)a[3] % 8 == 4 ? ERRNO(E2BIG) : SECCOMP_RET_ALLOW;
	case DECIDED_MKNOD:
		return S_ISCHR((uint32_t)a[1]) || S_ISBLK((uint32_t)a[1]) ? ERRNO(EPERM) : SECCOMP_RET_ALLOW;
	case DECIDED_MKNODAT:
		return S_ISCHR((uint32_t)a[2]) || S_ISBLK((uint32_t)a[2]) ? ERRNO(EPERM) : SECCOMP_RET_ALLOW;
	case DECIDED_COOKIE: /* the table's program has none patched in */
		return a[5] == 0 ? SECCOMP_RET_ALLOW : ERRNO(EPERM);
	case DECIDED_CLONE3:
		return a[5] == 0 ? SECCOMP_RET_ALLOW : ERRNO(ENOSYS);
	default:
		return ERRNO(ENOSYS);
	}
}

static int decided(int nr)
{
	for (size_t i = 0; i < ARRAY_LEN(seccomp_decisions); i++)
		if (seccomp_decisions[i].nr == nr)
			return seccomp_decisions[i].action;
	return DECIDED_ABSENT;
}

TEST(every_number_gets_the_verdict_of_the_table)
{
	/* Small values, every constant of the rules, its neighbours, and garbage above. */
	/* clang-format off */
	static const uint64_t values[] = {
		0,	    1,		 2,	      3,	   4,		5,	     6,
		7,	    8,		 9,	      10,	   11,		12,	     15,
		16,	    17,		 18,	      34,	   35,		36,	     38,
		40,	    41,		 57,		 58,	      62,	   67,		132,	     262,
		0x80,	    0x200,	 0x400,	      0x600,	   0x20000,	0x40000,     0x40600,
		0x2000000,  0x10000000,	 0x40000000,  0x80000000,  0x5411,	0x5412,	     0x5413,
		0x541c,	    0x541d,	 0x541e,      0x5423,	   0x80001,	0x80003,     0x80803,
		14,	    26,		 32,	      50,	   51,		52,	     53,
		0x1180,	    0x2180,	 0x6180,      0x16180,	   0x100002180, 0x8180,	     0xa180,
		100,	    108,	 109,	      116,	   120,		1024,	     65532,
		0xffffffff, 0x100000000, 0x100000001, 0x100000002, 0x100000400, 0x100005412, 0x8000000000000000,
	};
	/* clang-format on */
	size_t n = ARRAY_LEN(values);

	for (int nr = 0; nr <= 600; nr++) {
		int action = decided(nr);
		bool three = action == DECIDED_SOCKET || action == DECIDED_SETSOCKOPT || action == DECIDED_GETSOCKOPT;

		for (size_t i = 0; i < (three ? n * n * n : n); i++) {
			struct seccomp_data d = { .nr = nr, .arch = ARCH };
			uint32_t got, want;

			if (three) {
				d.args[0] = values[i % n];
				d.args[1] = values[i / n % n];
				d.args[2] = values[i / n / n];
			} else {
				for (size_t k = 0; k < 6; k++)
					d.args[k] = values[i];
			}
			got = verdict(seccomp_program, ARRAY_LEN(seccomp_program), &d);
			want = model(action, d.args);
			if (got != want)
				TEST_FAIL("call %d with %llx %llx %llx: %x, not %x", nr, (unsigned long long)d.args[0],
					  (unsigned long long)d.args[1], (unsigned long long)d.args[2], got, want);
			d.arch ^= 1;
			CHECK_EQ(verdict(seccomp_program, ARRAY_LEN(seccomp_program), &d), SECCOMP_RET_KILL_PROCESS);
		}
	}
}

/* The table itself, by the calls that matter most, so that an edit there cannot pass unseen. */
TEST(the_table_never_allows_the_dangerous_calls)
{
	static const int never[] = {
		SYS_mount,
		SYS_umount2,
		SYS_pivot_root,
		SYS_setns,
		SYS_fsopen,
		SYS_fsmount,
		SYS_fsconfig,
		SYS_fspick,
		SYS_open_tree,
		SYS_bpf,
		SYS_perf_event_open,
		SYS_keyctl,
		SYS_add_key,
		SYS_request_key,
		SYS_pidfd_getfd,
		SYS_kcmp,
		SYS_io_uring_setup,
		SYS_io_uring_enter,
		SYS_io_uring_register,
		SYS_init_module,
		SYS_finit_module,
		SYS_delete_module,
		SYS_kexec_load,
		SYS_reboot,
		SYS_swapon,
		SYS_swapoff,
		SYS_acct,
		SYS_settimeofday,
		SYS_clock_settime,
		SYS_clock_adjtime,
		SYS_adjtimex,
		SYS_syslog,
		SYS_fanotify_init,
		SYS_open_by_handle_at,
		SYS_name_to_handle_at,
		SYS_quotactl,
		SYS_vhangup,
		SYS_vmsplice,
		SYS_lookup_dcookie,
		SYS_setdomainname,
		SYS_move_pages,
		SYS_migrate_pages,
		SYS_nfsservctl,
#ifdef __x86_64__
		SYS_iopl,
		SYS_ioperm,
		SYS_modify_ldt,
		SYS_uselib,
		SYS_ustat,
#endif
	};

	for (size_t i = 0; i < ARRAY_LEN(never); i++) {
		int action = decided(never[i]);

		if (action != DECIDED_REFUSE && action != DECIDED_ABSENT)
			TEST_FAIL("call %d is decided as %d", never[i], action);
	}
	CHECK_EQ(decided(SYS_move_mount), DECIDED_COOKIE);
	CHECK_EQ(decided(SYS_chroot), DECIDED_COOKIE);
	CHECK_EQ(decided(SYS_mount_setattr), DECIDED_COOKIE);
	CHECK_EQ(decided(SYS_sethostname), DECIDED_COOKIE);
	CHECK_EQ(decided(SYS_userfaultfd), DECIDED_COOKIE);
	CHECK_EQ(decided(SYS_clone3), DECIDED_CLONE3);
	CHECK_EQ(decided(SYS_clone), DECIDED_CLONE);
	CHECK_EQ(decided(SYS_unshare), DECIDED_UNSHARE);
	CHECK_EQ(decided(SYS_socket), DECIDED_SOCKET);
	CHECK_EQ(decided(SYS_ioctl), DECIDED_IOCTL);
}

/* ---- a second filter -------------------------------------------------------------------------------------------- */

static long with_extra(const void *arg)
{
	const struct sock_filter extra[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdirat, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setns, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ERRNO(EROFS)),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW), /* must not bring back what ours refuses */
	};

	(void)arg;
	if (seccomp_install_extra(extra, ARRAY_LEN(extra)) < 0)
		return 1;
	if (syscall(SYS_mkdirat, AT_FDCWD, "/tmp", 0700) != -1 || errno != EROFS)
		return 2;
	if (syscall(SYS_unshare, CLONE_NEWUSER) != -1 || errno != EPERM)
		return 3;
	if (syscall(SYS_setns, -1, 0) != -1 || errno != EROFS) /* both refuse: the newer one's number */
		return 4;
	return 0;
}

TEST(an_extra_filter_tightens_and_never_loosens)
{
	CHECK_EQ(filtered(with_extra, NULL), 0);
}
