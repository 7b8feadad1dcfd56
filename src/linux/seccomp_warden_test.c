/* The warden's own filter, with real calls: what neither the warden nor a sandbox needs is refused, the rest reaches the kernel. */
#include "linux/seccomp.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* All fail before they do anything, with or without the filter: their arguments make no sense. */
static long call(long nr)
{
	return syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L) < 0 ? errno : 0;
}

static int error_of(long (*fn)(long), long arg)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_install_warden() < 0)
			_exit(255);
		_exit((int)fn(arg));
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static long open_socket(long family)
{
	return socket((int)family, family == AF_NETLINK ? SOCK_RAW : SOCK_DGRAM, 0) < 0 ? errno : 0;
}

TEST(what_nobody_needs_is_refused)
{
	/* clang-format off */
	static const long refused[] = {
		SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct,
		SYS_quotactl, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_syslog, SYS_perf_event_open, SYS_keyctl,
		SYS_add_key, SYS_open_by_handle_at, SYS_fanotify_init, SYS_io_uring_setup,
#ifdef SYS_iopl
		SYS_iopl, SYS_ioperm, SYS_modify_ldt,
#endif
	};
	/* clang-format on */

	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		int r = error_of(call, refused[i]);

		if (r != EPERM && r != ENOSYS)
			TEST_FAIL("call %ld: %s", refused[i], r < 0 ? "killed" : strerror(r));
	}
	CHECK_EQ(error_of(open_socket, 17 /* AF_PACKET */), EAFNOSUPPORT);
	CHECK_EQ(error_of(open_socket, 40 /* AF_VSOCK */), EAFNOSUPPORT);
	CHECK_EQ(error_of(open_socket, 38 /* AF_ALG */), EAFNOSUPPORT);
}

TEST(what_the_warden_needs_reaches_the_kernel)
{
	static const long needed[] = {
		SYS_mount,	SYS_umount2,	       SYS_fsopen, SYS_fsconfig,    SYS_fsmount, SYS_open_tree,
		SYS_move_mount, SYS_mount_setattr,     SYS_setns,  SYS_pidfd_getfd, SYS_kcmp,	 SYS_process_vm_readv,
		SYS_ptrace,	SYS_name_to_handle_at, SYS_bpf,	   SYS_clone3,	    SYS_openat2, SYS_execveat,
		SYS_unshare,
	};

	for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
		int r = error_of(call, needed[i]);

		if (r <= 0 || r == EPERM || r == ENOSYS || r == 255)
			TEST_FAIL("call %ld: %s", needed[i], r < 0 ? "killed" : strerror(r));
	}
	CHECK_EQ(error_of(open_socket, AF_UNIX), 0);
	CHECK_EQ(error_of(open_socket, AF_INET), 0);
	CHECK_EQ(error_of(open_socket, AF_NETLINK), 0);
}
