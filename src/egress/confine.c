/* Confines cloche-egress: its limits, its filter, its files. */
#include "egress/confine.h"
#include "base/base.h"
#include "linux/caps.h"
#include "linux/landlock.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* clang-format off */
static const int allowed[] = {
	/* bytes and descriptors */
	SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64), SCMP_SYS(close),
	SCMP_SYS(lseek), SCMP_SYS(dup), SCMP_SYS(fcntl), SCMP_SYS(pipe2), SCMP_SYS(splice), SCMP_SYS(ioctl),
	/* waiting */
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait), SCMP_SYS(futex), SCMP_SYS(restart_syscall),
	/* the network */
	SCMP_SYS(connect), SCMP_SYS(accept4), SCMP_SYS(bind), SCMP_SYS(getsockname), SCMP_SYS(getpeername),
	SCMP_SYS(setsockopt), SCMP_SYS(getsockopt), SCMP_SYS(sendto), SCMP_SYS(sendmsg), SCMP_SYS(sendmmsg),
	SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(recvmmsg), SCMP_SYS(shutdown),
	/* what the libraries look at */
	SCMP_SYS(stat), SCMP_SYS(fstat), SCMP_SYS(lstat), SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(access),
	SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getdents64),
	SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(getuid), SCMP_SYS(geteuid),
	SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(getrandom), SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres),
	SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(prlimit64), SCMP_SYS(getrlimit),
	/* memory, signals, the end */
	SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack), SCMP_SYS(tgkill), SCMP_SYS(exit),
	SCMP_SYS(exit_group), SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
	/* less and less files */
	SCMP_SYS(landlock_create_ruleset), SCMP_SYS(landlock_restrict_self),
};
/* clang-format on */

/* Netlink: which addresses this host has. */
static const int families[] = { AF_INET, AF_INET6, AF_NETLINK };

/* A call that this architecture does not have is no reason to stop: it cannot be made either. */
static int allow(scmp_filter_ctx c, int nr)
{
	int r = seccomp_rule_add(c, SCMP_ACT_ALLOW, nr, 0);

	return r == -EDOM || r == -EFAULT ? 0 : r;
}

/* When that argument, seen through @mask, is @value. The library's own macros leave a field out. */
static int allow_arg(scmp_filter_ctx c, int nr, unsigned arg, scmp_datum_t mask, scmp_datum_t value)
{
	const struct scmp_arg_cmp when = { .arg = arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = mask, .datum_b = value };
	int r = seccomp_rule_add_array(c, SCMP_ACT_ALLOW, nr, 1, &when);

	return r == -EDOM || r == -EFAULT ? 0 : r;
}

/* Whether we interrupt others (sched_batch.c); ours alone, and nothing that goes before them. */
static int allow_sched_batch(scmp_filter_ctx c)
{
	static const int policies[] = { SCHED_OTHER, SCHED_BATCH };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(policies); i++) {
		const struct scmp_arg_cmp when[] = {
			{ .arg = 0, .op = SCMP_CMP_EQ, .datum_a = 0 },
			{ .arg = 1, .op = SCMP_CMP_EQ, .datum_a = (scmp_datum_t)policies[i] },
		};

		r = seccomp_rule_add_array(c, SCMP_ACT_ALLOW, SCMP_SYS(sched_setscheduler), ARRAY_LEN(when), when);
	}
	return r;
}

static int filter(void)
{
	const scmp_datum_t writing =
		O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_PATH | (O_TMPFILE & ~O_DIRECTORY);
	scmp_filter_ctx c = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = c ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(allowed); i++)
		r = allow(c, allowed[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(families); i++)
		r = allow_arg(c, SCMP_SYS(socket), 0, UINT32_MAX, (scmp_datum_t)families[i]);
	if (r == 0)
		r = allow_arg(c, SCMP_SYS(openat), 2, writing, 0);
	if (r == 0)
		r = allow_arg(c, SCMP_SYS(open), 1, writing, 0);
	/* Memory, but never code. */
	if (r == 0)
		r = allow_arg(c, SCMP_SYS(mmap), 2, PROT_EXEC, 0);
	if (r == 0)
		r = allow_arg(c, SCMP_SYS(mprotect), 2, PROT_EXEC, 0);
	if (r == 0)
		r = allow_sched_batch(c);
	if (r == 0)
		r = seccomp_load(c); /* sets no_new_privs */
	if (c)
		seccomp_release(c);
	return r;
}

int confine(struct err *e)
{
	const struct rlimit none = { 0, 0 };
	uint64_t left = 0;
	int r = 0;

	if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		r = -errno;
	if (r == 0)
		r = caps_drop_bounding(0);
	if (r == -EPERM)
		r = 0; /* without CAP_SETPCAP there is nothing to drop it from: no_new_privs holds */
	if (r == 0)
		r = caps_set(0, 0);
	if (r == 0)
		r = caps_permitted(&left);
	if (r == 0 && left)
		r = -EPERM;
	if (r == 0)
		r = landlock_read_only();
	if (r == -EOPNOTSUPP)
		r = 0; /* an older kernel: the filter lets nothing but reading, too */
	if (r == 0)
		r = filter();
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "drop the privileges of cloche-egress") : 0;
}

int confine_files(struct err *e)
{
	int r = landlock_no_files();

	return r < 0 && r != -EOPNOTSUPP ? err_sys(e, ERR_UNSUPPORTED, r, "close all files") : 0;
}
