/* The agent's own state, and its parts. */
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "proto/frame.h"

enum {
	AGENT_CTL = 3, /* the control socket, a unix stream */
	AGENT_DEV = 4, /* a detached mount of the device folder; the null device: AGENT_BASE has it already */
	AGENT_BASE = 5, /* a detached mount of the base folder */
};

/*
 * Below this number are the places of AGENT_*, and of what KEEP brings (enum frame_keep_place). No other descriptor
 * ever gets one of them.
 */
#define AGENT_PLACES_END (FRAME_KEEP_STAT + 1)
static_assert(FRAME_KEEP_SLOT == 4 && FRAME_KEEP_TABLE - FRAME_KEEP_SLOT + 1 == FRAME_KEEP_FDS, "in a row");

#define AGENT_EXECS_MAX 512
#define AGENT_WORKERS_MAX 64
#define AGENT_WARM_MAX 4

struct agent_exec {
	bool used;
	bool keep; /* stays, also when it has ended, until it is released */
	bool tty;
	bool with_stdin; /* with ->keep: it was started with a stdin; ->fds[2] is -1 once that was closed */
	pid_t pid; /* 0 = has ended */
	uint32_t id;
	int fds[3]; /* with ->keep: the host's ends of stdout, stderr and stdin, or the terminal; -1: none */
	int warm; /* our socket to it, if it is a warm process (WARM_HOST); else -1 */
	bool warm_ready; /* the warm process has reported that it is ready */
	bool warmed; /* it was started by a warm process */
	/* warm_stray: messages without a request; warm_late: requests without an answer */
	unsigned warm_stray, warm_late;
	struct frame_exited exited;
	uint64_t oom_base; /* group_view_oom_kills() when it was started */
};

struct agent {
	struct stash *stash; /* pages of a memory image that a holder made this agent with (stash.h); NULL: none */
	struct restore *ahead; /* a restore that was prepared before its request; NULL: none */
	uint64_t cookie; /* lets a call pass our filter (linux/seccomp.h); 0 once any process was started */
	/* a writable /proc/sys/kernel, to choose ids of System V objects; -1 once any process was started */
	int sysctl;
	int landlock; /* Landlock's ABI; 0: not usable here */
	/* the only id that this user namespace maps, plus one, as without root; 0: it maps a range */
	uint32_t single_id;
	/*
	 * for each control group, a line with the host's folder of it, which can be copied until we leave the host's
	 * tree
	 */
	const char *groups_at;
	/* CGROUP_BIT()s of the sandbox's own control groups, and CGROUP_SHOWN_V2; 0: there are none to show */
	uint32_t groups;
	int events; /* a file that counts processes killed by the memory limit; -1: unknown */
	bool up;
	bool host_writable; /* a folder of the host is mounted writable */
	bool began; /* one of the frames that are being served has started a command */
	uint64_t cpu_mask; /* CPUs on which other processes of the sandbox run, preferred for an exec; 0: on all */
	uint64_t cpus[16]; /* all CPUs that the agent was given */
	uint32_t fresh; /* what SETUP has renewed: FRAME_RESTORED_* */
	struct agent_exec execs[AGENT_EXECS_MAX];
	/* places of ->execs from here on were never used, and are not searched: most sandboxes have one or two execs */
	size_t top;
	pid_t workers[AGENT_WORKERS_MAX]; /* ids of file workers; 0: the place is free */
	unsigned warm_hosts; /* number of execs with ->warm */
	uint32_t warm_tag; /* number of the last request to a warm process */
	bool warm_woken; /* WAKE was sent since the last request */
	struct table *table; /* the table of execs, which the host reads; NULL without KEEP */
};

/*
 * Sends a frame on AGENT_CTL. Without KEEP the agent cannot continue without its host, so a failure ends it. With KEEP
 * the frame is dropped, and a host that does not read for long loses its connection.
 */
void agent_send(enum frame_type type, uint32_t id, const void *payload, size_t len, const int *fds, size_t nfds);
void agent_fail(uint32_t id, enum frame_stage stage, int r, uint32_t which);

/* The part that needs no image: namespaces, /proc, /dev, pivot_root, privileges, filter. 0 or -errno with the stage. */
int blank_enter(struct agent *a, enum frame_stage *stage);
/*
 * Shows the sandbox its own control groups (group_view.c). _mount: mounts them in the agent's base, whose path is
 * @base. _attach: moves them into /sys, the folder @sys. _open: opens the file that counts OOM kills, in the sandbox's
 * root.
 */
int group_view_mount(struct agent *a, const char *base);
int group_view_attach(const struct agent *a, int sys);
int group_view_open(struct agent *a);
/* Processes of the sandbox that the memory limit has killed so far; 0 where the kernel does not count them. */
uint64_t group_view_oom_kills(const struct agent *a);
/* Attaches the mounts that need no image to the agent's base. */
int setup_premounts(const struct agent *a, const struct frame_mounts *m, const int *fds, uint32_t *which);
/*
 * Attaches the image and all other mounts, then gives up the capabilities that only this needed. Closes no descriptor.
 */
int setup_apply(struct agent *a, const struct frame_setup *s, const int *fds, enum frame_stage *stage, uint32_t *which);
/* As root, in the image's root: renews what no two sandboxes may share. Returns what was renewed: FRAME_RESTORED_*. */
uint32_t fresh_make(void);
/* Writes /etc/resolv.conf with the address of the sandbox's resolver. Call it before the root becomes read-only. */
int resolver_make(void);
/*
 * Adds lines for the user to /etc/passwd and /etc/group if they have none. Call it before the root becomes read-only.
 */
int etc_make(void);
/* Adds lines for @name and localhost to /etc/hosts if it has none. */
int hosts_make(const char *name);
/* held.c: the execs of this sandbox. */
struct agent_exec *held_free(struct agent *a); /* a free place; NULL: none */
struct agent_exec *held_find(struct agent *a, uint32_t id);
/* Fills the free place @x. Takes over @master, @warm, and those of @fds that are kept, leaving -1 in @fds. */
void held_start(struct agent *a, struct agent_exec *x, uint32_t id, const struct frame_exec *f, pid_t pid, int *fds,
		int master, int warm);
void held_reap(struct agent *a);
void held_release(struct agent *a, uint32_t id);
void held_close_stdin(struct agent *a, uint32_t id);
void held_tell(const struct agent *a); /* sends HELD for each exec, then SYNCED */

/*
 * The host's view of execs and workers (proto/table.h). _put: call it after every change of an exec or worker. _busy
 * and _idle: the agent is busy from the moment it wakes up until all that it began is done.
 */
int table_open(struct agent *a, int fd); /* opens the table that KEEP has brought; the agent is then busy */
void table_busy(struct agent *a);
void table_idle(struct agent *a);
void table_put(struct agent *a, const struct agent_exec *x);
void table_put_worker(struct agent *a, size_t i);

/* What exec_start() has started. */
struct exec_started {
	pid_t pid;
	int master; /* the terminal, or -1 */
	int warm; /* FRAME_EXEC_WARM_HOST: our end of the socket, else -1 */
};
/* Starts a process. The descriptors stay the caller's; those in *ret are the caller's, too. */
int exec_start(struct agent *a, const struct frame_exec *x, const int *fds, struct exec_started *ret,
	       enum frame_stage *stage);
/* The other end of a terminal, close-on-exec. */
int exec_open_slave(int master, int flags);
/* Has a warm process start the exec. */
int warm_start(struct agent *a, const struct frame_exec *x, const int stdio[3], int group, pid_t *ret_pid,
	       enum frame_stage *stage);
/* Makes the two sockets between us and a warm process, whose descriptor 3 is @ret_theirs. */
int warm_pair(int *ret_ours, int *ret_theirs);
/* Lists the execs with ->warm. Returns their number. */
unsigned warm_list(struct agent *a, struct agent_exec *ret[AGENT_WARM_MAX]);
void warm_close(struct agent *a, struct agent_exec *x);
/* Sends WARM_PREPARE or WARM_WAKE (@flag) to a warm process, if there is one. No answer is expected. */
void warm_prepare(struct agent *a, uint32_t flag);
/* Reads what a warm process has sent. Call it when its socket is readable and no request waits for an answer. */
void warm_listen(struct agent *a, struct agent_exec *x);
/*
 * memory_size.c: reads the sandbox's memory from /proc/meminfo; sets that size as a hint for the caller and its
 * children.
 */
int memory_size_read(uint64_t *ret);
int memory_size_hint(uint64_t bytes);
/* Binds the caller and its children to as many CPUs as the sandbox has, the present one among them. */
int exec_pin(const struct agent *a);
/* In a child of the agent: changes to that user. Root keeps some capabilities, other users none. */
int exec_become(const struct agent *a, uint32_t uid, uint32_t gid);
/* As exec_become(), with @n supplementary groups, u32 each. */
int exec_become_with(const struct agent *a, uint32_t uid, uint32_t gid, const void *groups, size_t n);

/* A RESTORE before its request: does the part that can be done early. restore_drop() undoes it. */
void restore_ahead(struct agent *a, const struct frame *f, const int *fds);
void restore_drop(struct agent *a);
/* restore.c: serves RESTORE, which restores the processes of a memory image. RESTORED or FAILED answers. */
void restore_serve(struct agent *a, const struct frame *f, const int *fds);
/* Forgets the cookie, and drops the capabilities that only a restore needs. Call it before the first process starts. */
void agent_forget(struct agent *a);

/* Starts a file worker (files.c). FAILED answers if that is not possible. */
void files_serve(struct agent *a, const struct frame *f, const int *fds);
bool files_ended(struct agent *a, pid_t pid); /* true: @pid was a worker */
