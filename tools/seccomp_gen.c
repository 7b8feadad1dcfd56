/*
 * seccomp_gen ARCH > seccomp_filter.h
 *
 * Theory of operation: the tables below decide every system call by name. This program turns the names into numbers
 * for ARCH (x86_64 or aarch64, whatever machine it runs on), joins neighbours with the same verdict into ranges, and
 * writes a BPF program that finds the range of a call by a search tree. Calls whose arguments matter end in a small
 * block that looks at them; all others end in one return instruction. Before it prints anything it runs the program
 * for every number in an interpreter and compares with the tables, so a filter that differs from them cannot be built.
 *
 * Why a tree: when a filter is installed, the kernel runs it once per known call to learn which ones are always
 * allowed, and never runs it for those again. So the cost of an install is the sum of all paths, and the tree is the
 * one with the least such sum. The few calls that depend on arguments run the filter every time and weigh more.
 *
 * What is not named here gets ENOSYS, as on a kernel that does not have the call: libraries probe for new calls and
 * fall back. EPERM is for calls that exist everywhere and whose users expect a refusal.
 *
 * Output depends on nothing but this file and ARCH. docs/design/0003-seccomp.md has the reasons for the choices.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NUMBERS 1024 /* more than any architecture has */
#define X32_BIT 0x40000000U
#ifndef FAR
#define FAR 255 /* how far a conditional jump reaches; smaller only to test the way around it */
#endif
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

enum action {
	ABSENT, /* ENOSYS */
	ALLOW,
	REFUSE, /* EPERM */
	KILL,
	BAD_FAMILY,
	BAD_TYPE,
	BAD_PROTO,
	NO_OPTION,
	TOO_BIG,
	/* from here on: depends on the arguments */
	SOCKET,
	SOCKETPAIR,
	CLONE,
	UNSHARE,
	IOCTL,
	PRCTL,
	PERSONALITY,
	NOT_INIT,
	COOKIE,
	CLONE3,
	SETSOCKOPT,
	GETSOCKOPT,
	SETXATTR,
	MKNOD,
	MKNODAT,
	FAMILY,
	ACTIONS
};

static const struct {
	const char *name;
	uint32_t ret; /* of the plain ones */
} actions[] = {
	[ABSENT] = { "ABSENT", SECCOMP_RET_ERRNO | ENOSYS },
	[ALLOW] = { "ALLOW", SECCOMP_RET_ALLOW },
	[REFUSE] = { "REFUSE", SECCOMP_RET_ERRNO | EPERM },
	[KILL] = { "KILL", SECCOMP_RET_KILL_PROCESS },
	[BAD_FAMILY] = { "BAD_FAMILY", SECCOMP_RET_ERRNO | EAFNOSUPPORT },
	[BAD_TYPE] = { "BAD_TYPE", SECCOMP_RET_ERRNO | ESOCKTNOSUPPORT },
	[BAD_PROTO] = { "BAD_PROTO", SECCOMP_RET_ERRNO | EPROTONOSUPPORT },
	[NO_OPTION] = { "NO_OPTION", SECCOMP_RET_ERRNO | ENOPROTOOPT },
	[TOO_BIG] = { "TOO_BIG", SECCOMP_RET_ERRNO | E2BIG },
	[SOCKET] = { "SOCKET", 0 },
	[SOCKETPAIR] = { "SOCKETPAIR", 0 },
	[CLONE] = { "CLONE", 0 },
	[UNSHARE] = { "UNSHARE", 0 },
	[IOCTL] = { "IOCTL", 0 },
	[PRCTL] = { "PRCTL", 0 },
	[PERSONALITY] = { "PERSONALITY", 0 },
	[NOT_INIT] = { "NOT_INIT", 0 },
	[COOKIE] = { "COOKIE", 0 },
	[CLONE3] = { "CLONE3", 0 },
	[SETSOCKOPT] = { "SETSOCKOPT", 0 },
	[GETSOCKOPT] = { "GETSOCKOPT", 0 },
	[SETXATTR] = { "SETXATTR", 0 },
	[MKNOD] = { "MKNOD", 0 },
	[MKNODAT] = { "MKNODAT", 0 },
	[FAMILY] = { "FAMILY", 0 },
};

/* ---- the decisions ---------------------------------------------------------------------------------------------- */

static const struct {
	enum action action;
	const char *names;
} rules[] = {
	/* Reading and writing. */
	{ ALLOW, "read pread64 readv preadv preadv2 write pwrite64 writev pwritev pwritev2 lseek sendfile splice tee "
		 "copy_file_range readahead fadvise64 fallocate truncate ftruncate fsync fdatasync sync syncfs "
		 "sync_file_range" },
	/* Descriptors. */
	{ ALLOW, "open openat openat2 creat close close_range dup dup2 dup3 fcntl flock pipe pipe2 memfd_create" },
	{ IOCTL, "ioctl" },
	/* Names, folders, attributes. */
	{ ALLOW, "stat fstat lstat newfstatat statx access faccessat faccessat2 statfs fstatfs getcwd chdir fchdir "
		 "getdents getdents64 mkdir mkdirat rmdir link linkat unlink unlinkat symlink symlinkat "
		 "readlink readlinkat rename renameat renameat2 chmod fchmod fchmodat fchmodat2 chown fchown lchown "
		 "fchownat umask utime utimes utimensat futimesat" },
	/* Pipes, sockets and files. The kernel refuses devices as well, but Landlock first, with EACCES: programs expect EPERM. */
	{ MKNOD, "mknod" },
	{ MKNODAT, "mknodat" },
	{ SETXATTR, "setxattr lsetxattr fsetxattr" },
	{ ALLOW, "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr "
		 "getxattrat listxattrat removexattrat" },
	{ ABSENT, "setxattrat" }, /* the size is in memory, where a filter cannot look */
	/* Waiting for events. */
	{ ALLOW, "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 "
		 "eventfd eventfd2 signalfd signalfd4 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch" },
	/* Memory. */
	{ ALLOW, "brk mmap munmap mremap mprotect madvise msync mincore mlock mlock2 mlockall munlock munlockall "
		 "pkey_alloc pkey_free pkey_mprotect remap_file_pages membarrier mseal map_shadow_stack "
		 "get_mempolicy set_mempolicy" },
	/* A policy for each page of a mapping or file, which no limit counts. Docker refuses them as well. */
	{ REFUSE, "mbind set_mempolicy_home_node" },
	/* Processes and threads. */
	{ ALLOW, "fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid set_tid_address "
		 "set_robust_list get_robust_list futex futex_waitv futex_wake futex_wait futex_requeue rseq "
		 "arch_prctl restart_syscall uretprobe pidfd_open pidfd_send_signal" },
	{ CLONE, "clone" },
	{ UNSHARE, "unshare" },
	{ PRCTL, "prctl" },
	{ PERSONALITY, "personality" },
	{ ALLOW, "sched_yield sched_setaffinity sched_getaffinity sched_setparam sched_getparam sched_setscheduler "
		 "sched_getscheduler sched_setattr sched_getattr sched_get_priority_max sched_get_priority_min "
		 "sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set getcpu" },
	{ NOT_INIT, "prlimit64" },
	{ ALLOW, "getrlimit setrlimit getrusage times sysinfo uname getrandom" },
	/* Signals. */
	{ ALLOW, "kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo "
		 "rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack pause" },
	/* Users. All of it inside a user namespace; the agent starts execs with these. */
	{ ALLOW,
	  "getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid "
	  "setresuid setresgid setfsuid setfsgid setgroups capget capset getpgid getpgrp setpgid getsid setsid" },
	/* Clocks and timers, to read and to wait. */
	{ ALLOW, "time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer "
		 "timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create "
		 "timerfd_settime timerfd_gettime" },
	/* Sockets: the families are decided where a socket is made. */
	{ SOCKET, "socket" },
	{ SOCKETPAIR, "socketpair" },
	{ SETSOCKOPT, "setsockopt" },
	{ GETSOCKOPT, "getsockopt" },
	{ ALLOW, "bind connect listen accept accept4 getsockname getpeername shutdown sendto sendmsg "
		 "sendmmsg recvfrom recvmsg recvmmsg" },
	/* SysV and POSIX IPC, in a namespace of their own. */
	{ ALLOW, "semget semop semtimedop semctl shmget shmat shmdt shmctl msgget msgsnd msgrcv msgctl mq_open "
		 "mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr" },
	/* Tightening oneself further. A stacked filter can only take away. */
	{ ALLOW, "seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self" },

	/* Debuggers and sanitizers. The kernel asks for what /proc/PID/mem asks for; the agent is not dumpable. */
	{ ALLOW, "ptrace process_vm_readv process_vm_writev" },

	/* The agent's, with the secret (src/linux/seccomp.h). The last is for what it restores. */
	{ COOKIE, "move_mount mount_setattr chroot sethostname userfaultfd" },

	/* Namespaces and mounts. clone3 hides its flags in memory, where a filter cannot look: ENOSYS but for the agent. */
	{ CLONE3, "clone3" },
	{ REFUSE, "setns mount umount2 pivot_root fsopen fsconfig fsmount fspick open_tree open_tree_attr "
		  "setdomainname" },
	{ ABSENT, "statmount listmount listns" },
	/* Other processes' descriptors and pages. */
	{ REFUSE, "pidfd_getfd kcmp move_pages migrate_pages" },
	{ ABSENT, "process_madvise process_mrelease" },
	/* Large parts of the kernel with a history. */
	{ ABSENT, "io_uring_setup io_uring_enter io_uring_register vmsplice modify_ldt" },
	{ REFUSE, "bpf perf_event_open add_key request_key keyctl fanotify_init fanotify_mark" },
	/* Native AIO takes from fs.aio-max-nr, which the whole machine shares. */
	{ ABSENT, "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents" },
	/* Files by handle, past every path check. */
	{ REFUSE, "open_by_handle_at name_to_handle_at" },
	/* Memory a checkpoint cannot read; the page cache as a side channel. */
	{ ABSENT, "memfd_secret cachestat" },
	/* The machine itself. */
	{ REFUSE, "kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct "
		  "quotactl quotactl_fd settimeofday clock_settime clock_adjtime adjtimex syslog vhangup iopl ioperm" },
	/* What recent kernels no longer have, or only for 32-bit programs. */
	{ ABSENT, "uselib ustat sysfs _sysctl nfsservctl lookup_dcookie create_module get_kernel_syms query_module "
		  "getpmsg putpmsg afs_syscall tuxcall security vserver epoll_ctl_old epoll_wait_old "
		  "set_thread_area get_thread_area" },
	{ ABSENT, "lsm_get_self_attr lsm_set_self_attr lsm_list_modules file_getattr file_setattr" },
};

/*
 * The warden's own filter. Everything it starts inherits it, sandboxes above all, so it allows whatever they are allowed, with
 * any arguments, and what the warden, cloche-dump and holders need beyond that. What neither needs keeps its refusal.
 */
static const char warden_too[] =
	"mount umount2 pivot_root fsopen fsconfig fsmount fspick open_tree open_tree_attr setns "
	"pidfd_getfd kcmp process_vm_readv name_to_handle_at bpf";
static const uint32_t warden_families[] = { 1 /* unix */, 2 /* inet */, 10 /* inet6 */, 16 /* netlink */ };

/* Newer than some libseccomp that builds us. From 424 on, numbers are the same on every architecture. */
static const struct {
	const char *name;
	int nr;
	bool x86_only;
} newer[] = {
	{ "uretprobe", 335, true },
	{ "cachestat", 451, false },
	{ "fchmodat2", 452, false },
	{ "map_shadow_stack", 453, false },
	{ "futex_wake", 454, false },
	{ "futex_wait", 455, false },
	{ "futex_requeue", 456, false },
	{ "statmount", 457, false },
	{ "listmount", 458, false },
	{ "lsm_get_self_attr", 459, false },
	{ "lsm_set_self_attr", 460, false },
	{ "lsm_list_modules", 461, false },
	{ "mseal", 462, false },
	{ "setxattrat", 463, false },
	{ "getxattrat", 464, false },
	{ "listxattrat", 465, false },
	{ "removexattrat", 466, false },
	{ "open_tree_attr", 467, false },
	{ "file_getattr", 468, false },
	{ "file_setattr", 469, false },
	{ "listns", 470, false },
};

/* The numbers in the argument checks are the same on both architectures. */
static const uint32_t inet_protocols[] = { 0, 6 /* TCP */, 17 /* UDP */, 1 /* ICMP */, 58 /* ICMPv6 */ };
/* TIOCSTI types for others, TIOCLINUX and TIOCCONS act on consoles, TIOCSETD loads line disciplines. */
static const uint32_t bad_ioctls[] = { 0x5412, 0x541c, 0x541d, 0x5423 };
/* IO_FLUSHER is for drivers, SCHED_CORE idles the neighbours' core, MEMORY_MERGE
 * lets one sandbox time another's pages. */
static const uint32_t bad_prctls[] = { 57, 62, 67 };
#define SET_MM 35 /* rewrites what /proc says: the agent's, with the secret */
static const uint32_t devices[] = { S_IFCHR, S_IFBLK };
static const uint32_t good_personalities[] = { 0, 8 /* PER_LINUX32 */, 0xffffffff /* ask */ };
/*
 * Options that make the kernel keep memory which no limit counts. Programs at a socket: SO_ATTACH_FILTER, SO_ATTACH_BPF,
 * SO_ATTACH_REUSEPORT_CBPF and _EBPF; their machine code comes out of bpf_jit_limit, which the whole machine shares. Keys:
 * TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY.
 */
#define REUSEPORT_CBPF 51 /* SO_ATTACH_REUSEPORT_CBPF */
static const uint32_t bad_socket_options[] = { 26, 50, 52 }, bad_tcp_options[] = { 14, 32, 38 };
/* IPV6_FLOWLABEL_MGR: the whole machine has 4,096 labels. */
static const uint32_t bad_ip6_options[] = { 32 };
/* TCP_ZEROCOPY_RECEIVE maps received pages into the process: they leave the socket's count, and no memory group has them. */
static const uint32_t bad_tcp_asked[] = { 35 };
/*
 * The kernel keeps access lists in memory that no limit counts: 24 bytes and 8 for each entry, so up to 128 bytes with 13
 * entries. As an attribute a list has 4 bytes and 8 for each entry, and no other size is a list.
 */
#define ACL_MAX (4 + 8 * 13)
#define CLONE_NEW_ANY 0x7e020000U
#define UNSHARE_HARMLESS (0x200U /* FS */ | 0x400U /* FILES */ | 0x40000U /* SYSVSEM */)

/* ---- names to ranges -------------------------------------------------------------------------------------------- */

struct arch {
	const char *name;
	uint32_t scmp, audit;
	bool x86;
};

static const struct arch arches[] = {
	{ "x86_64", SCMP_ARCH_X86_64, AUDIT_ARCH_X86_64, true },
	{ "aarch64", SCMP_ARCH_AARCH64, AUDIT_ARCH_AARCH64, false },
};

struct range {
	uint32_t first;
	enum action action;
};

struct gen {
	const struct arch *arch;
	enum action verdict[NUMBERS];
	bool named[NUMBERS];
	struct range ranges[NUMBERS + 4];
	unsigned nranges;
	/* The program, last instruction first, so that every jump target is known when the jump is written. */
	struct sock_filter prog[BPF_MAXINSNS];
	unsigned len;
	unsigned label[ACTIONS]; /* the nearest place to jump to for each action */
	unsigned cookie_lo[2], cookie_hi[2]; /* where it is patched in */
};

static void die(const char *what, const char *name)
{
	fprintf(stderr, "seccomp_gen: %s: %s\n", what, name);
	exit(1);
}

/* The number, or -1 when this architecture does not have the call. A name nobody knows is a mistake in the table. */
static int resolve(const struct arch *a, const char *name)
{
	int nr = seccomp_syscall_resolve_name_arch(a->scmp, name);

	for (size_t i = 0; i < ARRAY_LEN(newer); i++) {
		if (strcmp(newer[i].name, name))
			continue;
		if (newer[i].x86_only && !a->x86)
			return -1;
		if (nr >= 0 && nr != newer[i].nr)
			die("libseccomp has another number for", name);
		return newer[i].nr;
	}
	if (nr == __NR_SCMP_ERROR)
		die("no such system call", name);
	return nr < 0 ? -1 : nr;
}

static void decide(struct gen *g)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
		for (const char *p = rules[i].names; *p;) {
			size_t n = strcspn(p, " ");
			char name[64];
			int nr;

			snprintf(name, sizeof(name), "%.*s", (int)n, p);
			p += n + (p[n] == ' ');
			nr = resolve(g->arch, name);
			if (nr < 0)
				continue;
			if (nr >= NUMBERS)
				die("number out of bounds", name);
			if (g->named[nr])
				die("decided twice", name);
			g->named[nr] = true;
			g->verdict[nr] = rules[i].action;
		}
	}
}

static void decide_warden(struct gen *g)
{
	const char *p = warden_too;

	decide(g);
	for (unsigned nr = 0; nr < NUMBERS; nr++)
		if (g->verdict[nr] == SOCKET)
			g->verdict[nr] = FAMILY;
		else if (g->verdict[nr] > SOCKET)
			g->verdict[nr] = ALLOW;
	while (*p) {
		size_t n = strcspn(p, " ");
		char name[64];
		int nr;

		snprintf(name, sizeof(name), "%.*s", (int)n, p);
		p += n + (p[n] == ' ');
		nr = resolve(g->arch, name);
		if (nr >= 0)
			g->verdict[nr] = ALLOW;
	}
}

/* What the table says, for any number. */
static enum action expected(const struct gen *g, uint32_t nr)
{
	if (nr < NUMBERS)
		return g->verdict[nr];
	/* -1 is what a tracer writes to skip a call; libc's syscall(-1) should fail, not die. */
	if (g->arch->x86 && nr >= X32_BIT && nr != UINT32_MAX)
		return KILL;
	return ABSENT;
}

static void add_range(struct gen *g, uint32_t first)
{
	enum action a = expected(g, first);

	if (g->nranges && g->ranges[g->nranges - 1].action == a)
		return;
	g->ranges[g->nranges++] = (struct range){ first, a };
}

static void make_ranges(struct gen *g)
{
	for (uint32_t nr = 0; nr <= NUMBERS; nr++)
		add_range(g, nr);
	add_range(g, X32_BIT);
	add_range(g, UINT32_MAX);
}

/* ---- instructions, from the last to the first ------------------------------------------------------------------- */

static unsigned emit(struct gen *g, unsigned code, unsigned jt, unsigned jf, uint32_t k)
{
	if (g->len == BPF_MAXINSNS)
		die("too many instructions", g->arch->name);
	g->prog[g->len] = (struct sock_filter){ (uint16_t)code, (uint8_t)jt, (uint8_t)jf, k };
	return g->len++;
}

/* A label that a conditional jump can reach even when one more instruction comes between. */
static unsigned near_label(struct gen *g, unsigned label)
{
	if (g->len - label <= FAR)
		return label;
	return emit(g, BPF_JMP | BPF_JA, 0, 0, g->len - label - 1);
}

static unsigned near_action(struct gen *g, enum action a)
{
	unsigned l = g->label[a];

	if (g->len - l > FAR) {
		if (a < SOCKET)
			l = emit(g, BPF_RET | BPF_K, 0, 0, actions[a].ret);
		else
			l = near_label(g, l);
		g->label[a] = l;
	}
	return l;
}

/* if (A op k) goto yes; else goto no; both already near */
static unsigned branch(struct gen *g, unsigned op, uint32_t k, unsigned yes, unsigned no)
{
	return emit(g, BPF_JMP | op | BPF_K, g->len - yes - 1, g->len - no - 1, k);
}

/* The low or high half of an argument. Both architectures are little-endian. */
static unsigned load_arg(struct gen *g, unsigned i, unsigned high)
{
	return emit(g, BPF_LD | BPF_W | BPF_ABS, 0, 0,
		    (uint32_t)(offsetof(struct seccomp_data, args) + 8 * i + 4 * high));
}

static unsigned one_of(struct gen *g, const uint32_t *list, size_t n, enum action yes, enum action no)
{
	unsigned y = near_action(g, yes), next = near_action(g, no);

	while (n--)
		next = branch(g, BPF_JEQ, list[n], y, next);
	return next;
}

/*
 * socket(family, type, protocol): all three are ints, so the kernel itself drops the upper half and only the lower one
 * is compared. The low four bits of the type are the type, the rest are flags.
 */
static unsigned emit_socket(struct gen *g)
{
	static const uint32_t zero = 0; /* NETLINK_ROUTE */
	unsigned inet, netlink, at, allow, refuse;

	one_of(g, inet_protocols, ARRAY_LEN(inet_protocols), ALLOW, BAD_PROTO);
	inet = load_arg(g, 2, 0);
	refuse = near_action(g, REFUSE);
	at = near_action(g, BAD_TYPE);
	at = branch(g, BPF_JEQ, 10, refuse, at); /* SOCK_PACKET: another way to AF_PACKET */
	at = branch(g, BPF_JEQ, 3, refuse, at); /* SOCK_RAW */
	at = branch(g, BPF_JEQ, 2, inet, at); /* SOCK_DGRAM */
	branch(g, BPF_JEQ, 1, inet, at); /* SOCK_STREAM */
	emit(g, BPF_ALU | BPF_AND | BPF_K, 0, 0, 0xf);
	inet = load_arg(g, 1, 0);

	/* libaudit (useradd, su) gives up on EPERM but takes EPROTONOSUPPORT for "no audit here". */
	one_of(g, &zero, 1, ALLOW, BAD_PROTO);
	netlink = load_arg(g, 2, 0);

	allow = near_action(g, ALLOW);
	at = near_action(g, BAD_FAMILY);
	at = branch(g, BPF_JEQ, 16, netlink, at); /* AF_NETLINK */
	at = branch(g, BPF_JEQ, 10, inet, at); /* AF_INET6 */
	at = branch(g, BPF_JEQ, 2, inet, at); /* AF_INET */
	branch(g, BPF_JEQ, 1, allow, at); /* AF_UNIX */
	return load_arg(g, 0, 0);
}

/* Both halves at once and without a jump between: a guess must not learn from the time that one half was right. */
static unsigned emit_cookie(struct gen *g, unsigned nth, enum action no)
{
	branch(g, BPF_JEQ, 0, near_action(g, ALLOW), near_action(g, no));
	emit(g, BPF_ALU | BPF_OR | BPF_X, 0, 0, 0);
	g->cookie_hi[nth] = emit(g, BPF_ALU | BPF_XOR | BPF_K, 0, 0, 0);
	load_arg(g, 5, 1);
	emit(g, BPF_MISC | BPF_TAX, 0, 0, 0);
	g->cookie_lo[nth] = emit(g, BPF_ALU | BPF_XOR | BPF_K, 0, 0, 0);
	return load_arg(g, 5, 0);
}

static void emit_blocks(struct gen *g)
{
	static const uint32_t one = 1; /* AF_UNIX */
	static const uint32_t init = 1; /* the agent's pid */
	unsigned at, sock, ip6;

	for (enum action a = ABSENT; a < SOCKET; a++)
		g->label[a] = emit(g, BPF_RET | BPF_K, 0, 0, actions[a].ret);

	g->label[SOCKET] = emit_socket(g);

	one_of(g, &one, 1, ALLOW, BAD_FAMILY);
	g->label[SOCKETPAIR] = load_arg(g, 0, 0);

	branch(g, BPF_JSET, CLONE_NEW_ANY, near_action(g, REFUSE), near_action(g, ALLOW));
	g->label[CLONE] = load_arg(g, 0, 0); /* the kernel takes the lower half only */

	branch(g, BPF_JSET, ~UNSHARE_HARMLESS, near_action(g, REFUSE), near_action(g, ALLOW));
	at = load_arg(g, 0, 0);
	branch(g, BPF_JEQ, 0, at, near_action(g, REFUSE));
	g->label[UNSHARE] = load_arg(g, 0, 1);

	one_of(g, bad_ioctls, ARRAY_LEN(bad_ioctls), REFUSE, ALLOW);
	g->label[IOCTL] = load_arg(g, 1, 0); /* an unsigned int to the kernel, too */

	g->label[COOKIE] = emit_cookie(g, 0, REFUSE);
	g->label[CLONE3] = emit_cookie(g, 1, ABSENT);

	at = one_of(g, bad_prctls, ARRAY_LEN(bad_prctls), REFUSE, ALLOW);
	branch(g, BPF_JEQ, SET_MM, near_action(g, COOKIE), at);
	g->label[PRCTL] = load_arg(g, 0, 0);

	one_of(g, good_personalities, ARRAY_LEN(good_personalities), ALLOW, REFUSE);
	g->label[PERSONALITY] = load_arg(g, 0, 0);

	one_of(g, bad_ip6_options, ARRAY_LEN(bad_ip6_options), NO_OPTION, ALLOW);
	ip6 = load_arg(g, 2, 0);
	one_of(g, bad_tcp_options, ARRAY_LEN(bad_tcp_options), NO_OPTION, ALLOW);
	at = load_arg(g, 2, 0);
	sock = one_of(g, bad_socket_options, ARRAY_LEN(bad_socket_options), NO_OPTION, ALLOW);
	branch(g, BPF_JEQ, REUSEPORT_CBPF, near_action(g, COOKIE), sock); /* the agent restores datagrams by it */
	sock = load_arg(g, 2, 0);
	ip6 = branch(g, BPF_JEQ, 41 /* SOL_IPV6 */, ip6, near_action(g, ALLOW));
	at = branch(g, BPF_JEQ, 6 /* SOL_TCP */, at, ip6);
	branch(g, BPF_JEQ, 1 /* SOL_SOCKET */, sock, at);
	g->label[SETSOCKOPT] = load_arg(g, 1, 0); /* level and option are ints */

	one_of(g, bad_tcp_asked, ARRAY_LEN(bad_tcp_asked), NO_OPTION, ALLOW);
	at = load_arg(g, 2, 0);
	branch(g, BPF_JEQ, 6 /* SOL_TCP */, at, near_action(g, ALLOW));
	g->label[GETSOCKOPT] = load_arg(g, 1, 0);

	/* The kernel refuses sizes with a high half itself, with the same error. */
	branch(g, BPF_JEQ, 4, near_action(g, TOO_BIG), near_action(g, ALLOW));
	at = emit(g, BPF_ALU | BPF_AND | BPF_K, 0, 0, 7);
	branch(g, BPF_JGE, ACL_MAX + 1, at, near_action(g, ALLOW));
	g->label[SETXATTR] = load_arg(g, 3, 0);

	for (unsigned i = 1; i <= 2; i++) {
		one_of(g, devices, ARRAY_LEN(devices), REFUSE, ALLOW);
		emit(g, BPF_ALU | BPF_AND | BPF_K, 0, 0, S_IFMT);
		g->label[i == 1 ? MKNOD : MKNODAT] = load_arg(g, i, 0); /* the mode, which the kernel cuts to 16 bits */
	}

	/* Without root the agent has the command's own id, and who has one's id may lower one's limits. */
	one_of(g, &init, 1, REFUSE, ALLOW);
	g->label[NOT_INIT] = load_arg(g, 0, 0); /* a pid, so an int */

	one_of(g, warden_families, ARRAY_LEN(warden_families), ALLOW, BAD_FAMILY);
	g->label[FAMILY] = load_arg(g, 0, 0);
}

/* ---- the tree --------------------------------------------------------------------------------------------------- */

struct tree {
	unsigned cost[NUMBERS / 4][NUMBERS / 4], split[NUMBERS / 4][NUMBERS / 4], weight[NUMBERS / 4];
};

/* One number between two ranges that share a verdict: a single comparison tells. */
static bool is_hole(const struct gen *g, unsigned a, unsigned b)
{
	const struct range *r = g->ranges;

	return b == a + 2 && r[a].action == r[b].action && r[a + 1].first + 1 == r[b].first;
}

/* Finds the tree with the least sum of weight times depth: the usual table over all intervals. */
static void plan(const struct gen *g, struct tree *t)
{
	unsigned n = g->nranges;

	if (n > ARRAY_LEN(t->weight))
		die("too many ranges", g->arch->name);
	for (unsigned i = 0; i < n; i++) {
		uint32_t end = i + 1 < n ? g->ranges[i + 1].first : UINT32_MAX;

		if (end > 512)
			end = g->ranges[i].first < 512 ? 512 : g->ranges[i].first + 1;
		t->weight[i] = end - g->ranges[i].first;
		if (g->ranges[i].action >= SOCKET)
			t->weight[i] += 16;
	}
	for (unsigned span = 1; span < n; span++) {
		for (unsigned a = 0, b = span; b < n; a++, b++) {
			unsigned best = UINT32_MAX, sum = 0;

			for (unsigned i = a; i <= b; i++)
				sum += t->weight[i];
			for (unsigned m = a + 1; m <= b; m++) {
				unsigned c = t->cost[a][m - 1] + t->cost[m][b];

				if (c < best) {
					best = c;
					t->split[a][b] = m;
				}
			}
			t->cost[a][b] = sum + (is_hole(g, a, b) ? 0 : best);
		}
	}
}

/* Writes the tree of ranges a..b and returns its label; a single range has no code of its own. */
static unsigned emit_tree(struct gen *g, const struct tree *t, unsigned a, unsigned b)
{
	unsigned m = t->split[a][b], left = 0, right = 0;

	if (is_hole(g, a, b)) {
		left = near_action(g, g->ranges[a].action);
		right = near_action(g, g->ranges[a + 1].action);
		return branch(g, BPF_JEQ, g->ranges[a + 1].first, right, left);
	}
	if (m < b)
		right = emit_tree(g, t, m, b);
	if (a < m - 1)
		left = emit_tree(g, t, a, m - 1);
	right = m < b ? near_label(g, right) : near_action(g, g->ranges[b].action);
	left = a < m - 1 ? near_label(g, left) : near_action(g, g->ranges[a].action);
	return branch(g, BPF_JGE, g->ranges[m].first, right, left);
}

static void build(struct gen *g)
{
	static struct tree t;
	unsigned kill_label;

	make_ranges(g);
	plan(g, &t);
	emit_blocks(g);
	emit_tree(g, &t, 0, g->nranges - 1);
	emit(g, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
	kill_label = near_action(g, KILL);
	/* The tree's load is the instruction before the copy of KILL, if one was needed. */
	branch(g, BPF_JEQ, g->arch->audit, g->len - (kill_label == g->len - 1 ? 2 : 1), kill_label);
	emit(g, BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, arch));
	for (unsigned i = 0; i < g->len / 2; i++) {
		struct sock_filter f = g->prog[i];

		g->prog[i] = g->prog[g->len - 1 - i];
		g->prog[g->len - 1 - i] = f;
	}
	for (unsigned i = 0; i < ARRAY_LEN(g->cookie_lo); i++) {
		g->cookie_lo[i] = g->len - 1 - g->cookie_lo[i];
		g->cookie_hi[i] = g->len - 1 - g->cookie_hi[i];
	}
}

/* ---- proof ------------------------------------------------------------------------------------------------------ */

/* Runs the program until its verdict, or until it looks at an argument: then *ret_pc says where. */
static uint32_t run(const struct gen *g, uint32_t audit, uint32_t nr, unsigned *ret_pc)
{
	uint32_t acc = 0;

	for (unsigned pc = 0; pc < g->len; pc++) {
		const struct sock_filter *f = &g->prog[pc];

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (f->k >= offsetof(struct seccomp_data, args)) {
				*ret_pc = pc;
				return 0;
			}
			acc = f->k == offsetof(struct seccomp_data, nr) ? nr : audit;
			break;
		case BPF_JMP | BPF_JA:
			pc += f->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += acc >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += acc == f->k ? f->jt : f->jf;
			break;
		case BPF_RET | BPF_K:
			*ret_pc = UINT32_MAX;
			return f->k;
		default:
			die("unexpected instruction", g->arch->name);
		}
	}
	die("ran off the end", g->arch->name);
	return 0;
}

static void check(const struct gen *g, uint32_t nr)
{
	enum action want = expected(g, nr);
	char text[16];
	unsigned pc;
	uint32_t got;

	snprintf(text, sizeof(text), "%u", nr);
	got = run(g, g->arch->audit, nr, &pc);
	if (want < SOCKET ? pc != UINT32_MAX || got != actions[want].ret : pc == UINT32_MAX)
		die("the program disagrees with the table at", text);
	for (size_t i = 0; i < ARRAY_LEN(arches); i++) {
		if (&arches[i] == g->arch)
			continue;
		got = run(g, arches[i].audit, nr, &pc);
		if (got != SECCOMP_RET_KILL_PROCESS)
			die("another architecture passes at", text);
	}
}

static void prove(const struct gen *g)
{
	static const uint32_t edges[] = { X32_BIT - 1, X32_BIT,	   X32_BIT + 1, X32_BIT + 60,	X32_BIT + 59,
					  0x7fffffff,  0x80000000, 0xc0000000,	UINT32_MAX - 1, UINT32_MAX };

	for (uint32_t nr = 0; nr < 2 * NUMBERS; nr++)
		check(g, nr);
	for (size_t i = 0; i < ARRAY_LEN(edges); i++)
		check(g, edges[i]);
}

/* ---- output ----------------------------------------------------------------------------------------------------- */

static void print_program(const struct gen *g, const char *name)
{
	printf("static const struct sock_filter %s[] = {\n", name);
	for (unsigned i = 0; i < g->len; i++)
		printf("\t{ 0x%02x, %u, %u, 0x%x },\n", g->prog[i].code, g->prog[i].jt, g->prog[i].jf, g->prog[i].k);
	printf("};\n");
}

static void print(const struct gen *g)
{
	printf("/* Written by tools/seccomp_gen.c for %s. */\n", g->arch->name);
	printf("static const struct { unsigned lo, hi; } seccomp_cookies[] = { { %u, %u }, { %u, %u } };\n",
	       g->cookie_lo[0], g->cookie_hi[0], g->cookie_lo[1], g->cookie_hi[1]);
	print_program(g, "seccomp_program");

	/* For the tests: what each number was decided to be. */
	printf("#ifdef SECCOMP_WITH_DECISIONS\nenum {");
	for (unsigned a = 0; a < ACTIONS; a++)
		printf(" DECIDED_%s,", actions[a].name);
	printf(" };\nstatic const struct { int nr, action; const char *name; } seccomp_decisions[] = {\n");
	for (int nr = 0; nr < NUMBERS; nr++) {
		char *name = NULL;

		if (!g->named[nr])
			continue;
		for (size_t i = 0; i < ARRAY_LEN(newer); i++)
			if (newer[i].nr == nr && (g->arch->x86 || !newer[i].x86_only))
				name = strdup(newer[i].name);
		if (!name)
			name = seccomp_syscall_resolve_num_arch(g->arch->scmp, nr);
		printf("\t{ %d, DECIDED_%s, \"%s\" },\n", nr, actions[g->verdict[nr]].name, name);
		free(name);
	}
	printf("};\n#endif\n");
}

int main(int argc, char **argv)
{
	static struct gen g, w;

	for (size_t i = 0; argc == 2 && i < ARRAY_LEN(arches); i++)
		if (!strcmp(arches[i].name, argv[1]))
			g.arch = &arches[i];
	if (!g.arch) {
		fprintf(stderr, "usage: seccomp_gen x86_64|aarch64\n");
		return 1;
	}
	decide(&g);
	build(&g);
	prove(&g);
	print(&g);
	w.arch = g.arch;
	decide_warden(&w);
	build(&w);
	prove(&w);
	print_program(&w, "seccomp_warden_program");
	if (fflush(stdout) || ferror(stdout))
		die("cannot write", "stdout");
	return 0;
}
