/*
 * An archive is hostile, and the library that reads it is large. So before the first byte, this process restricts
 * itself to reading, writing and using memory: if it is taken over, it can only do what its two sockets allow.
 */
#include "tar/tar.h"
#include "base/base.h"

#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define MEMORY (512 * MIB)

static const int allowed[] = {
	SCMP_SYS(read),
	SCMP_SYS(readv),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(sendmsg),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendto),
	SCMP_SYS(recvfrom),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(close),
	SCMP_SYS(brk),
	SCMP_SYS(munmap),
	SCMP_SYS(madvise),
	SCMP_SYS(mremap),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(futex),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(time),
	SCMP_SYS(getrandom),
	SCMP_SYS(restart_syscall),
};

/* A library that tries to open a file (a character table, a time zone) gets an error and continues without. */
static const int refused[] = {
	SCMP_SYS(open),	      SCMP_SYS(openat),	    SCMP_SYS(stat),	 SCMP_SYS(lstat),
	SCMP_SYS(newfstatat), SCMP_SYS(access),	    SCMP_SYS(faccessat), SCMP_SYS(faccessat2),
	SCMP_SYS(readlink),   SCMP_SYS(readlinkat), SCMP_SYS(statx),
};

static int filter(void)
{
	scmp_filter_ctx c = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r = c ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(allowed); i++)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(refused); i++)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
	/* Memory, but never code. */
	if (r == 0)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = seccomp_load(c); /* sets no_new_privs */
	if (c)
		seccomp_release(c);
	return r;
}

static int limit(int what, uint64_t most)
{
	const struct rlimit l = { most, most };

	return setrlimit((__rlimit_resource_t)what, &l) < 0 ? -errno : 0;
}

int confine(struct err *e)
{
	int r = limit(RLIMIT_AS, MEMORY);

	if (r == 0)
		r = limit(RLIMIT_NOFILE, 0);
	if (r == 0)
		r = limit(RLIMIT_NPROC, 0);
	if (r == 0)
		r = limit(RLIMIT_CORE, 0);
	if (r == 0 && (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0))
		r = -errno;
	if (r == 0)
		r = filter();
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "cannot drop its privileges") : 0;
}
