/*
 * The rights of cloche-layers. It keeps few capabilities and may use a list of system calls only. For comparing,
 * Landlock forbids opening files for writing. For checking and making layers its root is an empty folder, and the
 * store, read-only for checking, a detached mount. Landlock is not used there since it looks at every folder above each
 * file: in a tree of ten thousand nested folders, which any sandbox can make, that takes seconds.
 *
 * SYS_ADMIN is kept because the kernel shows attributes whose names begin with "trusted.", by which overlay marks
 * folders, only with it. What else it allows takes system calls that are not in the lists. The role that makes layers
 * stays user 0: its files in the store belong to root, and cloche-dump, which has fewer rights, writes into a folder of
 * it.
 */
#include "layers/rights.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/flush.h"
#include "linux/confine.h"
#include "linux/landlock.h"
#include "linux/mount.h"

#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/fscrypt.h>
#include <sched.h>
#include <sys/syscall.h>

#define BIT(cap) (1ULL << (cap))
#define READS (BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_SYS_ADMIN))
/* Changes of owners, modes, times, nodes and capabilities of files of all users; links to open files. */
#define MAKES                                                                                                          \
	(BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_MKNOD) |                 \
	 BIT(CAP_SETFCAP) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_SYS_ADMIN))

/* Older system calls that aarch64 does not have. */
#ifdef SYS_stat
#define OLD SYS_stat, SYS_lstat, SYS_readlink, SYS_poll,
#define OLD_MAKE SYS_rename, SYS_link, SYS_unlink, SYS_mkdir, SYS_chmod,
#else
#define OLD
#define OLD_MAKE
#endif

/* clang-format off */
static const int reads[] = {
	OLD SYS_openat, SYS_openat2, SYS_close, SYS_read, SYS_readv, SYS_pread64, SYS_write, SYS_writev, SYS_lseek, SYS_fstat,
	SYS_newfstatat, SYS_statx, SYS_getdents64, SYS_readlinkat, SYS_fgetxattr, SYS_flistxattr, SYS_ppoll, SYS_mmap, SYS_munmap,
	SYS_mremap, SYS_madvise, SYS_brk, SYS_mprotect, SYS_fcntl, SYS_futex, SYS_clock_gettime, SYS_restart_syscall,
	SYS_rt_sigreturn, SYS_exit, SYS_exit_group,
};
/* clang-format on */

/* Messages and threads. */
static const int serves[] = {
	SYS_recvmsg, SYS_sendmsg,	    SYS_rt_sigprocmask, SYS_set_tid_address, SYS_set_robust_list,
	SYS_gettid,  SYS_sched_getaffinity, SYS_nanosleep,	SYS_clock_nanosleep,
};

/* clang-format off */
static const int makes[] = {
	OLD_MAKE SYS_mkdirat, SYS_mknodat, SYS_symlinkat, SYS_linkat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_fchownat,
	SYS_fchmod, SYS_fchmodat, SYS_utimensat, SYS_fsetxattr, SYS_fremovexattr, SYS_ftruncate, SYS_fallocate, SYS_pwrite64,
	SYS_pwritev, SYS_pwritev2, SYS_preadv, SYS_fsync, SYS_fdatasync, SYS_syncfs, SYS_sync_file_range, SYS_fstatfs,
	SYS_getrandom, SYS_memfd_create, SYS_sched_getattr, SYS_sched_setattr, SYS_sched_setaffinity, SYS_getcpu, SYS_dup3, SYS_tkill,
	SYS_tgkill,
};
/* clang-format on */

#define REQUEST(number)                                                                                                \
	{                                                                                                              \
		.nr = SYS_ioctl, .arg = 1, .mask = ~0U, .value = (number), .zero = CONFINE_ANY                         \
	}
static const struct confine_call checked[] = {
	/* threads only, no processes */
	{ .nr = SYS_clone, .arg = 0, .mask = CLONE_THREAD, .value = CLONE_THREAD, .zero = CONFINE_ANY },
	REQUEST(FS_IOC_GET_ENCRYPTION_POLICY_EX),
	REQUEST(FS_IOC_GET_ENCRYPTION_KEY_STATUS),
	REQUEST(FS_IOC_GETFLAGS),
	REQUEST(FS_IOC_SETFLAGS),
	REQUEST(FLUSH_IOCTL),
};

/* Enters an empty root. */
static int leave_host(void)
{
	static const struct mount_opt opts[] = { { "size", "4k" }, { "mode", "0555" }, { NULL, NULL } };
	AUTO_CLOSE int root = -1;
	int r = sys_unshare(CLONE_NEWNS);

	if (r == 0)
		r = mount_tree_private();
	if (r == 0)
		r = root = mount_new("tmpfs", opts,
				     MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (r >= 0)
		r = mount_attach(root, "/usr", 0); /* any folder would do */
	if (r == 0)
		r = sys_chdir("/usr");
	if (r == 0)
		r = sys_pivot_root(".", ".");
	if (r == 0)
		r = sys_umount2(".", 2 /* MNT_DETACH */);
	return r == 0 ? sys_chdir("/") : r;
}

int rights_drop(enum rights_role role)
{
	const bool make = role == RIGHTS_MAKE, diff = role == RIGHTS_DIFF;
	int calls[ARRAY_LEN(reads) + ARRAY_LEN(serves) + ARRAY_LEN(makes)];
	const struct confine c = {
		.keep = make ? MAKES : READS,
		.user = make ? 0 : CONFINE_NOBODY,
		/* Names take up to 64 MiB while comparing, and 256 MiB while copying. */
		.memory = make ? 2ULL << 30 : 512ULL << 20,
		.calls = calls,
		.ncalls = make ? ARRAY_LEN(calls) :
			  diff ? ARRAY_LEN(reads) :
				 ARRAY_LEN(reads) + ARRAY_LEN(serves),
		.checked = checked,
		.nchecked = diff ? 0 : ARRAY_LEN(checked),
	};
	int r = diff ? landlock_no_writes() : leave_host();

	memcpy(calls, reads, sizeof(reads));
	memcpy(calls + ARRAY_LEN(reads), serves, sizeof(serves));
	memcpy(calls + ARRAY_LEN(reads) + ARRAY_LEN(serves), makes, sizeof(makes));
	return r == 0 || r == -EOPNOTSUPP ? confine_self(&c) : r;
}
