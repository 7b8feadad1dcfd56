/*
 * The agent's table of what it has started, in memory that it shares with the warden (place 9 of KEEP). cloche-dump needs
 * it to know which process is the first of an exec, and which descriptors of the agent are the host's ends of its pipes.
 * The warden makes and seals it, so that it never shrinks under a reader; only the agent writes to it, except ->ahead.
 *
 * It is read while the agent is frozen, so it can be read plainly, once ->busy has been looked at: it is odd while the
 * agent does something (a process may then be started and not be in here yet, a descriptor closed and still be in
 * here). A reader that finds it odd lets the agent continue and tries again. The agent's bytes are not trusted:
 * table_read() checks them.
 */
#pragma once
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_MAGIC 0x3142542dU
#define TABLE_EXECS 512
#define TABLE_WORKERS 64
#define TABLE_FDS 5 /* indexed by enum mem_role: stdin, stdout, stderr, the terminal's master, the warm socket */

#define TABLE_USED 1U
#define TABLE_KEEP 2U /* it is kept until it is released; else its descriptors are not the agent's, and -1 here */
#define TABLE_TTY 4U
#define TABLE_STDIN 8U /* it was started with a stdin that is kept; closed since, when ->fd[0] is -1 */
#define TABLE_ENDED 16U /* and not yet released: ->pid is 0 */
#define TABLE_WARM 32U /* it was started by a warm process */
#define TABLE_WARM_HOST 64U /* it is one */
#define TABLE_FLAGS 127U

struct table_exec {
	uint32_t id; /* as frames name it; those of execs that are not kept may come twice */
	uint32_t pid; /* inside; the leader of its own session */
	uint32_t flags; /* TABLE_*; 0: this place is free, and the rest means nothing */
	int32_t fd[TABLE_FDS]; /* the agent's own numbers of the host's ends; -1 = none */
};

struct table {
	uint32_t magic, busy;
	uint32_t ahead; /* written by the warden: KEEP came ahead, and the sandbox has no owner yet */
	uint32_t zero[13];
	uint32_t worker[TABLE_WORKERS]; /* processes that serve files, pids inside; 0 = none */
	struct table_exec exec[TABLE_EXECS];
};
static_assert(sizeof(struct table_exec) == 32 && sizeof(struct table) == 64 + 256 + 512 * 32, "no padding");

/* A new, sealed one, all zeros. A descriptor, or -errno. */
int table_new(void);
/* ->ahead: 0 or -errno; 0, 1 or -errno. */
int table_set_ahead(int fd, bool ahead);
int table_ahead(int fd);
/* Whether @fd is one, by seals and size. */
int table_is(int fd);
/*
 * Reads and checks all of it. -EAGAIN: the agent is busy. -EBADMSG: it makes no sense (also as long as the agent has
 * not heard KEEP).
 */
int table_read(int fd, struct table *ret);
