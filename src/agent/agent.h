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
	AGENT_DEV = 4, /* a detached mount of the device folder */
	AGENT_BASE = 5, /* a detached mount of the base folder */
};

/* These two, and what KEEP brings (enum frame_keep_place), are places that nothing else ever gets. */
#define AGENT_PLACES_END (FRAME_KEEP_STAT + 1)
static_assert(FRAME_KEEP_SLOT == 4 && FRAME_KEEP_TABLE - FRAME_KEEP_SLOT + 1 == FRAME_KEEP_FDS, "in a row");

#define AGENT_EXECS_MAX 512
#define AGENT_WORKERS_MAX 64
#define AGENT_WARM_MAX 4

struct agent_exec {
	bool used;
	bool keep; /* stays, also when it has ended, until it is released */
	bool tty;
	bool with_stdin; /* kept; ->fds[2] is -1 once it was closed */
	pid_t pid; /* 0 = has ended */
	uint32_t id;
	int fds[3]; /* kept: stdout, stderr, stdin of the host, or the terminal; -1 = none */
	int warm; /* the socket to it, when it is a warm process (WARM_HOST); else -1 */
	bool warm_ready; /* it has said so */
	bool warmed; /* a warm process has started it */
	/* warm_stray: messages without a request; warm_late: requests without an answer */
	unsigned warm_stray, warm_late;
	struct frame_exited exited;
	uint64_t oom_base; /* group_view_oom_kills() when it was started */
};

struct agent {
	struct stash *stash; /* pages of an image that we were made with (stash.h), or NULL */
	struct restore *ahead; /* made ready for RESTORE, or NULL */
	uint64_t cookie; /* see linux/seccomp.h; 0 once anything has been started */
	/* /proc/sys/kernel as it can be written, for ids of System V objects; -1 once anything has been started */
	int sysctl;
	int landlock; /* ABI, 0 = not usable here */
	uint32_t single_id; /* not 0: the one id this user namespace maps (plus one), as without root */
	/* files of the host in these, a line each: where they can be copied from until we have left its tree */
	const char *groups_at;
	/* CGROUP_BIT()s of the control groups that are the sandbox's own, and CGROUP_SHOWN_V2; 0 = none that we can show */
	uint32_t groups;
	int events; /* counter of processes that the memory limit has killed; -1 = unknown */
	bool up;
	bool host_writable; /* a folder of the host can be written */
	bool began; /* a command, among the frames that are being served */
	uint64_t cpu_mask; /* CPUs on which the other processes of the sandbox run, preferred for an exec; 0 = on all */
	uint64_t cpus[16]; /* that we were given: all */
	uint32_t fresh; /* what SETUP made anew: FRAME_RESTORED_* */
	struct agent_exec execs[AGENT_EXECS_MAX];
	size_t top; /* of ->execs, never used from here on: not looked at, since most sandboxes have one or two */
	pid_t workers[AGENT_WORKERS_MAX]; /* of files; 0 = free */
	unsigned warm_hosts; /* execs with ->warm */
	uint32_t warm_tag; /* of the last request to a warm process */
	bool warm_woken; /* WAKE was sent, and nothing was asked since */
	struct table *table; /* what of this the host sees; NULL without KEEP */
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
 * The sandbox's own control groups (group_view.c): mounts them in the base, which is at @base; moves them into /sys, whose folder is @sys;
 * and opens the file that counts OOM kills, in the sandbox's root.
 */
int group_view_mount(struct agent *a, const char *base);
int group_view_attach(const struct agent *a, int sys);
int group_view_open(struct agent *a);
/* Processes of the sandbox that the memory limit has killed so far; 0 where the kernel does not count them. */
uint64_t group_view_oom_kills(const struct agent *a);
/* Attaches what needs no image, in the base. */
int setup_premounts(const struct agent *a, const struct frame_mounts *m, const int *fds, uint32_t *which);
/* Attaches the image and the rest, then gives up what was only needed for that. Closes no descriptor. */
int setup_apply(struct agent *a, const struct frame_setup *s, const int *fds, enum frame_stage *stage, uint32_t *which);
/* As root, in the image's root: what no two sandboxes may share. What was done: FRAME_RESTORED_*. */
uint32_t fresh_make(void);
/* Writes /etc/resolv.conf with the address of the sandbox's resolver. Call it before the root becomes read-only. */
int resolver_make(void);
/* Lines for the user in /etc/passwd and /etc/group, unless they have some. Before the root is read-only. */
int etc_make(void);
/* A line for @name and for localhost in /etc/hosts, unless it has them. */
int hosts_make(const char *name);
/* The table of execs (held.c). */
struct agent_exec *held_free(struct agent *a); /* NULL: none */
struct agent_exec *held_find(struct agent *a, uint32_t id);
/* Fills a free place; takes what is to be kept out of @fds (-1 stays there), @master and @warm. */
void held_start(struct agent *a, struct agent_exec *x, uint32_t id, const struct frame_exec *f, pid_t pid, int *fds,
		int master, int warm);
void held_reap(struct agent *a);
void held_release(struct agent *a, uint32_t id);
void held_close_stdin(struct agent *a, uint32_t id);
void held_tell(const struct agent *a); /* HELD for each, then SYNCED */

/*
 * The host's view of execs and workers (proto/table.h). Put: after every change of one. Busy: from waking up until
 * nothing is half done any more.
 */
int table_open(struct agent *a, int fd); /* that KEEP brought; is then busy */
void table_busy(struct agent *a);
void table_idle(struct agent *a);
void table_put(struct agent *a, const struct agent_exec *x);
void table_put_worker(struct agent *a, size_t i);

/* What has been started. */
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
/* Has a warm process start it. */
int warm_start(struct agent *a, const struct frame_exec *x, const int stdio[3], int group, pid_t *ret_pid,
	       enum frame_stage *stage);
/* The sockets between us and a warm process: @ret_theirs is its descriptor 3. */
int warm_pair(int *ret_ours, int *ret_theirs);
/* Those there are. */
unsigned warm_list(struct agent *a, struct agent_exec *ret[AGENT_WARM_MAX]);
void warm_close(struct agent *a, struct agent_exec *x);
/* The warm process's socket is readable, and no request waits for an answer. */
void warm_prepare(struct agent *a, uint32_t flag); /* @flag: WARM_PREPARE or WARM_WAKE; no answer is expected */
void warm_listen(struct agent *a, struct agent_exec *x);
/* memory_size.c: the sandbox's memory, as in /proc/meminfo; and a hint of that size for the caller and its children. */
int memory_size_read(uint64_t *ret);
int memory_size_hint(uint64_t bytes);
/* For the caller and its children: as many CPUs as the sandbox has, the one we are on among them. */
int exec_pin(const struct agent *a);
/* For a child of ours: becomes that user, with root's capabilities or none. */
int exec_become(const struct agent *a, uint32_t uid, uint32_t gid);
/* And with more groups, u32 each: those of a process that was root once and chose them. */
int exec_become_with(const struct agent *a, uint32_t uid, uint32_t gid, const void *groups, size_t n);

/* RESTORE (restore.c): the processes of a memory image; RESTORED or FAILED answers. */
/* RESTORE ahead of a request: does the part that can be done early. restore_drop() gives it up. */
void restore_ahead(struct agent *a, const struct frame *f, const int *fds);
void restore_drop(struct agent *a);
void restore_serve(struct agent *a, const struct frame *f, const int *fds);
/* Before the first process starts: the secret and the capabilities that only restoring needs. */
void agent_forget(struct agent *a);

/* Starts a file worker (files.c); FAILED answers when that does not work. */
void files_serve(struct agent *a, const struct frame *f, const int *fds);
bool files_ended(struct agent *a, pid_t pid); /* true: it was a worker */
