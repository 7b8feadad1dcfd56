/*
 * Restoring the processes of a memory image. All files of this folder share one struct; restore.c describes the order
 * of steps. Functions that run in the agent return errors; functions that run in a process to be restored fail by
 * restore_die().
 */
#pragma once
#include "agent/agent.h"
#include "agent/restore/blob.h"
#include "proto/memory.h"
#include "proto/memory_plan.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* What was being done when it failed, in words that follow "process 7 (python3): cannot ". */
#define RESTORE_WHATS(X)                                                                                               \
	X(NOTHING, "be made")                                                                                          \
	X(CLONE, "start it with its original id")                                                                      \
	X(SESSION, "make its session")                                                                                 \
	X(GROUP, "join its process group")                                                                             \
	X(CGROUP, "join its exec's control group")                                                                     \
	X(TTY, "give it its terminal")                                                                                 \
	X(USER, "switch to its user")                                                                                  \
	X(FDS, "install its descriptors")                                                                              \
	X(EPOLL, "register the descriptors it polls")                                                                  \
	X(OWNER, "set up signals for a descriptor")                                                                    \
	X(SYSV, "restore its semaphore adjustments")                                                                   \
	X(LOCK, "lock a file")                                                                                         \
	X(REOPEN, "reopen a file of /proc")                                                                            \
	X(PIDFD, "open a process that it watches")                                                                     \
	X(CWD, "enter its working folder")                                                                             \
	X(SETTINGS, "restore its settings")                                                                            \
	X(AREA, "find room for the restoring code")                                                                    \
	X(VDSO, "move the vdso: this kernel has another one")                                                          \
	X(UNMAP, "switch away from the agent's memory")                                                                \
	X(MAP, "map its memory")                                                                                       \
	X(READ, "read its memory")                                                                                     \
	X(MM, "restore its memory's settings (PR_SET_MM_MAP)")                                                         \
	X(SIGNALS, "restore its signals")                                                                              \
	X(THREAD, "start a thread with its original id")                                                               \
	X(THREAD_SET, "restore a thread's settings")                                                                   \
	X(TIMER, "restore its timers")                                                                                 \
	X(LIMITS, "restore its limits")                                                                                \
	X(CAPS, "drop capabilities")                                                                                   \
	X(FILTER, "install the system call filter")                                                                    \
	X(ZOMBIE, "restore a child that has ended")                                                                    \
	X(STOP, "stop and continue a child")                                                                           \
	X(TRACE, "hold it")                                                                                            \
	X(REGS, "set its registers")                                                                                   \
	X(LEAVE, "remove the restoring code")                                                                          \
	X(WAIT, "be restored in time")                                                                                 \
	X(DIED, "be restored: it was killed")

enum restore_what {
#define X(name, text) RESTORE_##name,
	RESTORE_WHATS(X)
#undef X
		RESTORE_WHAT_COUNT
};

#define RESTORE_VDSO_MAX 8 /* mappings: vvar, its pages for virtual clocks, vdso */

struct restore_proc {
	bool asks; /* for others by their numbers: they have to be there first */
	uint64_t area, area_len; /* where it has its blob; written by itself into ->places */
};

struct restore_node {
	int fd, folder; /* while it is made */
	bool made; /* it has ->name in ->folder */
	struct stat was; /* the folder, before */
	char name[256];
};

struct restore_vdso {
	uint64_t start, len;
};

struct restore {
	struct agent *agent;
	const struct frame_restore *frame; /* not before it has come */
	struct frame_restore told; /* what came ahead, and that is it */
	bool held; /* the processes were made ahead */
	struct mem_image m;
	const void *meta;
	size_t meta_len;
	struct stat meta_was, pages_was[MEM_PAGE_FILES]; /* before anything of them was looked at */
	struct rlimit lim; /* of descriptors, as it was */
	int base; /* all descriptors below are for the processes; ours are from here on */
	int pages[MEM_PAGE_FILES];
	int *groups; /* of execs, NULL: none */
	int *file; /* of MEM_S_FILE, to be mapped or entered; -1 = not needed */
	int *object; /* of MEM_S_OBJECT; -1 = each process opens its own */
	uint8_t *file_need; /* NEED_* */
	struct restore_node *node; /* of MEM_S_NODE */
	bool opened; /* its files */
	struct sock_filter *filter;
	size_t filter_len;
	struct blob_shared *shared;
	uint64_t shared_len; /* in whole pages: the end of each process's area */
	uint64_t *places; /* shared as well: two per process, its area and that one's length */
	struct restore_proc *proc;
	struct mem_plan *plan; /* the process that starts each */
	struct stash *stash; /* what holds its pages already, or NULL */
	struct restore_vdso vdso[RESTORE_VDSO_MAX];
	unsigned n_vdso;
	uint32_t threads; /* of all */
	uint32_t phases; /* how often all have to meet: restore_plan() */
	uint32_t done; /* FRAME_RESTORED_* */
	uint32_t help; /* the process that the agent helps, or MEM_NONE: help.h */
	int help_sock[2]; /* the agent's end and that one's */
	struct agent_exec *exec; /* AGENT_EXECS_MAX: what becomes the table's; ids by MEM_S_EXEC */
	struct err *e;
};
#define NEED_READ 1U
#define NEED_WRITE 2U
#define NEED_PATH 4U

static inline const void *restore_bytes(const struct restore *r, struct mem_span s)
{
	return r->m.bytes + s.off;
}

/* In a process: leaves word for the agent and ends. */
_Noreturn void restore_die(const struct restore *r, uint32_t proc, enum restore_what what, int error, uint32_t detail);
/* Moves @fd to the agent's own range, close-on-exec; closes the old one. */
int restore_high(const struct restore *r, int fd);

/* restore.c: where the kernel has put its own code in this process. */
int restore_find_vdso(struct restore *r, struct err *e);
/* number.c: gives files that are to be opened the inode numbers that they had. */
void restore_numbers(struct restore *r);
/* open.c: files by path, each opened as the user that had it. */
int restore_open(struct restore *r, struct err *e);
/* Whether those that are mapped are still what they were, and have a name. */
bool restore_unchanged(struct restore *r);
/* What must not be the same in two sandboxes, where SETUP has not done it. */
int restore_renew(struct restore *r, struct err *e);
/* object.c: everything else that a descriptor can be. */
int restore_objects(struct restore *r, struct err *e);
/* ended.c: the pidfds of the ended process that object @i is one of. */
int restore_ended(struct restore *r, uint32_t i);
/* socket.c: TCP and UDP; unix.c. */
int restore_sockets(struct restore *r, struct err *e);
int restore_netlinks(struct restore *r, struct err *e);
int restore_unix(struct restore *r, struct err *e);
bool restore_is_own(const struct restore *r, const struct mem_object *o); /* each process opens it for itself */
/* node.c: files of the image's own: made to be opened, then as they were. */
int restore_nodes(struct restore *r, struct err *e);
int restore_settle(struct restore *r, struct err *e);
int restore_dress(struct restore *r, uint32_t node, int fd); /* owner, mode and times of a memfd */
int restore_runs(struct restore *r, struct mem_range range, int to); /* object.c: content */
/* open.c: runs @fn in a child that has our memory and descriptors, and waits for it. */
int restore_as_user(int (*fn)(void *), void *arg);
/* sysv.c: System V objects; when every process has attached what it had, their owners and modes. */
int restore_sysv(struct restore *r, struct err *e);
int restore_sysv_settle(struct restore *r, struct err *e);
/* In a process: what semaphores know of it. */
int restore_sysv_own(const struct restore *r, const struct mem_proc *p);
/* lock.c: in a process: its locks, but for POSIX ones. */
int restore_locks(const struct restore *r, const struct mem_proc *p);
struct flock restore_flock(const struct mem_lock *k);
/* The lowest number that a process has @object under, or MEM_NONE. */
uint32_t restore_number(const struct restore *r, const struct mem_proc *p, uint32_t object);
/* tty.c: terminals with their old numbers; the pipes of execs, whose other ends the agent keeps. */
int restore_ttys(struct restore *r, struct err *e);
int restore_externals(struct restore *r, struct err *e);
/* tree.c: plans which process starts which; then, in the agent or a process, starts those that it has to. */
int restore_plan(struct restore *r, struct err *e);
int restore_spawn(struct restore *r, uint32_t creator, bool early, uint32_t *ret_failed);
/* Whether others share this process's descriptor table: the agent's descriptors in it are closed when all are done. */
bool restore_shares(const struct restore *r, const struct mem_proc *p);
/* What a process may have of the capabilities it had: never more than an exec. */
uint64_t restore_caps(const struct restore *r, const struct mem_proc *p);
uint64_t restore_inheritable(const struct restore *r, const struct mem_proc *p);
/* proc.c: what a process does from its start on. */
_Noreturn void restore_become(struct restore *r, uint32_t i);
/* map.c: the list of calls that make its memory; goes there. */
_Noreturn void restore_enter(struct restore *r, uint32_t i);
/* trace.c: registers, and letting go. *ret_proc is which one failed. */
int restore_finish(struct restore *r, uint32_t *ret_proc, enum restore_what *what);
void restore_let_go(const struct restore *r);
bool restore_all_held(const struct restore *r); /* whether none of them has been killed meanwhile */
/* Waits until *word has the value @want. */
int restore_wait(const struct restore *r, uint32_t *word, uint32_t want);
