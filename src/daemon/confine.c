/* Confines the API process: its limits, its filter, its files. */
#include "daemon/confine.h"
#include "base/base.h"

#include <linux/sched.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* clang-format off */
static const int allowed[] = {
	/* bytes and descriptors */
	SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64), SCMP_SYS(pwrite64),
	SCMP_SYS(preadv), SCMP_SYS(pwritev), SCMP_SYS(preadv2), SCMP_SYS(pwritev2),
	SCMP_SYS(close), SCMP_SYS(close_range), SCMP_SYS(lseek), SCMP_SYS(dup),
	SCMP_SYS(dup2), SCMP_SYS(dup3), SCMP_SYS(fcntl), SCMP_SYS(ioctl), SCMP_SYS(pipe), SCMP_SYS(pipe2),
	SCMP_SYS(eventfd2), SCMP_SYS(signalfd4), SCMP_SYS(timerfd_create), SCMP_SYS(timerfd_settime),
	SCMP_SYS(memfd_create), SCMP_SYS(sendfile), SCMP_SYS(splice),
	/* waiting */
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(select), SCMP_SYS(pselect6), SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(futex), SCMP_SYS(nanosleep),
	SCMP_SYS(clock_nanosleep), SCMP_SYS(sched_yield), SCMP_SYS(restart_syscall), SCMP_SYS(membarrier),
	/* files of the data folder */
	SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(stat), SCMP_SYS(fstat), SCMP_SYS(lstat), SCMP_SYS(newfstatat),
	SCMP_SYS(statx), SCMP_SYS(statfs), SCMP_SYS(fstatfs), SCMP_SYS(access), SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd), SCMP_SYS(getdents64),
	SCMP_SYS(unlink), SCMP_SYS(unlinkat), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2),
	SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(chmod), SCMP_SYS(fchmod), SCMP_SYS(fchmodat),
	SCMP_SYS(fchown), SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(fsync), SCMP_SYS(fdatasync),
	SCMP_SYS(flock), SCMP_SYS(utimensat), SCMP_SYS(umask),
	/* memory */
	SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mprotect), SCMP_SYS(madvise), SCMP_SYS(brk),
	/* the network */
	SCMP_SYS(connect), SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(getsockname),
	SCMP_SYS(getpeername), SCMP_SYS(setsockopt), SCMP_SYS(getsockopt), SCMP_SYS(sendto), SCMP_SYS(sendmsg),
	SCMP_SYS(sendmmsg), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(recvmmsg), SCMP_SYS(shutdown),
	/* time, random numbers, ids of the process */
	SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(times),
	SCMP_SYS(getrandom), SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(getppid), SCMP_SYS(getpgrp), SCMP_SYS(getuid),
	SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(getgroups), SCMP_SYS(getresuid),
	SCMP_SYS(getresgid), SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getrusage), SCMP_SYS(sched_getaffinity),
	SCMP_SYS(sched_getparam), SCMP_SYS(sched_getscheduler), SCMP_SYS(sched_get_priority_max),
	SCMP_SYS(sched_get_priority_min),
	/* signals, threads, cloche-tar */
	SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigtimedwait),
	SCMP_SYS(sigaltstack), SCMP_SYS(kill), SCMP_SYS(tgkill), SCMP_SYS(wait4), SCMP_SYS(waitid), SCMP_SYS(exit),
	SCMP_SYS(exit_group), SCMP_SYS(vfork), SCMP_SYS(fork), SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(setsid),
	SCMP_SYS(set_robust_list), SCMP_SYS(get_robust_list), SCMP_SYS(set_tid_address), SCMP_SYS(rseq),
	SCMP_SYS(prctl), SCMP_SYS(arch_prctl), SCMP_SYS(prlimit64), SCMP_SYS(getrlimit), SCMP_SYS(setrlimit),
	SCMP_SYS(seccomp),
};
/* clang-format on */

static const int families[] = { AF_UNIX, AF_INET, AF_INET6 };

/* A call that this architecture does not have is no reason to stop: it cannot be made either. */
static int allow(scmp_filter_ctx c, int nr)
{
	int r = seccomp_rule_add(c, SCMP_ACT_ALLOW, nr, 0);

	return r == -EDOM || r == -EFAULT ? 0 : r;
}

/* When its first argument, seen through @mask, is @value. The library's own macros leave a field out. */
static int allow_first(scmp_filter_ctx c, int nr, scmp_datum_t mask, scmp_datum_t value)
{
	const struct scmp_arg_cmp when = { .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value };

	return seccomp_rule_add_array(c, SCMP_ACT_ALLOW, nr, 1, &when);
}

static int filter(void)
{
	const scmp_datum_t spaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
				    CLONE_NEWPID | CLONE_NEWNET;
	scmp_filter_ctx c = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = c ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(allowed); i++)
		r = allow(c, allowed[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(families); i++) {
		r = allow_first(c, SCMP_SYS(socket), UINT32_MAX, (scmp_datum_t)families[i]);
		if (r == 0)
			r = allow_first(c, SCMP_SYS(socketpair), UINT32_MAX, (scmp_datum_t)families[i]);
	}
	/* Threads and children, in our namespaces. What clone3 asks for cannot be seen: libc goes back to clone. */
	if (r == 0)
		r = allow_first(c, SCMP_SYS(clone), spaces, 0);
	if (r == 0)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (r == 0)
		r = seccomp_load(c); /* sets no_new_privs */
	if (c)
		seccomp_release(c);
	return r;
}

int confine(struct err *e)
{
	const struct rlimit none = { 0, 0 };
	int r = 0;

	if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	if (r == 0)
		r = filter();
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "drop the privileges of the API process") : 0;
}
