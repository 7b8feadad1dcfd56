/*
 * Frames between the host and the agent in a sandbox, version 1. docs/protocol.md describes them; this header is the
 * contract. The same bytes run over a unix stream socket (container: descriptors travel with a frame's first byte)
 * and over any byte stream (VM). Both sides treat the other's bytes as hostile: nothing here asserts on them.
 *
 *	version u8 | type u8 | nfds u8 | zero u8 | id u32 | len u32 | len bytes of payload
 *
 * id names the exec a frame is about, 0 the sandbox itself. Numbers are little-endian; strings carry their length and
 * a closing NUL, and no NUL inside.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define FRAME_VERSION 1
#define AGENT_UID 65533U /* the agent's own id inside; no exec may have it */
#define FRAME_HEAD 12
/* a command of EXEC_BYTES_MAX (proto/exec.h), and what is around its strings */
#define FRAME_PAYLOAD_MAX (2176U * 1024U)
#define FRAME_FDS_MAX 144

enum frame_type {
	/* host → agent */
	FRAME_SETUP = 1, /* struct frame_setup; fds: the mounts it lists, in order */
	FRAME_EXEC = 2, /* struct frame_exec; fds: see frame_exec_fds() */
	FRAME_SIGNAL = 3, /* u32 signal, u32 enum frame_scope */
	FRAME_PING = 4, /* answered by PONG with the same id */
	FRAME_MOUNTS = 5, /* struct frame_mounts; fds: the mounts. Before SETUP: what needs no image */
	/*
	 * after SETUP; fds: FRAME_KEEP_FDS. From now on the end of this connection does not end the agent; with the id
	 * FRAME_KEEP_AHEAD not before the table says so
	 */
	FRAME_KEEP = 6,
	FRAME_RELEASE = 7, /* the exec's status and descriptors are not needed any more */
	FRAME_CLOSE_STDIN = 8, /* closes the kept end of the exec's stdin */
	FRAME_SYNC = 9, /* answered by HELD for every exec that was not released, then SYNCED */
	FRAME_FILES = 10, /* struct frame_files; fd: a stream socket. Starts a file worker on it */
	/*
	 * struct frame_restore; fds: see frame_restore_fds(). After KEEP, before the first EXEC or FILES. The id
	 * FRAME_RESTORE_AHEAD means that no request waits for it yet: either the same, and nothing runs before the frame
	 * comes again without that id; or only meta, when the rest is not known. That is not answered
	 */
	FRAME_RESTORE = 11,
	/*
	 * struct frame_connect; fd: a stream socket. Of machines only: what answers at that port of the sandbox's loopback is
	 * at the other end of it, behind one byte: 0, or the errno of connecting there, and then nothing
	 */
	FRAME_CONNECT = 12,
	/*
	 * struct frame_changes; fd: a pipe to write to. Of machines only: what differs between the image and the sandbox's files
	 * as they are just then (proto/change.h) comes out of it
	 */
	FRAME_CHANGES = 13,
	/*
	 * u32; fd: a pipe to write to. Only for virtual machines: which process has the connection that cloche-vmm has at
	 * that port of its own (the guest gets its channel instead). The answer in the pipe is `PID COMMAND`, or nothing
	 */
	FRAME_WHO = 14,
	/* agent → host */
	FRAME_READY = 16, /* u32 protocol version, u32 Landlock ABI: locked down, waits for SETUP */
	FRAME_UP = 17, /* the sandbox is ready; with FRAME_SETUP_FRESH: u32 of FRAME_RESTORED_*, what was renewed */
	FRAME_STARTED = 18, /* only with FRAME_EXEC_TTY: u32 pid inside; fd: the terminal's master */
	FRAME_EXITED = 19, /* struct frame_exited */
	FRAME_FAILED = 20, /* struct frame_failed */
	FRAME_PONG = 21,
	FRAME_HELD = 22, /* struct frame_held; fds: copies of the kept ones */
	FRAME_SYNCED = 23,
	/*
	 * id: a warm process, which is ready. From the host: no request waits, so it may prepare for the next one; with
	 * the id FRAME_WARM_WAKE a request follows soon, and it is only woken up
	 */
	FRAME_WARM = 25,
	/* struct frame_restored: all processes run; or FAILED, stage RESTORE, and there are none */
	FRAME_RESTORED = 24,
};

enum frame_scope {
	FRAME_SCOPE_PROCESS, /* the exec's first process */
	FRAME_SCOPE_GROUP, /* its process group */
	FRAME_SCOPE_ALL, /* every process of the sandbox but the agent */
};

struct frame {
	uint8_t type;
	uint8_t nfds;
	uint32_t id;
	uint32_t len;
	const uint8_t *payload; /* inside the decoded buffer */
};

/*
 * Decodes the frame at the start of @data. Returns its whole length, 0 when more bytes are needed, or -EBADMSG when
 * this can never become a frame (version, type, reserved byte, sizes): the connection is then to be dropped.
 */
long frame_decode(const uint8_t *data, size_t len, struct frame *ret);
/* Writes the head for a payload of @len into @out (FRAME_HEAD bytes). */
void frame_head(uint8_t *out, enum frame_type type, uint8_t nfds, uint32_t id, uint32_t len);

/* --- SETUP --- */
#define FRAME_MOUNTS_MAX 140

enum frame_mount_kind {
	FRAME_MOUNT_DIR, /* target is made as a folder when missing */
	FRAME_MOUNT_FILE, /* target is made as an empty file when missing */
	FRAME_MOUNT_PROC_FILE, /* target below /proc: never made; left out when the kernel does not have it */
	FRAME_MOUNT_BASE, /* MOUNTS only: target is an existing place of the agent's own base */
	FRAME_MOUNT_PARK, /* no target: kept out of reach, so that the host's descriptor closes without an RCU wait */
};

struct frame_mounts {
	uint32_t n;
	struct {
		uint8_t kind;
		const char *target;
	} mount[FRAME_MOUNTS_MAX];
};

struct frame_setup {
	const char *hostname;
	const char *workdir; /* made when missing, owned by uid:gid */
	uint32_t uid, gid; /* the owner of a made workdir */
	uint32_t flags; /* FRAME_SETUP_* */
	uint64_t cpu_mask; /* as many CPUs for what runs inside, these at best, bit n = CPU n; 0 = all */
	struct frame_mounts mounts; /* the first is the root */
};
#define FRAME_SETUP_READ_ONLY 1U /* make the root read-only once everything is attached */
/* a folder of the host can be written: nothing may get set-id bits or capabilities */
#define FRAME_SETUP_HOST_WRITABLE 2U
/* its files were another's: /etc/machine-id, where there is one, and /run/cloche/generation are made anew */
#define FRAME_SETUP_FRESH 4U
#define FRAME_SETUP_NET 8U /* /etc/resolv.conf names the sandbox's resolver (linux/steer.h) */
#define FRAME_SETUP_AHEAD 16U /* no request waits for it yet: others run first (linux/sched_slice.h) */
/* the image may be one that does not know the user, nor localhost: they are added (agent/etc.c) */
#define FRAME_SETUP_ETC 32U
#define FRAME_SETUP_HOSTS 64U /* the image may not know localhost: its name and that are added (agent/hosts.c) */
#define FRAME_SETUP_BARE 128U /* nothing is added to the files, not even a folder for what is temporary */
#define FRAME_SETUP_FLAGS 255U

long frame_mounts_encode(const struct frame_mounts *m, uint8_t *out, size_t size); /* payload length or -EMSGSIZE */
int frame_mounts_decode(const struct frame *f, struct frame_mounts *ret); /* 0 or -EBADMSG; points into the frame */
long frame_setup_encode(const struct frame_setup *s, uint8_t *out, size_t size); /* payload length or -EMSGSIZE */
int frame_setup_decode(const struct frame *f, struct frame_setup *ret); /* 0 or -EBADMSG; points into the frame */

/* --- EXEC --- */
#define FRAME_EXEC_TTY 1U
#define FRAME_EXEC_FILTER 2U /* a descriptor holds a seccomp program to add */
#define FRAME_EXEC_KEEP 4U /* the agent keeps the host's ends of stdout and stderr, or the terminal, and the status */
#define FRAME_EXEC_STDIN 8U /* with KEEP, without TTY: also the host's end of stdin */
#define FRAME_EXEC_GROUP 16U /* a descriptor to join its group by: "0" is written there */
/* Started by the sandbox's warm process (proto/warm.h), by a fork of it: argv[0] is its kind, argv[1] the code. No FILTER. */
#define FRAME_EXEC_WARM 32U
#define FRAME_EXEC_WARM_HOST 64U /* it is a warm process: the agent's socket is its descriptor 3 */
#define FRAME_EXEC_USER 128U /* ->user is looked up (proto/account.h) instead of ->uid and ->gid; no WARM */
#define FRAME_EXEC_MERGE 256U /* the command's stderr is its stdout; the pipe for stderr stays empty. No TTY */
#define FRAME_STRINGS_MAX 8192 /* arguments and variables together */

struct frame_exec {
	uint32_t flags;
	uint32_t uid, gid;
	uint32_t rows, cols;
	uint64_t nofile; /* 0 = leave */
	uint64_t cpu_seconds; /* 0 = none; per process, a backstop: the host counts the whole group */
	const char *cwd;
	const char *user; /* FRAME_EXEC_USER only. HOME, USER and LOGNAME are set as it says, where ->envp has none */
	uint32_t argc, envc;
	const char *const *argv; /* encode only */
	const char *const *envp; /* encode only */
	const uint8_t *strings, *strings_end; /* decode only: argc + envc strings, checked */
};

long frame_exec_encode(const struct frame_exec *x, uint8_t *out, size_t size);
int frame_exec_decode(const struct frame *f, struct frame_exec *ret);
/* Fills argv and envp (argc + 1 and envc + 1 places, NULL-ended) from a decoded frame. */
void frame_exec_strings(const struct frame_exec *x, char **argv, char **envp);

/* Where each descriptor is among those of an EXEC frame, -1 = not there. */
struct frame_exec_fds {
	int stdio; /* the first of three */
	int filter, group;
	int out, err, in; /* the host's ends, to be kept */
	unsigned n; /* of all */
};
struct frame_exec_fds frame_exec_fds(uint32_t flags);

/* --- KEEP: the agent puts them on fixed places, where a host that comes back takes them from --- */
#define FRAME_KEEP_AHEAD 1U
#define FRAME_KEEP_FDS 6
#define FRAME_KEEP_VM_FDS 2 /* more, of a virtual machine's jail */
enum frame_keep_place {
	FRAME_KEEP_SLOT = 4, /* the lock of the sandbox's slot */
	FRAME_KEEP_TAKE = 5, /* the agent's end of the rendezvous, a SOCK_SEQPACKET pair: a message with a new socket */
	FRAME_KEEP_GIVE = 6, /* the other end */
	FRAME_KEEP_MEMINFO = 7, /* what /proc/meminfo shows, a file of the writable layer */
	FRAME_KEEP_UPPER = 8, /* the writable layer's own folder: what is sealed into a layer is read there */
	FRAME_KEEP_TABLE = 9, /* proto/table.h: its execs, needed to save its processes in an image */
	/* only in a virtual machine's jail: */
	FRAME_KEEP_SIDE = 10, /* the warden's end of cloche-vmm's socket (vm/vmm/side.h) */
	FRAME_KEEP_STAT = 11, /* what the machine says of itself, a file in memory */
};

/* --- FILES --- */
struct frame_files {
	uint32_t uid, gid;
	const char *cwd;
};
long frame_files_encode(const struct frame_files *x, uint8_t *out, size_t size);
int frame_files_decode(const struct frame *f, struct frame_files *ret); /* 0 or -EBADMSG; points into the frame */

/* --- CONNECT --- */
struct frame_connect {
	uint32_t family; /* 4 or 6 */
	uint32_t port;
};
long frame_connect_encode(const struct frame_connect *x, uint8_t *out, size_t size);
int frame_connect_decode(const struct frame *f, struct frame_connect *ret); /* 0 or -EBADMSG */

/* --- CHANGES --- */
struct frame_changes {
	uint32_t flags; /* DIFF_* of layers/diff.h, checked where the request is served */
	uint32_t max; /* entries in the answer; 0: all */
};
long frame_changes_encode(const struct frame_changes *x, uint8_t *out, size_t size);
int frame_changes_decode(const struct frame *f, struct frame_changes *ret); /* 0 or -EBADMSG */

/* --- RESTORE: the processes of a memory image (proto/memory.h) --- */
#define FRAME_RESTORE_AHEAD 1U
#define FRAME_WARM_WAKE 1U
#define FRAME_RESTORE_FILTER 1U /* a descriptor holds a seccomp program to add, as for execs of this sandbox */
#define FRAME_RESTORE_PAGES_MAX 8
#define FRAME_RESTORE_GROUPS_MAX 22

struct frame_restore {
	uint32_t flags;
	uint32_t pages; /* pages files, at least 1 */
	uint32_t groups; /* as many as the image has execs, or 0: they stay in the agent's own group */
	uint64_t nofile; /* as in EXEC: no process gets more */
	uint64_t cpu_seconds;
	uint64_t generation[2]; /* new for every restore: /etc/machine-id and /run/cloche/generation are made of it */
};

/* Where each descriptor is: meta is 0, -1 = not there. */
struct frame_restore_fds {
	int pages, filter, groups; /* the first of them */
	unsigned n;
};
struct frame_restore_fds frame_restore_fds(const struct frame_restore *x);
long frame_restore_encode(const struct frame_restore *x, uint8_t *out, size_t size);
int frame_restore_decode(const struct frame *f, struct frame_restore *ret); /* 0 or -EBADMSG */

/* layers/numbers.h: a folder in the root, until processes are restored. Files "NUMBER.SET" */
#define FRAME_NUMBERS ".cloche-inode-numbers"
#define FRAME_NUMBERS_SETS 4U

/* --- answers --- */
#define FRAME_RESTORED_MACHINE_ID 1U /* /etc/machine-id is new */
#define FRAME_RESTORED_GENERATION 2U /* /run/cloche/generation is new */
#define FRAME_RESTORED_CLOCK_BACK 4U /* the monotonic clock is behind what the processes have seen */
#define FRAME_RESTORED_NUMBERS_LOST 8U /* files that are open have other inode numbers than they had */

struct frame_restored {
	uint32_t procs, threads;
	uint32_t done; /* FRAME_RESTORED_* */
	uint32_t usec; /* it took */
};

struct frame_exited {
	int32_t status; /* as wait4 returns it */
	uint64_t cpu_usec;
	uint64_t maxrss; /* bytes */
	/* processes of the sandbox that its memory limit has killed in the meantime; 0 where that is unknown */
	uint64_t oom_kills;
};

#define FRAME_HELD_ENDED 1U /* and then the rest holds what EXITED said */
#define FRAME_HELD_TTY 2U /* fd: the master; else stdout, stderr */
#define FRAME_HELD_STDIN 4U /* and stdin */

struct frame_held {
	uint32_t flags;
	struct frame_exited exited;
};

#define FRAME_STAGES(X)                                                                                                \
	X(NONE, "")                                                                                                    \
	X(NAMESPACE, "enter namespaces")                                                                               \
	X(BASE, "mount the base")                                                                                      \
	X(PROC, "mount /proc")                                                                                         \
	X(MASK, "mask /proc")                                                                                          \
	X(DEV, "mount /dev")                                                                                           \
	X(PIVOT, "pivot_root")                                                                                         \
	X(CAPS, "drop capabilities")                                                                                   \
	X(NNP, "set no_new_privs")                                                                                     \
	X(SECCOMP, "install the system call filter")                                                                   \
	X(ROOT, "attach the image")                                                                                    \
	X(MOUNT, "attach a mount")                                                                                     \
	X(CHROOT, "enter the image")                                                                                   \
	X(LANDLOCK, "restrict with Landlock")                                                                          \
	X(WORKDIR, "make the work folder")                                                                             \
	X(HOSTNAME, "set the host name")                                                                               \
	X(READ_ONLY, "make the root read-only")                                                                        \
	X(AFFINITY, "set the CPUs")                                                                                    \
	X(CLONE, "start a process")                                                                                    \
	X(TTY, "open a terminal")                                                                                      \
	X(STDIO, "set up stdin, stdout, stderr")                                                                       \
	X(RLIMIT, "set limits")                                                                                        \
	X(USER, "change user")                                                                                         \
	X(CWD, "enter the working folder")                                                                             \
	X(FILTER, "install the given filter")                                                                          \
	X(EXECVE, "start the program")                                                                                 \
	X(LIMIT, "too many execs")                                                                                     \
	X(PROTOCOL, "read a frame")                                                                                    \
	X(GROUP, "join its group")                                                                                     \
	X(RESTORE, "restore the processes")                                                                            \
	X(WARM, "ask the warm process")                                                                                \
	X(RESOLVER, "write /etc/resolv.conf")                                                                          \
	X(ACCOUNT, "look the user up in /etc/passwd")                                                                  \
	X(ACCOUNT_GROUP, "look the group up in /etc/group")

enum frame_stage {
#define X(name, text) FRAME_STAGE_##name,
	FRAME_STAGES(X)
#undef X
		FRAME_STAGE_COUNT
};
const char *frame_stage_text(uint32_t stage);

struct frame_failed {
	uint32_t stage; /* enum frame_stage */
	uint32_t errnum;
	uint32_t which; /* SETUP: the mount's place in the list */
	const char *text; /* stage RESTORE only: why, for people, printable ASCII. Points into the frame */
};
#define FRAME_FAILED_TEXT_MAX 239

long frame_exited_encode(const struct frame_exited *x, uint8_t *out, size_t size);
int frame_exited_decode(const struct frame *f, struct frame_exited *ret);
long frame_held_encode(const struct frame_held *x, uint8_t *out, size_t size);
int frame_held_decode(const struct frame *f, struct frame_held *ret);
long frame_restored_encode(const struct frame_restored *x, uint8_t *out, size_t size);
int frame_restored_decode(const struct frame *f, struct frame_restored *ret);
long frame_failed_encode(const struct frame_failed *x, uint8_t *out, size_t size);
int frame_failed_decode(const struct frame *f, struct frame_failed *ret);
