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

#define RESTORE_VDSO_MAX 8 /* number of mappings: vvar, its pages for virtual clocks, vdso */

struct restore_proc {
	bool asks; /* it refers to other processes by their ids, so these have to exist first */
	uint64_t area, area_len; /* where it has the code of blob.c; the process writes this to ->places itself */
};

struct restore_node {
	int fd, folder; /* the file and its folder, while the file is made */
	bool made; /* it exists as ->name in ->folder */
	struct stat was; /* the folder's attributes before the file was made */
	char name[256];
};

struct restore_vdso {
	uint64_t start, len;
};

struct restore {
	struct agent *agent;
	const struct frame_restore *frame; /* the RESTORE frame; NULL before it has come */
	struct frame_restore told; /* the frame that came before its request, to compare with the later one */
	bool held; /* the processes were made before the request */
	struct mem_image m;
	const void *meta;
	size_t meta_len;
	struct stat meta_was, pages_was[MEM_PAGE_FILES]; /* attributes of the files before they were read */
	struct rlimit lim; /* the agent's own limit of descriptors */
	int base; /* descriptors below this number belong to the processes, all others to the agent */
	int pages[MEM_PAGE_FILES];
	int *groups; /* the control groups of execs; NULL: none */
	int *file; /* for each MEM_S_FILE: a descriptor to map or enter; -1: not needed */
	int *object; /* for each MEM_S_OBJECT: a descriptor; -1: each process opens it itself */
	uint8_t *file_need; /* for each MEM_S_FILE: NEED_* */
	struct restore_node *node; /* for each MEM_S_NODE */
	bool opened; /* restore_open() was done */
	struct sock_filter *filter;
	size_t filter_len;
	struct blob_shared *shared;
	uint64_t shared_len; /* length of ->shared in whole pages, which ends the area of each process */
	uint64_t *places; /* in shared memory: two numbers for each process, its area and the length of that */
	struct restore_proc *proc;
	struct mem_plan *plan; /* which process starts which */
	struct stash *stash; /* the holder's pages, if this image is the one that was held; or NULL */
	struct restore_vdso vdso[RESTORE_VDSO_MAX];
	unsigned n_vdso;
	uint32_t threads; /* number of threads in all */
	uint32_t phases; /* number of barriers; see restore_plan() */
	uint32_t done; /* what was renewed: FRAME_RESTORED_* */
	uint32_t help; /* the process whose memory the agent helps to fill (help.h), or MEM_NONE */
	int help_sock[2]; /* sockets between the agent and that process */
	struct agent_exec *exec; /* AGENT_EXECS_MAX places: the execs of the image, which become the agent's */
	struct err *e;
};
#define NEED_READ 1U
#define NEED_WRITE 2U
#define NEED_PATH 4U

static inline const void *restore_bytes(const struct restore *r, struct mem_span s)
{
	return r->m.bytes + s.off;
}

/* In a process: stores the failure for the agent, and ends. */
_Noreturn void restore_die(const struct restore *r, uint32_t proc, enum restore_what what, int error, uint32_t detail);
/* Moves @fd to the agent's range of numbers, close-on-exec; closes the old number. */
int restore_high(const struct restore *r, int fd);

/* restore.c: finds where the kernel has mapped the vdso in this process. */
int restore_find_vdso(struct restore *r, struct err *e);
/* number.c: gives files that are to be opened the inode numbers that they had. */
void restore_numbers(struct restore *r);
/* open.c: files by path, each opened as the user that had it. */
int restore_open(struct restore *r, struct err *e);
/* Whether all files that are mapped are unchanged, and still have a name. */
bool restore_unchanged(struct restore *r);
/* Renews what must differ between two sandboxes, as far as SETUP has not done that. */
int restore_renew(struct restore *r, struct err *e);
/* object.c: everything else that a descriptor can be. */
int restore_objects(struct restore *r, struct err *e);
/* ended.c: object @i is a pidfd of a process that has ended; makes it, and all others of that process. */
int restore_ended(struct restore *r, uint32_t i);
/* Sockets. socket.c: TCP and UDP; netlink.c; unix.c. */
int restore_sockets(struct restore *r, struct err *e);
int restore_netlinks(struct restore *r, struct err *e);
int restore_unix(struct restore *r, struct err *e);
bool restore_is_own(const struct restore *r, const struct mem_object *o); /* whether each process opens it for itself */
/* node.c: makes files that the image contains; restore_settle() later gives them their mode, times and name. */
int restore_nodes(struct restore *r, struct err *e);
int restore_settle(struct restore *r, struct err *e);
int restore_dress(struct restore *r, uint32_t node, int fd); /* sets owner, mode and times of a memfd */
int restore_runs(struct restore *r, struct mem_range range, int to); /* fd.c: writes the content of a file */
/* open.c: runs @fn in a child that has our memory and descriptors, and waits for it. */
int restore_as_user(int (*fn)(void *), void *arg);
/* sysv.c: System V objects; when every process has attached what it had, their owners and modes. */
int restore_sysv(struct restore *r, struct err *e);
int restore_sysv_settle(struct restore *r, struct err *e);
/* In a process: gives it its adjustments of semaphores. */
int restore_sysv_own(const struct restore *r, const struct mem_proc *p);
/* lock.c: in a process: takes its locks, except POSIX ones. */
int restore_locks(const struct restore *r, const struct mem_proc *p);
struct flock restore_flock(const struct mem_lock *k);
/* The lowest descriptor number of @object in the process, or MEM_NONE. */
uint32_t restore_number(const struct restore *r, const struct mem_proc *p, uint32_t object);
/* tty.c: terminals with their old numbers; the pipes of execs, whose other ends the agent keeps. */
int restore_ttys(struct restore *r, struct err *e);
int restore_externals(struct restore *r, struct err *e);
/*
 * tree.c: plans which process starts which; restore_spawn(), in the agent or a process, starts the children of
 * @creator.
 */
int restore_plan(struct restore *r, struct err *e);
int restore_spawn(struct restore *r, uint32_t creator, bool early, uint32_t *ret_failed);
/*
 * Lets new processes have numbers behind those of the image, as in the source. Otherwise the kernel would begin with the lowest ones
 * that are free: a program that compares the ids of ended and new processes would find the same again.
 */
void restore_number_next(const struct restore *r);
/*
 * Whether other processes share its descriptor table. The agent's descriptors in it are closed when all of them are
 * done.
 */
bool restore_shares(const struct restore *r, const struct mem_proc *p);
/* The capabilities that a process gets back: never more than an exec has. */
uint64_t restore_caps(const struct restore *r, const struct mem_proc *p);
uint64_t restore_inheritable(const struct restore *r, const struct mem_proc *p);
/* proc.c: all that a restored process does, from its start. */
_Noreturn void restore_become(struct restore *r, uint32_t i);
/* map.c: writes the list of calls that make its memory, and continues there. */
_Noreturn void restore_enter(struct restore *r, uint32_t i);
/* trace.c: sets registers; restore_let_go() then releases the processes. *ret_proc: the process that failed. */
int restore_finish(struct restore *r, uint32_t *ret_proc, enum restore_what *what);
void restore_let_go(const struct restore *r);
bool restore_all_held(const struct restore *r); /* whether no held process was killed meanwhile */
/* Waits until *word has the value @want. */
int restore_wait(const struct restore *r, uint32_t *word, uint32_t want);
