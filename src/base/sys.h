/*
 * Raw system calls. Each returns its result or a negative errno, never touches errno, and goes through one gate, so
 * that a test build (-DCLOCHE_FAULTS) can make the n-th call of any of them fail. Kernel interfaces that libc does
 * not wrap (the new mount API, clone3, openat2, Landlock) live here once.
 */
#pragma once
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#define SYS_CALLS(X)                                                                                                   \
	X(openat)                                                                                                      \
	X(openat2)                                                                                                     \
	X(read)                                                                                                        \
	X(write)                                                                                                       \
	X(mkdirat)                                                                                                     \
	X(mknodat)                                                                                                     \
	X(symlinkat)                                                                                                   \
	X(unlinkat)                                                                                                    \
	X(getdents64)                                                                                                  \
	X(fchownat)                                                                                                    \
	X(fchmod)                                                                                                      \
	X(ftruncate)                                                                                                   \
	X(pipe2)                                                                                                       \
	X(dup3)                                                                                                        \
	X(fcntl)                                                                                                       \
	X(ioctl)                                                                                                       \
	X(memfd_create)                                                                                                \
	X(socketpair)                                                                                                  \
	X(sendmsg)                                                                                                     \
	X(recvmsg)                                                                                                     \
	X(unshare)                                                                                                     \
	X(setns)                                                                                                       \
	X(clone3)                                                                                                      \
	X(clone3_cookie)                                                                                               \
	X(userfaultfd)                                                                                                 \
	X(setsockopt_cookie)                                                                                           \
	X(execveat)                                                                                                    \
	X(execve)                                                                                                      \
	X(pidfd_open)                                                                                                  \
	X(pidfd_send_signal)                                                                                           \
	X(pidfd_getfd)                                                                                                 \
	X(fsopen)                                                                                                      \
	X(fsconfig)                                                                                                    \
	X(fsmount)                                                                                                     \
	X(fspick)                                                                                                      \
	X(open_tree)                                                                                                   \
	X(move_mount)                                                                                                  \
	X(mount_setattr)                                                                                               \
	X(mount)                                                                                                       \
	X(umount2)                                                                                                     \
	X(pivot_root)                                                                                                  \
	X(chroot)                                                                                                      \
	X(chdir)                                                                                                       \
	X(sethostname)                                                                                                 \
	X(setresuid)                                                                                                   \
	X(setresgid)                                                                                                   \
	X(setgroups)                                                                                                   \
	X(capset)                                                                                                      \
	X(capget)                                                                                                      \
	X(prctl)                                                                                                       \
	X(prlimit64)                                                                                                   \
	X(seccomp)                                                                                                     \
	X(sched_setaffinity)                                                                                           \
	X(sched_getaffinity)                                                                                           \
	X(sched_setattr)                                                                                               \
	X(sched_getattr)                                                                                               \
	X(landlock_create_ruleset)                                                                                     \
	X(landlock_add_rule)                                                                                           \
	X(landlock_restrict_self)                                                                                      \
	X(close_range)                                                                                                 \
	X(ptrace)                                                                                                      \
	X(process_vm_readv)                                                                                            \
	X(kcmp)                                                                                                        \
	X(wait4)                                                                                                       \
	X(get_robust_list)                                                                                             \
	X(getrandom)

enum sys_id {
#define X(name) SYSID_##name,
	SYS_CALLS(X)
#undef X
		SYSID_COUNT
};

const char *sys_name(enum sys_id id);

#ifdef CLOCHE_FAULTS
/* Make call number @nth (1 = the next) of @id return -errnum; with 0, this process is killed instead. */
void sys_test_fail(enum sys_id id, int errnum, unsigned nth);
/*
 * "NAME:ERRNO:NTH", "@FILE" or both: FILE (large enough, writable) then holds the records below. The host takes it from
 * CLOCHE_FAULT_HOST, the agent from CLOCHE_FAULT_AGENT; see tests/functional/test_faults.py.
 */
int sys_test_parse(const char *spec);
struct sys_test_record {
	char name[28];
	uint32_t made;
};
/* With a FILE of this size several processes, all of which were given its path, count together, and fail together. */
#define SYS_TEST_SHARED 65536
/* How often each call was made so far. */
unsigned sys_test_count(enum sys_id id);
/* No call of this thread is counted or fails: it works beside what is tested. */
void sys_test_spare(void);
#else
static inline void sys_test_spare(void)
{
}
#endif

int sys_openat(int dirfd, const char *path, int flags, mode_t mode);
int sys_openat2(int dirfd, const char *path, const struct open_how *how);
ssize_t sys_read(int fd, void *buf, size_t n);
ssize_t sys_write(int fd, const void *buf, size_t n);
int sys_mkdirat(int dirfd, const char *path, mode_t mode);
int sys_mknodat(int dirfd, const char *path, mode_t mode, unsigned dev);
int sys_symlinkat(const char *target, int dirfd, const char *path);
int sys_unlinkat(int dirfd, const char *path, int flags);
ssize_t sys_getdents64(int fd, void *buf, size_t size);
int sys_fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int flags);
int sys_fchmod(int fd, mode_t mode);
int sys_ftruncate(int fd, off_t len);
int sys_pipe2(int fds[2], int flags);
int sys_dup3(int from, int to, int flags);
int sys_fcntl(int fd, int cmd, long arg);
int sys_ioctl(int fd, unsigned long req, void *arg);
int sys_memfd_create(const char *name, unsigned flags);
int sys_socketpair(int domain, int type, int proto, int fds[2]);
ssize_t sys_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t sys_recvmsg(int fd, struct msghdr *m, int flags);
int sys_unshare(int flags);
int sys_setns(int fd, int type);
/* Without a stack: returns twice, as fork does. With one, use ns_clone(), which never returns in the child. */
long sys_clone3(struct clone_args *a, size_t size);
/* As above, userfaultfd and setsockopt, with the cookie in the unused sixth argument: see linux/seccomp.h. */
long sys_clone3_cookie(struct clone_args *a, size_t size, uint64_t cookie);
int sys_userfaultfd(int flags, uint64_t cookie);
int sys_setsockopt_cookie(int fd, int level, int option, const void *value, size_t len, uint64_t cookie);
int sys_execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags);
int sys_execve(const char *path, char *const argv[], char *const envp[]);
int sys_pidfd_open(pid_t pid, unsigned flags);
int sys_pidfd_send_signal(int pidfd, int sig);
/* A copy of another process's descriptor, close-on-exec. */
int sys_pidfd_getfd(int pidfd, int fd);
int sys_fsopen(const char *fs, unsigned flags);
int sys_fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux);
int sys_fsmount(int fd, unsigned flags, unsigned attrs);
int sys_fspick(int dirfd, const char *path, unsigned flags);
int sys_open_tree(int dirfd, const char *path, unsigned flags);
/* @cookie goes into the unused sixth argument: see linux/seccomp.h. */
int sys_move_mount(int from_fd, const char *from, int to_fd, const char *to, unsigned flags, uint64_t cookie);
int sys_mount_setattr(int dirfd, const char *path, unsigned flags, struct mount_attr *a, size_t size);
/* As sys_mount_setattr, with the cookie in the unused sixth argument. */
int sys_mount_setattr_cookie(int dirfd, const char *path, unsigned flags, struct mount_attr *a, size_t size,
			     uint64_t cookie);
int sys_mount(const char *src, const char *dst, const char *fs, unsigned long flags, const void *data);
int sys_umount2(const char *path, int flags);
int sys_pivot_root(const char *new_root, const char *put_old);
int sys_chroot(const char *path, uint64_t cookie);
int sys_chdir(const char *path);
int sys_sethostname(const char *name, size_t len, uint64_t cookie);
int sys_setresuid(uid_t r, uid_t e, uid_t s);
int sys_setresgid(gid_t r, gid_t e, gid_t s);
int sys_setgroups(size_t n, const gid_t *list);
int sys_capset(void *hdr, const void *data);
int sys_capget(void *hdr, void *data);
int sys_prctl(int op, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
int sys_prlimit(int resource, uint64_t soft, uint64_t hard);
int sys_seccomp(unsigned op, unsigned flags, void *args);
int sys_sched_setaffinity(const void *mask, size_t size);
int sys_sched_getaffinity(void *mask, size_t size); /* the kernel's count of bytes, or -errno */
/* The kernel's struct, as far as every kernel has it: its header and libc's do not go together. */
struct sys_sched_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};
int sys_sched_setattr(struct sys_sched_attr *a); /* of this thread; ->size is set here */
int sys_sched_getattr(struct sys_sched_attr *ret);
int sys_landlock_create_ruleset(const void *attr, size_t size, unsigned flags);
int sys_landlock_add_rule(int ruleset, int type, const void *attr);
int sys_landlock_restrict_self(int ruleset);
int sys_close_range(unsigned first, unsigned last, unsigned flags);
ssize_t sys_getrandom(void *buf, size_t n, unsigned flags);
/* Requests with a result of their own (PEEKSIGINFO, GET_RSEQ_CONFIGURATION) return it. Not for PEEKDATA and PEEKUSER. */
long sys_ptrace(long req, pid_t pid, unsigned long addr, const void *data);
ssize_t sys_process_vm_readv(pid_t pid, const struct iovec *to, size_t n_to, const struct iovec *from, size_t n_from);
/* 0: the same; 1, 2: an order among others. */
int sys_kcmp(pid_t a, pid_t b, int type, unsigned long ia, unsigned long ib);
pid_t sys_wait4(pid_t pid, int *status, int options);
int sys_get_robust_list(pid_t tid, uint64_t *ret_head, uint64_t *ret_len);
