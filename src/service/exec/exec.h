/*
 * A command in a sandbox. Its output comes through pipes the daemon holds (and the agent, too, so that they outlive
 * us). It is either kept in spools, or passed straight on to one reader, which then sets the pace.
 */
#pragma once
#include "base/id.h"
#include "driver/verdict.h"
#include "service/sandbox/sandbox.h"
#include "service/exec/digest.h"
#include "base/mask.h"
#include "service/exec/spool.h"

enum exec_scope { EXEC_PROCESS, EXEC_GROUP, EXEC_TREE };
enum exec_state {
	EXEC_WAITING, /* for its row, its group, or the agent's word */
	EXEC_FOUND, /* after a restart, or in a memory image: the agent has not named it so far */
	EXEC_STARTED,
	EXEC_EXITED, /* or it never will be started: what it said is still being read */
	EXEC_JUDGING, /* its sandbox is asked what it has used: a limit may have ended it */
	EXEC_ENDING, /* its result is there, and is being stored */
	EXEC_ENDED, /* stored, and told */
	EXEC_ORPHANED, /* nobody has it any more but a worker: freed when that is done */
};
enum exec_stream { EXEC_OUT, EXEC_ERR };

struct exec_sink;
struct exec_watch;

struct stream {
	struct exec *exec;
	enum exec_stream which;
	int fd; /* -1 = closed */
	uv_poll_t *poll;
	bool eof, polling;
	bool drained; /* after the exit: what was there then has been read */
	bool late; /* it exited while something was being written: to be looked at then */
	uint64_t left; /* after the exit: bytes to be read still */
	unsigned full; /* reads that filled the buffer */
	struct digest digest; /* of everything it said, as it is told */
	struct mask_stream *mask; /* what is left out of it; NULL: nothing, the sandbox has no secrets */
	bool muted; /* it could not be masked any more: nothing is told */
	struct spool spool;
};

struct exec {
	struct exec *next; /* of the sandbox, newest first */
	struct exec *kept_next, **kept_prev; /* of those that have ended and whose output is in memory, oldest first */
	size_t kept;
	struct exec *history_next, **history_prev; /* of the tenant's, oldest first: service/exec/kept.c */
	size_t history, pending, stdin_held; /* bytes that count for the tenant */
	struct sandbox *sandbox;
	char id[ID_SIZE];
	uint32_t number;
	struct exec_request *request;
	struct who who;
	enum exec_state state; /* written by exec_set_state() alone */
	bool started; /* it was so at some time */
	struct stream stream[2];
	int in; /* host's end of stdin, or a copy of the terminal's master, which is stream[0].fd; -1 = closed */
	uv_poll_t *in_poll;
	struct buf in_queue;
	bool in_closing;
	/* What was asked for before it was started: a signal (0 = none), another size of its terminal. */
	int early_signal;
	enum exec_scope early_scope;
	bool resized;
	uv_timer_t *timer;
	uint64_t deadline_ns, left_ns; /* monotonic; left while paused */
	uint64_t group_no; /* 0 = none */
	uint64_t started_ns, ended_ns, started_mono, ended_mono;
	bool timed_out, cpu_out, killed, lost, failed; /* why it ended; may be several */
	bool revived; /* of a memory image, and not named by its agent so far */
	char was[ID_SIZE]; /* the id it had in the sandbox it was first in, "" = this is it */
	bool sandbox_replaced; /* the sandbox it ran in was replaced: there is nobody to tell */
	bool warm; /* a warm process that is ready */
	bool adopted; /* it was FOUND, or is */
	bool joined; /* then: somebody came back to it, and had seen so much that went straight to them */
	uint64_t seen[2];
	bool seen_in_sync; /* named by the agent, since it was last asked what it has */
	bool stored; /* has a row */
	bool row_pending; /* gets one soon */
	struct exec *unwatched_next;
	/* Ended, but somebody still holds its stdout: read and thrown away, so that it is not killed by SIGPIPE. */
	bool draining;
	struct frame_exited exit;
	struct err fail; /* why it did not start */
	struct verdict verdict;
	uint64_t oom_base, kernel_base, pids_base, cpu_base;
	uint64_t net_base; /* what its sandbox had moved over the network when it began */
	uint64_t memory_peak;
	struct exec_sink *sink;
	struct exec_watch *watches;
	bool held; /* the sink does not want more now */
	unsigned refs;
	/* The row is stored, then EXEC is sent; its end is stored, then those who wait are told. */
	struct turn_wait wait;
};

/*
 * Starts it; takes @request over. On success *ret is there, referenced for the caller, and EXEC is under way: failing to
 * start is an end like another, with ->failed and ->fail.
 */
int exec_new(struct sandbox *b, const struct who *who, struct exec_request *request, struct exec_sink *sink,
	     struct exec **ret, struct err *e);
struct exec *exec_find(struct sandbox *b, const char *id, struct err *e); /* not referenced */
void exec_ref(struct exec *x);
void exec_unref(struct exec *x);

/* A reader that gets everything as it comes. One, and only from the start. */
struct exec_sink {
	void (*data)(void *arg, enum exec_stream s, const char *p, size_t len); /* good during the call */
	void *arg;
};
void exec_hold(struct exec *x); /* no more data until exec_go */
void exec_go(struct exec *x);
void exec_leave(struct exec *x); /* the sink goes; what comes is kept from now on */

/*
 * Somebody who wants to know that there is more, or that it started or ended. They read the spools at their own pace.
 */
struct exec_watch {
	struct exec_watch *next, **prev;
	void (*fn)(void *arg, struct exec *x); /* may remove any watch */
	void *arg;
};
void exec_watch(struct exec *x, struct exec_watch *w, void (*fn)(void *arg, struct exec *x), void *arg);
void exec_unwatch(struct exec_watch *w);

const char *exec_state_name(enum exec_state s);
bool exec_may_become(enum exec_state from, enum exec_state to);
/* It does not run any more. */
static inline bool exec_has_exited(const struct exec *x)
{
	return x->state >= EXEC_EXITED;
}
/* Everything it said has been read, and its end is stored. */
bool exec_over(const struct exec *x);
bool exec_started(const struct exec *x); /* a terminal is there; others: EXEC was sent */

/* -EPIPE when stdin is not open, -EAGAIN when 1 MiB waits: try again after ->watch is called. */
int exec_write(struct exec *x, const char *data, size_t len, struct err *e);
size_t exec_write_queued(const struct exec *x);
void exec_close_stdin(struct exec *x);
int exec_resize(struct exec *x, uint32_t rows, uint32_t cols, struct err *e);
int exec_signal(struct exec *x, int sig, enum exec_scope scope, struct err *e);
int signal_parse(const char *text); /* "TERM", "SIGTERM", "15"; -EINVAL */

/* The result as JSON fields inside an open object; @output: stdout and stderr too, within the limit. */
int exec_write_result(struct exec *x, bool output, struct json *j);
/* Only stdout and stderr, and how many bytes of each were left out. */
int exec_write_output(struct exec *x, struct json *j, uint64_t ret_dropped[2]);

/* From the sandbox. */
void exec_frame(struct sandbox *b, const struct frame *f, int *fds, size_t nfds);
void exec_group_came(struct sandbox *b, int r, const struct err *e);
/* Who may change /usr can do so now, or r < 0: it cannot be had. */
void exec_system_came(struct sandbox *b, int r, const struct err *e);
/*
 * Of all pipes and terminals, without a word: the agent has them, too, and gives them back when asked. Until exec_take_up they
 * are not taken: what is in a pipe when it is copied must not be read as well. A worker may still be at one: see exec_any_read.
 */
void exec_let_go(struct sandbox *b);
void exec_take_up(struct sandbox *b, bool ask);
/* Whether a worker takes something out of a pipe, or is about to, or writes down what it took. */
bool exec_any_read(const struct sandbox *b);
/* They are read from now on, or when ->turning is over. */
void exec_read_all(struct sandbox *b);
/* Whether one waits to be started, or has ended and not everything it said was read. */
bool exec_any_between(const struct sandbox *b);
void exec_clock(struct sandbox *b, bool stop);
/* Found again after a restart. */
int exec_load(struct sandbox *b, const struct exec_row *row, struct err *e);
void exec_expect(struct sandbox *b); /* it was asked which it still has */
void exec_sync(struct sandbox *b); /* asks the agent which it still has */
/* It has told all; false: that does not count, and it is asked again. */
bool exec_synced(struct sandbox *b);
/* Which ran at some moment since @since_ns, as JSON: for exec_revive in a sandbox from its memory. */
int exec_save(const struct sandbox *b, uint64_t since_ns, struct buf *to);
/* They get rows, and wait for the agent to name them. Old ones of the same numbers go. */
int exec_revive(struct sandbox *b, const char *saved, struct err *e);
/* Those that were not named are forgotten. */
void exec_revived(struct sandbox *b);
/* Rows for those that run for longer than a moment. */
void exec_store_running(struct service *s);
/* Old spools and the memory of old output, once in a while. */
void exec_prune(struct service *s, uint64_t now_ns);
