/*
 * Limits what a hostile process could do with a hole in cloche-dump: it can start no program or process, reach no
 * network, make no mount and change no file by name. Reading other processes and writing to open files stay possible,
 * since they are its work.
 */
#include "memory/confine.h"
#include "base/base.h"
#include "linux/seccomp.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#ifdef __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH AUDIT_ARCH_X86_64
#endif

/* Older system calls that aarch64 does not have. */
#ifdef SYS_fork
#define OLD                                                                                                            \
	SYS_fork, SYS_vfork, SYS_rename, SYS_unlink, SYS_rmdir, SYS_mkdir, SYS_link, SYS_symlink, SYS_chmod,           \
		SYS_chown, SYS_lchown, SYS_mknod, SYS_creat, SYS_modify_ldt, SYS_iopl, SYS_ioperm, SYS_uselib,
#else
#define OLD
#endif

/* clang-format off */
static const int refused[] = {
	OLD SYS_execve, SYS_execveat, SYS_clone, SYS_clone3, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root,
	SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_fspick, SYS_fsconfig, SYS_mount_setattr,
	SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_process_vm_writev, SYS_bpf, SYS_perf_event_open,
	SYS_userfaultfd, SYS_io_uring_setup, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot,
	SYS_swapon, SYS_swapoff, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_unlinkat, SYS_renameat2, SYS_linkat,
	SYS_symlinkat, SYS_mkdirat, SYS_mknodat, SYS_fchmodat, SYS_fchownat, SYS_fchmod, SYS_fchown, SYS_setxattr, SYS_lsetxattr,
	SYS_fsetxattr, SYS_truncate, SYS_setresuid, SYS_setuid, SYS_setreuid, SYS_setresgid, SYS_setgid, SYS_setregid,
	SYS_capset, SYS_personality, SYS_acct, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_sethostname,
	SYS_setdomainname, SYS_open_by_handle_at, SYS_fanotify_init, SYS_quotactl, SYS_syslog, SYS_shmget, SYS_msgget,
	SYS_semget,
};
/* clang-format on */

static_assert(ARRAY_LEN(refused) < 250, "a jump reaches so far");

int confine(struct err *e)
{
	struct sock_filter code[ARRAY_LEN(refused) + 8];
	size_t n = 0;
	int r;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)refused[i],
							 (uint8_t)(ARRAY_LEN(refused) - i + 1), 0);
	/* the x32 ABI has other numbers for the same calls */
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000U, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	r = seccomp_install_extra(code, n);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "drop its own privileges") : 0;
}
