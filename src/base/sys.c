/* System calls by number, and in builds for tests their failures. */
#include "base/sys.h"
#include "base/base.h"

#include <stdarg.h>
#ifdef CLOCHE_FAULTS
#include <sys/mman.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

/*
 * setresuid and similar functions of libc signal every thread; these change the calling thread only, as a jail needs
 * it.
 */

static const char *const names[] = {
#define X(name) #name,
	SYS_CALLS(X)
#undef X
};

const char *sys_name(enum sys_id id)
{
	return names[id];
}

#ifdef CLOCHE_FAULTS
/* Test builds only: the one place with mutable globals, since a fault must reach calls made anywhere. */
static struct fault {
	unsigned fail_at;
	int errnum;
} own_faults[SYSID_COUNT], *faults = own_faults;
static struct sys_test_record own[SYSID_COUNT], *records = own;

void sys_test_fail(enum sys_id id, int errnum, unsigned nth)
{
	faults[id].fail_at = records[id].made + nth;
	faults[id].errnum = errnum;
}

unsigned sys_test_count(enum sys_id id)
{
	return records[id].made;
}

/*
 * Counts in a file that is shared: they are there whatever ends us, and wherever we cannot write by then. In a file of
 * SYS_TEST_SHARED bytes the calls to fail are behind them: the next call of any process that has it fails.
 */
static int count_into(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct sys_test_record *shared;
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);

	static_assert(sizeof(own) + sizeof(own_faults) <= SYS_TEST_SHARED, "they are behind the records");
	if (fd < 0)
		return -errno;
	shared = mmap(NULL, size == SYS_TEST_SHARED ? SYS_TEST_SHARED : sizeof(own), PROT_READ | PROT_WRITE, MAP_SHARED,
		      fd, 0);
	close(fd);
	if (shared == MAP_FAILED)
		return -errno;
	for (unsigned i = 0; i < SYSID_COUNT; i++)
		snprintf(shared[i].name, sizeof(shared[i].name), "%s", names[i]);
	records = shared;
	if (size == SYS_TEST_SHARED)
		faults = (struct fault *)(void *)(shared + SYSID_COUNT);
	return 0;
}

int sys_test_parse(const char *spec)
{
	char name[40];
	unsigned errnum, nth;
	const char *into;

	if (!spec)
		return -EINVAL;
	into = strchr(spec, '@');
	if (into) {
		int r = count_into(into + 1);

		if (r < 0 || into == spec)
			return r;
	}
	if (sscanf(spec, "%39[a-z0-9_]:%u:%u", name, &errnum, &nth) != 3)
		return -EINVAL;
	for (unsigned i = 0; i < SYSID_COUNT; i++) {
		if (strcmp(names[i], name))
			continue;
		sys_test_fail((enum sys_id)i, (int)errnum, nth);
		return 0;
	}
	return -ENOENT;
}

static _Thread_local bool spared;

void sys_test_spare(void)
{
	spared = true;
}

static int injected(enum sys_id id)
{
	if (spared)
		return 0;
	if (__atomic_add_fetch(&records[id].made, 1, __ATOMIC_RELAXED) != faults[id].fail_at)
		return 0;
	if (!faults[id].errnum)
		kill(getpid(), SIGKILL);
	return -faults[id].errnum;
}
#else
static inline int injected(enum sys_id id)
{
	(void)id;
	return 0;
}
#endif

/*
 * Not libc's syscall(): that leaves its error in errno, and a CLONE_VM child has the errno of the thread that made it.
 * One of the two could then read the other's, or a 0, and take a failure for a success.
 */
static long raw(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "0"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
#else
#error "this architecture has no raw system calls yet"
#endif
}

/* Arguments that are not given are 0. */
#define RAW(nr, a, b, c, d, e, f, ...) raw(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#define CALL(name, nr, ...)                                                                                            \
	({                                                                                                             \
		long call_r_ = injected(SYSID_##name);                                                                 \
		if (!call_r_)                                                                                          \
			call_r_ = RAW(nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0);                                              \
		call_r_;                                                                                               \
	})

int sys_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	return (int)CALL(openat, SYS_openat, dirfd, path, flags | O_LARGEFILE, mode);
}

int sys_openat2(int dirfd, const char *path, const struct open_how *how)
{
	return (int)CALL(openat2, SYS_openat2, dirfd, path, how, sizeof(*how));
}

ssize_t sys_read(int fd, void *buf, size_t n)
{
	return (ssize_t)CALL(read, SYS_read, fd, buf, n);
}

ssize_t sys_write(int fd, const void *buf, size_t n)
{
	return (ssize_t)CALL(write, SYS_write, fd, buf, n);
}

int sys_mkdirat(int dirfd, const char *path, mode_t mode)
{
	return (int)CALL(mkdirat, SYS_mkdirat, dirfd, path, mode);
}

int sys_mknodat(int dirfd, const char *path, mode_t mode, unsigned dev)
{
	return (int)CALL(mknodat, SYS_mknodat, dirfd, path, mode, dev);
}

int sys_symlinkat(const char *target, int dirfd, const char *path)
{
	return (int)CALL(symlinkat, SYS_symlinkat, target, dirfd, path);
}

int sys_unlinkat(int dirfd, const char *path, int flags)
{
	return (int)CALL(unlinkat, SYS_unlinkat, dirfd, path, flags);
}

ssize_t sys_getdents64(int fd, void *buf, size_t size)
{
	return (ssize_t)CALL(getdents64, SYS_getdents64, fd, buf, size);
}

int sys_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags)
{
	return (int)CALL(fchownat, SYS_fchownat, dirfd, path, uid, gid, flags);
}

int sys_fchmod(int fd, mode_t mode)
{
	return (int)CALL(fchmod, SYS_fchmod, fd, mode);
}

int sys_ftruncate(int fd, off_t len)
{
	return (int)CALL(ftruncate, SYS_ftruncate, fd, len);
}

int sys_pipe2(int fds[2], int flags)
{
	return (int)CALL(pipe2, SYS_pipe2, fds, flags);
}

int sys_dup3(int from, int to, int flags)
{
	return (int)CALL(dup3, SYS_dup3, from, to, flags);
}

int sys_fcntl(int fd, int cmd, long arg)
{
	return (int)CALL(fcntl, SYS_fcntl, fd, cmd, arg);
}

int sys_ioctl(int fd, unsigned long req, void *arg)
{
	return (int)CALL(ioctl, SYS_ioctl, fd, req, arg);
}

int sys_memfd_create(const char *name, unsigned flags)
{
	return (int)CALL(memfd_create, SYS_memfd_create, name, flags);
}

int sys_socketpair(int domain, int type, int proto, int fds[2])
{
	return (int)CALL(socketpair, SYS_socketpair, domain, type, proto, fds);
}

ssize_t sys_sendmsg(int fd, const struct msghdr *m, int flags)
{
	return (ssize_t)CALL(sendmsg, SYS_sendmsg, fd, m, flags);
}

ssize_t sys_recvmsg(int fd, struct msghdr *m, int flags)
{
	return (ssize_t)CALL(recvmsg, SYS_recvmsg, fd, m, flags);
}

int sys_unshare(int flags)
{
	return (int)CALL(unshare, SYS_unshare, flags);
}

int sys_setns(int fd, int type)
{
	return (int)CALL(setns, SYS_setns, fd, type);
}

long sys_clone3(struct clone_args *a, size_t size)
{
	return (long)CALL(clone3, SYS_clone3, a, size);
}

long sys_clone3_cookie(struct clone_args *a, size_t size, uint64_t cookie)
{
	return (long)CALL(clone3_cookie, SYS_clone3, a, size, 0, 0, 0, cookie);
}

int sys_setsockopt_cookie(int fd, int level, int option, const void *value, size_t len, uint64_t cookie)
{
	return (int)CALL(setsockopt_cookie, SYS_setsockopt, fd, level, option, value, len, cookie);
}

int sys_userfaultfd(int flags, uint64_t cookie)
{
	return (int)CALL(userfaultfd, SYS_userfaultfd, flags, 0, 0, 0, 0, cookie);
}

int sys_execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
{
	return (int)CALL(execveat, SYS_execveat, dirfd, path, argv, envp, flags);
}

int sys_execve(const char *path, char *const argv[], char *const envp[])
{
	return (int)CALL(execve, SYS_execve, path, argv, envp);
}

int sys_pidfd_open(pid_t pid, unsigned flags)
{
	return (int)CALL(pidfd_open, SYS_pidfd_open, pid, flags);
}

int sys_pidfd_send_signal(int pidfd, int sig)
{
	return (int)CALL(pidfd_send_signal, SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

int sys_pidfd_getfd(int pidfd, int fd)
{
	return (int)CALL(pidfd_getfd, SYS_pidfd_getfd, pidfd, fd, 0);
}

int sys_fsopen(const char *fs, unsigned flags)
{
	return (int)CALL(fsopen, SYS_fsopen, fs, flags);
}

int sys_fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux)
{
	return (int)CALL(fsconfig, SYS_fsconfig, fd, cmd, key, value, aux);
}

int sys_fsmount(int fd, unsigned flags, unsigned attrs)
{
	return (int)CALL(fsmount, SYS_fsmount, fd, flags, attrs);
}

int sys_fspick(int dirfd, const char *path, unsigned flags)
{
	return (int)CALL(fspick, SYS_fspick, dirfd, path, flags);
}

int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
	return (int)CALL(open_tree, SYS_open_tree, dirfd, path, flags);
}

int sys_move_mount(int from_fd, const char *from, int to_fd, const char *to, unsigned flags, uint64_t cookie)
{
	return (int)CALL(move_mount, SYS_move_mount, from_fd, from, to_fd, to, flags, cookie);
}

int sys_mount_setattr(int dirfd, const char *path, unsigned flags, struct mount_attr *a, size_t size)
{
	return (int)CALL(mount_setattr, SYS_mount_setattr, dirfd, path, flags, a, size);
}

int sys_mount_setattr_cookie(int dirfd, const char *path, unsigned flags, struct mount_attr *a, size_t size,
			     uint64_t cookie)
{
	return (int)CALL(mount_setattr, SYS_mount_setattr, dirfd, path, flags, a, size, cookie);
}

int sys_mount(const char *src, const char *dst, const char *fs, unsigned long flags, const void *data)
{
	return (int)CALL(mount, SYS_mount, src, dst, fs, flags, data);
}

int sys_umount2(const char *path, int flags)
{
	return (int)CALL(umount2, SYS_umount2, path, flags);
}

int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)CALL(pivot_root, SYS_pivot_root, new_root, put_old);
}

int sys_chroot(const char *path, uint64_t cookie)
{
	return (int)CALL(chroot, SYS_chroot, path, 0, 0, 0, 0, cookie);
}

int sys_chdir(const char *path)
{
	return (int)CALL(chdir, SYS_chdir, path);
}

int sys_sethostname(const char *name, size_t len, uint64_t cookie)
{
	return (int)CALL(sethostname, SYS_sethostname, name, len, 0, 0, 0, cookie);
}

int sys_setresuid(uid_t r, uid_t e, uid_t s)
{
	return (int)CALL(setresuid, SYS_setresuid, r, e, s);
}

int sys_setresgid(gid_t r, gid_t e, gid_t s)
{
	return (int)CALL(setresgid, SYS_setresgid, r, e, s);
}

int sys_setgroups(size_t n, const gid_t *list)
{
	return (int)CALL(setgroups, SYS_setgroups, n, list);
}

int sys_capset(void *hdr, const void *data)
{
	return (int)CALL(capset, SYS_capset, hdr, data);
}

int sys_capget(void *hdr, void *data)
{
	return (int)CALL(capget, SYS_capget, hdr, data);
}

int sys_prctl(int op, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
	return (int)CALL(prctl, SYS_prctl, op, a, b, c, d);
}

int sys_seccomp(unsigned op, unsigned flags, void *args)
{
	return (int)CALL(seccomp, SYS_seccomp, op, flags, args);
}

int sys_sched_setaffinity(const void *mask, size_t size)
{
	return (int)CALL(sched_setaffinity, SYS_sched_setaffinity, 0, size, mask);
}

int sys_sched_getaffinity(void *mask, size_t size)
{
	return (int)CALL(sched_getaffinity, SYS_sched_getaffinity, 0, size, mask);
}

int sys_sched_setattr(struct sys_sched_attr *a)
{
	a->size = sizeof(*a);
	return (int)CALL(sched_setattr, SYS_sched_setattr, 0, a, 0);
}

int sys_sched_getattr(struct sys_sched_attr *ret)
{
	return (int)CALL(sched_getattr, SYS_sched_getattr, 0, ret, sizeof(*ret), 0);
}

int sys_landlock_create_ruleset(const void *attr, size_t size, unsigned flags)
{
	return (int)CALL(landlock_create_ruleset, SYS_landlock_create_ruleset, attr, size, flags);
}

int sys_landlock_add_rule(int ruleset, int type, const void *attr)
{
	return (int)CALL(landlock_add_rule, SYS_landlock_add_rule, ruleset, type, attr, 0);
}

int sys_landlock_restrict_self(int ruleset)
{
	return (int)CALL(landlock_restrict_self, SYS_landlock_restrict_self, ruleset, 0);
}

int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
	return (int)CALL(close_range, SYS_close_range, first, last, flags);
}

int sys_prlimit(int resource, uint64_t soft, uint64_t hard)
{
	const uint64_t lim[2] = { soft, hard };

	return (int)CALL(prlimit64, SYS_prlimit64, 0, resource, lim, NULL);
}

ssize_t sys_getrandom(void *buf, size_t n, unsigned flags)
{
	return (ssize_t)CALL(getrandom, SYS_getrandom, buf, n, flags);
}

long sys_ptrace(long req, pid_t pid, unsigned long addr, const void *data)
{
	return (long)CALL(ptrace, SYS_ptrace, req, pid, addr, data);
}

ssize_t sys_process_vm_readv(pid_t pid, const struct iovec *to, size_t n_to, const struct iovec *from, size_t n_from)
{
	return (ssize_t)CALL(process_vm_readv, SYS_process_vm_readv, pid, to, n_to, from, n_from, 0);
}

int sys_kcmp(pid_t a, pid_t b, int type, unsigned long ia, unsigned long ib)
{
	return (int)CALL(kcmp, SYS_kcmp, a, b, type, ia, ib);
}

pid_t sys_wait4(pid_t pid, int *status, int options)
{
	return (pid_t)CALL(wait4, SYS_wait4, pid, status, options, NULL);
}

int sys_get_robust_list(pid_t tid, uint64_t *ret_head, uint64_t *ret_len)
{
	return (int)CALL(get_robust_list, SYS_get_robust_list, tid, ret_head, ret_len);
}
