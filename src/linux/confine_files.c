/* The system calls of programs that work on files, and of others that they run: mke2fs, mkfs.erofs. */
#include "base/base.h"
#include "linux/confine.h"

#include <sched.h>
#include <sys/syscall.h>

/* Older system calls that aarch64 does not have. */
#ifdef SYS_stat
#define OLD                                                                                                            \
	SYS_stat, SYS_lstat, SYS_open, SYS_access, SYS_readlink, SYS_rename, SYS_mkdir, SYS_rmdir, SYS_unlink,         \
		SYS_link, SYS_chmod, SYS_pipe, SYS_dup2, SYS_poll, SYS_fork, SYS_vfork, SYS_getrlimit, SYS_time,       \
		SYS_arch_prctl,
#else
#define OLD
#endif

/* clang-format off */
static const int allowed[] = {
	OLD SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev, SYS_openat, SYS_close, SYS_fstat,
	SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_lseek, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk,
	SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_ioctl, SYS_faccessat, SYS_faccessat2, SYS_pipe2, SYS_dup,
	SYS_dup3, SYS_fcntl, SYS_flock, SYS_fsync, SYS_fdatasync, SYS_ftruncate, SYS_fallocate, SYS_copy_file_range, SYS_sendfile, SYS_getdents64,
	SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_renameat, SYS_renameat2, SYS_mkdirat, SYS_unlinkat, SYS_linkat, SYS_readlinkat, SYS_fchmod, SYS_fchmodat,
	SYS_utimensat, SYS_umask, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr, SYS_getuid, SYS_geteuid,
	SYS_getgid, SYS_getegid, SYS_getpid, SYS_getppid, SYS_gettid, SYS_uname, SYS_sysinfo, SYS_prlimit64, SYS_getrusage, SYS_times, SYS_gettimeofday,
	SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_futex, SYS_set_robust_list, SYS_get_robust_list, SYS_rseq,
	SYS_set_tid_address, SYS_prctl, SYS_getrandom, SYS_memfd_create, SYS_sched_getaffinity, SYS_sched_yield, SYS_fadvise64, SYS_sync_file_range,
	SYS_ppoll, SYS_sendmsg, SYS_recvmsg, SYS_execve, SYS_wait4, SYS_waitid, SYS_exit, SYS_exit_group,
};
/* clang-format on */

#define SPACES                                                                                                         \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
static const struct confine_call checked[] = { { SYS_clone, 0, SPACES, 0, CONFINE_ANY } };

void confine_file_programs(struct confine *c)
{
	c->calls = allowed;
	c->ncalls = ARRAY_LEN(allowed);
	c->checked = checked;
	c->nchecked = ARRAY_LEN(checked);
	c->refuse = ENOSYS; /* libraries try more calls than they need */
}
