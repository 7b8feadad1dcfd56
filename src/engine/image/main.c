/*
 * cloche-files: makes what sandboxes start from, for the warden.
 *
 * Theory of operation. The warden starts it to fill one new folder of its cache: image `host`, or what a sandbox of some number
 * of processors is shown; or to make a filesystem of one new file, by mke2fs, which is not part of this project. It gets the folder
 * or file as a descriptor, says on a socket how it went, and ends. It reads /etc, /proc and /sys of the host.
 *
 * It stays user 0, since the cache is root's, with two capabilities for image `host` (to make device nodes, and to give one
 * folder to another user) and none else. So of /etc it reads what root owns or every user may read. Landlock, where the kernel
 * has it, lets it write below that folder, or into that file, alone, and it has the system calls that it makes; mke2fs has more of
 * them, but no sockets, mounts or signals. If it fails, dies or hangs, the warden removes what it was to fill, which does not have
 * the name yet by which it would be used. It dies with the warden's thread.
 */
#include "base/base.h"
#include "base/score.h"
#include "base/sys.h"
#include "engine/image/fill.h"
#include "linux/confine.h"
#include "linux/landlock.h"
#include "linux/spawn.h"

#include <linux/capability.h>
#include <linux/prctl.h>
#include <signal.h>
#include <sys/syscall.h>

/* Older system calls that aarch64 does not have. */
#ifdef SYS_stat
#define OLD SYS_stat, SYS_lstat, SYS_open, SYS_readlink, SYS_chmod,
#else
#define OLD
#endif

/* clang-format off */
static const int allowed[] = {
	OLD SYS_openat, SYS_close, SYS_read, SYS_readv, SYS_write, SYS_writev, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_getdents64,
	SYS_readlinkat, SYS_mkdirat, SYS_mknodat, SYS_symlinkat, SYS_fchownat, SYS_fchmod, SYS_fchmodat, SYS_fcntl, SYS_ioctl, SYS_mmap, SYS_munmap,
	SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall, SYS_clock_gettime,
	SYS_geteuid, SYS_sendmsg, SYS_exit, SYS_exit_group,
};
/* clang-format on */

static int drop(const struct image_fill *x)
{
	struct confine c = {
		.keep = x->what == IMAGE_DEVICES ? 1ULL << CAP_MKNOD | 1ULL << CAP_CHOWN : 0,
		.memory = x->what == IMAGE_DISK ? 0 : 256 * MIB,
		.calls = allowed,
		.ncalls = ARRAY_LEN(allowed),
	};
	int r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);

	if (x->what == IMAGE_DISK)
		confine_file_programs(&c);
	if (r == 0)
		r = landlock_write_below(&x->fd, 1, x->what == IMAGE_DEVICES ? LANDLOCK_NODES : 0);
	return r == 0 || r == -EOPNOTSUPP ? confine_self(&c) : r;
}

static int parse(int argc, char **argv, struct image_fill *x)
{
	static const char *const names[] = IMAGE_NAMES;
	unsigned i = 0;

	while (argc == 4 && i < ARRAY_LEN(names) && strcmp(argv[1], names[i]))
		i++;
	if (argc != 4 || i == ARRAY_LEN(names))
		return -EINVAL;
	x->what = (enum image_what)i;
	x->n = strtoull(argv[2], NULL, 10);
	x->journal = strtoull(argv[3], NULL, 10);
	return sys_fcntl(x->fd, F_GETFD, 0);
}

int main(int argc, char **argv)
{
	static struct image_answer a;
	struct image_fill x = { .fd = SPAWN_FIRST + IMAGE_FD };
	int r = parse(argc, argv, &x);

	if (r < 0) {
		fputs("cloche-files: started by cloche-warden only\n", stderr);
		return 2;
	}
	score_sandbox_self("/proc/self/oom_score_adj"); /* killing it at any moment harms no other process */
	signal(SIGPIPE, SIG_IGN);
	sys_fcntl(SPAWN_FIRST + IMAGE_CONTROL, F_SETFD, FD_CLOEXEC);
#ifdef CLOCHE_FAULTS
	sys_test_parse(getenv("CLOCHE_FAULT_FILES"));
#endif
	r = drop(&x);
	if (r < 0)
		err_sys(&a.e, ERR_INTERNAL, r, "cloche-files cannot give up its privileges");
	else
		r = image_fill_here(-1, &x, &a.e);
	a.result = r;
	return fd_send(SPAWN_FIRST + IMAGE_CONTROL, &a, sizeof(a), NULL, 0) < 0;
}
