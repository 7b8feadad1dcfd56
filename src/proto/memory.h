/*
 * A memory image: the state of a sandbox's processes, so that they can continue in another sandbox. Written by
 * cloche-dump, read by the agent of the sandbox that is made from it. docs/design/0007-memory.md describes the design.
 *
 * Two files: "meta", which is this header and its sections, and "pages", whole pages, page-aligned. The image of a
 * sandbox that was itself restored may point into the pages of the images it came from (a delta).
 *
 * Numbers have the machine's byte order, records have a fixed size and no padding, indices count within a section. A
 * reader does not trust the image: mem_check() checks every index, offset, count and string against the file before
 * anything is used.
 */
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/memory_cpus.h"
#include "proto/memory_setting.h"
#include "proto/memory_sysv.h"

#define MEM_MAGIC 0x3154454b4e41424cULL
#define MEM_VERSION 6U
#define MEM_NONE UINT32_MAX

#define MEM_PAGE_FILES 8 /* "pages" files one image may use: its own is 0, then those of its ancestors */
#define MEM_PROCS_MAX 256U
#define MEM_THREADS_MAX 2048U
#define MEM_META_MAX (64U << 20)
#define MEM_PATH_MAX 4096U

enum mem_arch { MEM_X86_64 = 1, MEM_AARCH64 = 2 };

enum mem_section {
	MEM_S_PROC, /* struct mem_proc; a parent comes before its children */
	MEM_S_THREAD, /* struct mem_thread; those of one process are adjacent, its leader first */
	MEM_S_VMA, /* struct mem_vma; per process together, by address */
	MEM_S_RUN, /* struct mem_run; per vma together, by address */
	MEM_S_FD, /* struct mem_fd; per process together, by number */
	MEM_S_OBJECT, /* struct mem_object: open file descriptions */
	MEM_S_WATCH, /* struct mem_watch: what an epoll waits for; per object together */
	MEM_S_ACTION, /* struct mem_action: 64 per process */
	MEM_S_TIMER, /* struct mem_timer: POSIX timers; per process together */
	MEM_S_EXEC, /* struct mem_exec, by id */
	MEM_S_FILE, /* struct mem_file: regular files and folders, by what they are known in the sandbox */
	MEM_S_LOCK, /* struct mem_lock: locks and leases of files */
	MEM_S_NODE, /* struct mem_node: files that are in the image itself; a folder comes before what is in it */
	MEM_S_CUT, /* struct mem_cut: what the copy does not have of connections to the outside */
	MEM_S_BYTES, /* everything of no fixed size: paths, registers, queued data */
	MEM_SECTIONS
};

struct mem_span { /* in MEM_S_BYTES */
	uint64_t off, len;
};

struct mem_range { /* records of a section */
	uint32_t first, n;
};

struct mem_head {
	uint64_t magic;
	uint32_t version, arch, page_size, page_files;
	uint64_t size; /* of all of meta */
	uint64_t pages; /* of the own pages file, in bytes */
	/* bytes of memory that its processes and objects take when they are restored: the sum of all runs */
	uint64_t own;
	/*
	 * What must be the same where it is restored: SHA-256 of the kernel's release and version, the vdso's bytes and the
	 * CPU's features (as seen by programs: hwcaps, XCR0)
	 */
	uint8_t host[32];
	char ancestor[MEM_PAGE_FILES][32]; /* ids of the layers whose pages files 1.. are; [0] is zeros */
	uint64_t realtime, monotonic, boottime; /* ns, when it was taken */
	struct {
		uint64_t off, n; /* where it begins in meta (8-aligned); how many records, bytes for MEM_S_BYTES */
	} section[MEM_SECTIONS];
};

enum mem_proc_state {
	MEM_ALIVE,
	MEM_ZOMBIE, /* only ->status matters */
	/* no process of that id lived any more, but its id is a group's or session's: made and ended in passing */
	MEM_PLACEHOLDER,
};

struct mem_proc {
	uint32_t state;
	uint32_t parent; /* MEM_NONE: the agent's child */
	uint32_t pid, pgid, sid; /* as inside */
	uint32_t tty; /* object: its controlling terminal's slave, or MEM_NONE */
	int32_t status; /* MEM_ZOMBIE: as wait4 returns it */
	uint32_t exec; /* which of MEM_S_EXEC it belongs to, or MEM_NONE: joins that one's group */
	uint32_t uid[4], gid[4]; /* real, effective, saved, filesystem; as inside */
	struct mem_span groups; /* u32 each */
	uint64_t caps[5]; /* inheritable, permitted, effective, bounding, ambient */
	uint32_t umask, oom_score_adj;
	uint32_t flags; /* MEM_PROC_* */
	uint32_t exe, cwd, root; /* MEM_S_FILE; root is MEM_NONE when it is the sandbox's own */
	char comm[16];
	uint64_t mm[12]; /* start_code … env_end, brk, in the order of struct prctl_mm_map */
	struct mem_span auxv;
	struct mem_range thread, vma, fd, action, timer;
	uint64_t itimer[3][4]; /* REAL, VIRTUAL, PROF: interval s, µs, value s, µs */
	uint64_t rlimit[16][2];
	struct mem_span pending; /* signals queued for all of it: siginfo_t, 128 bytes each */
	/* (u64 start, u64 end)*: guard pages, whose access is fatal (MADV_GUARD_INSTALL), by address */
	struct mem_span guards;
	uint32_t exit_signal; /* what its parent gets when it ends */
	uint32_t stop_signal; /* MEM_PROC_STOPPED: not 0 while its parent was not notified of the stop */
	uint32_t loginuid; /* as inside; MEM_NONE: as the agent has it */
	/* pid inside of the process whose descriptors (CLONE_FILES) or folders and umask (CLONE_FS) it shares; 0: its own */
	uint32_t files, folders;
	uint32_t pkeys; /* memory protection keys that it was given: 1 << key */
};
#define MEM_PROC_DUMPABLE 1U
#define MEM_PROC_SUBREAPER 2U
#define MEM_PROC_NO_NEW_PRIVS 4U
#define MEM_PROC_THP_DISABLE 8U
#define MEM_PROC_STOPPED 16U /* by a job control signal */
#define MEM_PROC_BARRIER(i) (32U << (i)) /* registered for membarrier(): mem_barriers[i] */
#define MEM_PROC_CONTINUED 512U /* after a stop, and its parent was not notified of that yet */

struct mem_thread {
	uint32_t tid, flags;
	char comm[16];
	uint64_t sigmask;
	uint64_t tid_address, robust_list, robust_len;
	uint64_t rseq, rseq_sig, rseq_len;
	uint64_t altstack[3]; /* address, flags, size */
	uint64_t tls[2]; /* x86: fs, gs base; aarch64: tpidr_el0, tpidr2_el0 */
	struct mem_span regs; /* NT_PRSTATUS, system call restart already seen to */
	struct mem_span fp; /* x86: NT_X86_XSTATE; aarch64: NT_PRFPREG */
	struct mem_span extra; /* aarch64: (u32 note, u32 len, bytes)*: SVE, PAC keys */
	struct mem_span pending; /* as above, for this thread */
	uint32_t sched_policy, sched_priority;
	int32_t nice;
	uint32_t sched_reset; /* 1: children begin with the default policy */
	uint64_t cpus[MEM_CPU_WORDS]; /* it may run on, as numbered by the host */
	uint64_t setting[MEM_SETTINGS_MAX]; /* mem_settings[] */
	uint64_t caps[3]; /* inheritable, permitted, effective; all of them permitted to its process */
};

enum mem_vma_kind {
	MEM_VMA_ANON,
	MEM_VMA_FILE, /* a private mapping of ->file */
	MEM_VMA_FILE_SHARED, /* read-only, or of a file only this sandbox has: ->file */
	MEM_VMA_SHMEM, /* shared and anonymous, or of a memfd: ->object */
	MEM_VMA_VDSO, /* moved to where it was, not mapped */
	MEM_VMA_VVAR,
	MEM_VMA_OBJECT, /* a private mapping of ->object: a memfd, or a file that is not part of the checkpoint */
	/* System V shared memory ->object; ->flags MAY_WRITE: attached for writing. Its mappings are adjacent */
	MEM_VMA_SYSV,
};

struct mem_vma {
	uint64_t start, end;
	uint32_t kind, prot; /* PROT_* */
	uint32_t flags; /* MEM_VMA_GROWSDOWN … */
	uint32_t file, object; /* or MEM_NONE */
	uint32_t advice; /* MEM_VMA_* that madvise sets */
	uint64_t offset; /* in the file or object */
	struct mem_range run;
	struct mem_span name; /* of anonymous memory (PR_SET_VMA_ANON_NAME), without NUL; nothing: it has none */
};
#define MEM_VMA_GROWSDOWN 1U
#define MEM_VMA_LOCKED 2U
#define MEM_VMA_NORESERVE 4U
#define MEM_VMA_HEAP 8U /* the brk area */
#define MEM_VMA_DONTFORK 16U /* advice: */
#define MEM_VMA_WIPEONFORK 32U
#define MEM_VMA_HUGEPAGE 64U
#define MEM_VMA_NOHUGEPAGE 128U
#define MEM_VMA_DONTDUMP 256U
#define MEM_VMA_RANDOM 512U
#define MEM_VMA_SEQUENTIAL 1024U
#define MEM_VMA_MERGEABLE 2048U
#define MEM_VMA_ONFAULT 4096U /* with LOCKED: pages that are there (MLOCK_ONFAULT) */
#define MEM_VMA_DROPPABLE 8192U /* MAP_DROPPABLE, which brings its own advice */
#define MEM_VMA_MAY_WRITE 16384U /* shared, of a file that was opened for writing */
#define MEM_VMA_KEY_SHIFT 24U /* from there: its memory protection key, one of ->pkeys; 0: none */
#define MEM_PKEYS 16U
#define MEM_VMA_NAME_MAX 79U

/* Pages that are not what the mapping would have by itself (zeros, or its file's). */
struct mem_run {
	uint64_t start, len; /* addresses, whole pages; for MEM_OBJ_SHMEM: offsets */
	uint32_t file, zero; /* which pages file */
	uint64_t off; /* there */
};

struct mem_fd {
	uint32_t num, object;
	uint32_t cloexec, zero;
};

enum mem_object_kind {
	MEM_OBJ_FILE, /* a regular file or folder: ->file, ->pos */
	/* one end; both ends have the same ->pair. ->a capacity; ->b whose it is; the read end (first) holds ->data */
	MEM_OBJ_PIPE,
	MEM_OBJ_FIFO, /* a named one: as PIPE, and ->file; ->b 1: a reader that no writer has come to yet */
	MEM_OBJ_EVENTFD, /* ->a counter, ->b 1: semaphore */
	MEM_OBJ_EPOLL, /* ->watch */
	MEM_OBJ_TIMERFD, /* ->a clock, ->b flags, ->data: struct itimerspec, u64 ticks */
	MEM_OBJ_SIGNALFD, /* ->a mask */
	MEM_OBJ_INOTIFY, /* ->data: (u32 wd, u32 mask, u32 file)* */
	MEM_OBJ_PTMX, /* a master: ->a index; ->data: struct mem_pty, then what can be read from it */
	MEM_OBJ_PTS, /* a slave: ->a index; ->b 1: it was hung up, since its master is closed */
	MEM_OBJ_DEV, /* ->file: /dev/null and other nodes without state */
	MEM_OBJ_PROC, /* ->file: below /proc or /sys, opened again */
	/*
	 * memfd, or what is mapped shared and anonymous: ->a size, ->b seals, ->run; name in ->data; ->pair: same number, same
	 * memory; ->file: its struct mem_node, or MEM_NONE
	 */
	MEM_OBJ_SHMEM,
	MEM_OBJ_SOCKET, /* ->data: mem_socket and what follows it; ->pair by its state */
	/* ->a pid inside; 0: it has ended and was waited for. Then ->b is its status, and ->pair is the same for the same process */
	MEM_OBJ_PIDFD,
	/* the agent has the other end: ->a exec's id, ->b enum mem_role. MEM_TTY (a slave): ->data: mem_pty, or nothing */
	MEM_OBJ_EXTERNAL,
	MEM_OBJ_SYSV, /* no descriptor: ->data: struct mem_sysv; shared memory: ->a size, ->run */
};

enum mem_role { MEM_STDIN, MEM_STDOUT, MEM_STDERR, MEM_TTY, MEM_WARM };

struct mem_object {
	uint32_t kind;
	uint32_t flags; /* O_* as F_GETFL returns them */
	uint32_t file, pair;
	uint64_t pos;
	uint64_t a, b;
	uint32_t owner_type, owner_pid; /* F_SETOWN_EX */
	uint32_t owner_sig, zero;
	struct mem_range watch, run;
	struct mem_span data; /* for queues: (u32 len, bytes)* when messages have borders, else bytes */
};

/* ->b of a pipe: its owner, as inside, and its mode */
#define MEM_PIPE_OWNER(uid, gid, mode) ((uint64_t)(uid) << 40 | (uint64_t)(gid) << 16 | ((mode)&07777))
#define MEM_PIPE_ID_MAX 0xffffffU
#define MEM_PIPE_UID(b) ((uint32_t)((b) >> 40))
#define MEM_PIPE_GID(b) ((uint32_t)((b) >> 16) & MEM_PIPE_ID_MAX)
#define MEM_PIPE_MODE(b) ((uint32_t)(b)&07777)

#define MEM_PTYS 64U /* terminals have numbers below */

struct mem_pty {
	uint32_t iflag, oflag, cflag, lflag, ispeed, ospeed;
	uint16_t rows, cols, xpixel, ypixel;
	uint32_t foreground; /* group, as inside; 0: none */
	uint32_t locked, packet;
	uint8_t line, cc[19];
	uint32_t uid, gid, mode; /* of its slave's node, as inside */
	uint32_t exclusive;
};

enum mem_socket_state {
	MEM_SOCK_UNBOUND,
	MEM_SOCK_BOUND,
	MEM_SOCK_LISTEN,
	MEM_SOCK_RESET, /* TCP: was connected to a process outside, and finds the connection reset */
	/* TCP and unix, both ends are inside: they have the same ->pair. An end without a second one: that one was closed. */
	MEM_SOCK_PAIR,
	MEM_SOCK_PENDING, /* connected to the listener ->pair, which has not accepted it yet. No byte was sent */
	/* TCP: the connection has ended, and is not an error; ->data may hold what can still be read */
	MEM_SOCK_CLOSED,
};
#define MEM_SOCK_SHUT_READ 1U
#define MEM_SOCK_SHUT_WRITE 2U
#define MEM_SOCK_FILTER_LOCKED 1U
#define MEM_SOCK_NAMED 2U /* unix: the file at its path is its own; else it was removed, or is another's */
#define MEM_SOCK_PEER 4U /* unix datagrams: connected to the object ->pair */
#define MEM_SOCK_TWO 8U /* unix datagrams: and that one to this: both were made together */
#define MEM_SOCK_UNHEARD 16U /* unix: the other end was closed before it had read everything */
#define MEM_SOCK_CONNECTING 32U /* TCP: connect() has made the connection, and may not have returned yet */
#define MEM_SOCK_FLAGS 63U

struct mem_socket {
	uint32_t family, type, protocol;
	uint32_t state; /* enum mem_socket_state */
	uint32_t backlog, shutdown; /* MEM_SOCK_SHUT_* */
	uint32_t uid, gid; /* whose it is, as inside */
	uint32_t addr_len, peer_len; /* peer: a connected one's; 0: none */
	uint32_t options, filter; /* bytes of each, behind this */
	uint32_t flags; /* MEM_SOCK_FILTER_LOCKED … */
	uint32_t order; /* MEM_SOCK_PENDING: among those of its listener */
	uint32_t cred[4]; /* unix, SO_PEERCRED: pid inside or 0, user, group; [3] 1: it has that */
	uint8_t addr[128], peer[128]; /* as getsockname and getpeername return them */
	/* then a list of options (proto/socket_option.h); a classic BPF program; what can be read: bytes of TCP, else messages */
	/* a unix socket whose path is relative: ->file of the object is the folder it is relative to */
};

/* One message of a queue, or a piece of a unix stream: then the sender's address, objects (u32 each), and the bytes. */
struct mem_message {
	uint32_t len, addr_len, objects, zero;
};

struct mem_watch {
	uint32_t fd_num; /* as it was registered */
	uint32_t object;
	uint32_t events, flags; /* MEM_WATCH_* */
	uint64_t data;
};
#define MEM_WATCH_TOLD 1U /* it is ready, but that was reported already: edge-triggered, or once and not armed again */
#define MEM_WATCH_ALL 0x201fU /* EPOLLIN, PRI, OUT, ERR, HUP, RDHUP */

enum mem_lock_kind {
	MEM_LOCK_FLOCK, /* the open file's: flock() */
	MEM_LOCK_OFD, /* the open file's, of a range: F_OFD_SETLK */
	MEM_LOCK_POSIX, /* the process's, of a range: F_SETLK */
	MEM_LOCK_LEASE, /* the open file's: F_SETLEASE */
	/* a lease that is being broken: ->type as it was; ->start 1: down to a read lease, 0: to none */
	MEM_LOCK_BREAKING,
};

struct mem_lock {
	uint32_t kind, type; /* 0: to read, 1: to write */
	uint32_t object, pid; /* ->pid: a process that has the object open, which takes the lock */
	uint64_t start, len; /* POSIX and OFD; ->len 0: up to the end, wherever that is */
};

struct mem_action {
	uint64_t handler, flags, restorer, mask;
};

struct mem_timer {
	uint32_t id, clock;
	uint32_t notify, signo;
	uint64_t value; /* sigev_value */
	uint64_t interval_s, interval_ns, value_s, value_ns;
	uint32_t tid, overrun;
};

/* An exec that had not ended. The agent has it again, with new pipes or a new terminal, as if it had come back to it. */
struct mem_exec {
	uint32_t id, pid;
	uint32_t flags; /* MEM_EXEC_* */
	uint32_t tty; /* index of its terminal, or MEM_NONE */
	uint32_t rows, cols;
	uint32_t pipe_flags[3]; /* what the descriptors of stdin, stdout, stderr can hold, 0 = not there */
	uint32_t zero;
	/* what lay in its stdin, stdout, stderr pipes; for a terminal [1] is what it had said */
	struct mem_span queued[3];
};
#define MEM_EXEC_TTY 1U
#define MEM_EXEC_STDIN 2U
#define MEM_EXEC_WARM 4U

struct mem_file {
	struct mem_span path; /* absolute, inside, without NUL */
	uint64_t size, mtime_ns;
	uint32_t mode, flags; /* st_mode; 1: its content matters (it is mapped) and must be the same; MEM_FILE_UPPER */
	uint32_t node, zero; /* where the image has it itself, or MEM_NONE */
	/* st_ino of a file of the sandbox's own that is open, which is kept where that is possible; 0: any will do */
	uint64_t ino;
};
#define MEM_FILE_UPPER 2U /* with ->ino: it is in the writable layer. Its copy in a layer has another number */

/*
 * A file that is not part of the layer: below /dev/shm, or open and removed. Made before anything is opened; one without a
 * name loses it again when everything is.
 */
struct mem_node {
	uint32_t mode, flags; /* st_mode; MEM_NODE_* */
	uint32_t uid, gid; /* as inside */
	uint32_t file; /* its name; MEM_NONE: of a memfd, whose object has the content */
	uint32_t link; /* a regular file: the node it is another name of, or MEM_NONE */
	uint64_t size, atime_ns, mtime_ns;
	struct mem_span xattrs; /* (u32 length of name, u32 of value, name, value)*, only user.* */
	struct mem_span target; /* of a symbolic link */
	struct mem_range run;
};
#define MEM_NODE_REMOVED 1U
#define MEM_NODE_LINKABLE 2U /* it never had a name (O_TMPFILE), and may be given one */
#define MEM_NODE_ROOM "/dev/shm/" /* where those with a name are */

/*
 * A connection to the outside that is reset in the copy, or a UDP socket that lost datagrams from outside. These records
 * are only reported to the caller, not restored. For a socket of several processes, the first process is recorded.
 */
struct mem_cut {
	uint32_t pid, fd; /* as inside */
	uint32_t family, protocol;
	uint16_t local_port, remote_port;
	uint32_t unread; /* UDP: datagrams that had come and were not read */
	uint8_t local[16], remote[16]; /* IPv4: the first four bytes */
	char comm[16];
};

/* A meta file as read into memory or mapped, checked. */
struct mem_image {
	const struct mem_head *head;
	const struct mem_proc *proc;
	const struct mem_thread *thread;
	const struct mem_vma *vma;
	const struct mem_run *run;
	const struct mem_fd *fd;
	const struct mem_object *object;
	const struct mem_watch *watch;
	const struct mem_action *action;
	const struct mem_timer *timer;
	const struct mem_exec *exec;
	const struct mem_file *file;
	const struct mem_lock *lock;
	const struct mem_node *node;
	const struct mem_cut *cut;
	const uint8_t *bytes;
	uint32_t n[MEM_SECTIONS];
};

/* Checks all of @len bytes at @data (8-aligned). 0, or -EBADMSG with the reason. */
int mem_check(const void *data, size_t len, struct mem_image *ret, struct err *e);
/* Whether all of its fields can be. */
bool mem_cut_ok(const struct mem_cut *x);
/* Parts of that: whether bytes are there, and whether a socket is one. */
bool mem_span_ok(const struct mem_image *m, struct mem_span s);
bool mem_socket_ok(const struct mem_image *m, const struct mem_object *o);
/* SHA-256 as in ->host, of the machine we run on. */
int mem_host(uint8_t out[32], struct err *e);

static_assert(sizeof(struct mem_head) == 8 + 16 + 24 + 32 + MEM_PAGE_FILES * 32 + 24 + MEM_SECTIONS * 16, "no padding");
static_assert(sizeof(struct mem_vma) == 72 && sizeof(struct mem_run) == 32 && sizeof(struct mem_fd) == 16,
	      "no padding");
static_assert(sizeof(struct mem_pty) == 80, "no padding");
static_assert(sizeof(struct mem_socket) == 328, "no padding");
static_assert(sizeof(struct mem_action) == 32 && sizeof(struct mem_watch) == 24, "no padding");
static_assert(sizeof(struct mem_cut) == 72, "no padding");
static_assert(sizeof(struct mem_lock) == 32 && sizeof(struct mem_node) == 88, "no padding");
