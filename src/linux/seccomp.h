/*
 * The system call filter. Its program is made at build time (tools/seccomp_gen.c) from one allowlist, per
 * architecture, as a search tree over ranges of numbers: about 10 instructions on the path of a call, and five times
 * cheaper to install than a linear one. The choices are in docs/design/0003-seccomp.md.
 *
 * The agent locks itself before it knows its image, yet must still attach the image's mounts. Those few calls
 * (move_mount, mount_setattr, chroot, sethostname) pass only when their unused sixth argument carries a 64-bit secret,
 * made by the agent from getrandom, patched into the program, and wiped after the last use. The same secret opens what
 * restoring processes needs: clone3, whose flags cannot be seen, prctl(PR_SET_MM), and userfaultfd. It is wiped
 * before the first command starts. No other process can read it: the agent is not dumpable, and
 * PTRACE_SECCOMP_GET_FILTER needs CAP_SYS_ADMIN outside. A process that guessed it would still lack the capabilities;
 * userfaultfd alone needs none, and then handles faults of user mode only.
 */
#pragma once
#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SECCOMP_PROFILE_MAX 4096 /* instructions, the kernel's own limit */

/* Installs our filter on the calling thread; needs no_new_privs. @cookie as above, never 0. */
int seccomp_install(uint64_t cookie);
/* Installs a program made by cloche-seccomp (a user's profile) on top. */
int seccomp_install_extra(const struct sock_filter *prog, size_t len);
/*
 * On top, where files of the host can be written: refuses to set set-user-id and set-group-id bits, with which a file left
 * there would be a trap for others. openat2 says ENOSYS, since its mode cannot be seen.
 */
int seccomp_install_no_setid(void);
/*
 * The warden's own, on the calling thread. All it starts inherits it; it allows what any of them needs. Refused stay modules,
 * kexec, reboot, swap, clocks, files by handle, perf, keys, io_uring, fanotify, raw I/O and sockets of other families.
 */
int seccomp_install_warden(void);
/* The number of instructions of ours, for `enforced`. */
size_t seccomp_program_len(void);
