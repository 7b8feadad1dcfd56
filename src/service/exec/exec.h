/*
 * A command in a sandbox. Its output comes through pipes the daemon holds (and the agent, too, so that they outlive
 * us). It is either kept in spools, or passed straight on to one reader, which then sets the pace.
 */
#pragma once
#include <sys/types.h>

#include "service/sandbox/sandbox.h"

enum exec_scope { EXEC_PROCESS, EXEC_GROUP, EXEC_TREE };
enum exec_state {
	EXEC_WAITING, /* for its row, its group, or the agent's word */
	EXEC_FOUND, /* after a restart, or in a memory image: the agent has not named it so far */
	EXEC_STARTED,
	EXEC_EXITED, /* or it never will be started: what it said is still being read */
	EXEC_JUDGING, /* its sandbox is asked what it has used: a limit may have ended it */
	EXEC_ENDING, /* its result is there, and is being stored */
	EXEC_ENDED, /* stored, and reported */
	EXEC_ORPHANED, /* only a worker still uses it: freed when that is done */
};
enum exec_stream { EXEC_OUT, EXEC_ERR };

struct exec;
struct exec_row;
struct exec_sink;
struct exec_watch;
struct frame;
struct verdict;

/* The request of an exec in @b, with that sandbox's defaults. */
int exec_request_read(const struct sandbox *b, const json_t *from, struct exec_request **ret, struct err *e);
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
void exec_join(struct exec *x, struct exec_sink *sink); /* one that was found again, of which nothing was read so far */
/* it goes, if it still is the sink; what comes is kept from now on */
void exec_leave(struct exec *x, const struct exec_sink *sink);

/* A watcher is called when there is more output, at the start and at the end. It reads the spools at its own pace. */
struct exec_watch {
	struct exec_watch *next, **prev;
	void (*fn)(void *arg, struct exec *x); /* may remove any watch */
	void *arg;
};
void exec_watch(struct exec *x, struct exec_watch *w, void (*fn)(void *arg, struct exec *x), void *arg);
void exec_unwatch(struct exec_watch *w);

const char *exec_state_name(enum exec_state s);
bool exec_may_become(enum exec_state from, enum exec_state to);
bool exec_has_exited(const struct exec *x); /* it does not run any more */
/* --- what callers see of it: texts are good as long as it is referenced (show.c) --- */

const char *exec_id(const struct exec *x);
const char *exec_context(const struct exec *x); /* JSON: the context whose kernel it is, or NULL */
uint32_t exec_number(const struct exec *x); /* the agent's name for it, and the same in copies */
const struct verdict *exec_verdict(const struct exec *x); /* once it is over */
/* For a kernel, at once behind exec_new(): requests of up to @bytes may wait for it. */
void exec_write_much(struct exec *x, size_t bytes);
/* Those of a sandbox, newest first. Not referenced. */
struct exec *exec_first(const struct sandbox *b);
struct exec *exec_next(const struct exec *x);
const struct err *exec_failure(const struct exec *x); /* why it did not start; NULL: that did not happen */
bool exec_has_tty(const struct exec *x);
/* Whether it is that command, with a terminal, and has not exited. */
bool exec_is_terminal_of(const struct exec *x, const char *const *argv, uint32_t argc);
bool exec_timed_out(const struct exec *x);
int exec_exit_code(const struct exec *x); /* once it is over */
/* Its kept output. See spool_first() and spool_read(); the total is the number of bytes that came. */
uint64_t exec_output_total(const struct exec *x, enum exec_stream s);
uint64_t exec_output_first(const struct exec *x, enum exec_stream s, uint64_t offset);
ssize_t exec_output_read(const struct exec *x, enum exec_stream s, uint64_t offset, char *to, size_t len);
/*
 * Output that went straight to a client before a restart was counted by that client only. Of an exec that was found again, the
 * first client that comes back says with @at how much that was of each stream; @ret is what was said. False: its output was
 * kept from the beginning.
 */
bool exec_rejoin(struct exec *x, const uint64_t at[2], uint64_t ret[2]);
/* Everything it said has been read, and its end is stored. */
bool exec_over(const struct exec *x);
bool exec_started(const struct exec *x); /* a terminal is there; others: EXEC was sent */

/* -EPIPE when stdin is not open, -EAGAIN when 1 MiB waits: try again after ->watch is called. */
int exec_write(struct exec *x, const char *data, size_t len, struct err *e);
size_t exec_write_queued(const struct exec *x);
void exec_close_stdin(struct exec *x);
int exec_resize(struct exec *x, uint32_t rows, uint32_t cols, struct err *e);
int exec_signal(struct exec *x, int sig, enum exec_scope scope, struct err *e);
/*
 * SIGINT for its process. What is written to stdin may come before a signal: exec_interrupting() says whether it has not been
 * delivered yet. When it has, the watchers are called.
 */
int exec_interrupt(struct exec *x, struct err *e);
bool exec_interrupting(const struct exec *x);
/* An audit record: a caller has sent it a signal. Stored with the turn. */
void exec_note_signal(const struct exec *x, const struct who *who, int sig);
int signal_parse(const char *text); /* "TERM", "SIGTERM", "15"; -EINVAL */

#define EXEC_TELL_OUTPUT 1U /* stdout and stderr, within the limit */
#define EXEC_TELL_CMD 2U /* the command; it is told as well if its request says `echo` */
/* The result as JSON fields inside an open object; @parts: which it has besides. */
int exec_write_result(struct exec *x, unsigned parts, struct json *j);
/* Only stdout and stderr, and how many bytes of each were left out. */
int exec_write_output(struct exec *x, struct json *j, uint64_t ret_dropped[2]);

/* From the sandbox. */
void exec_frame(struct sandbox *b, const struct frame *f, int *fds, size_t nfds);
void exec_group_came(struct sandbox *b, int r, const struct err *e);
/* Users that may change /usr can do so now, or r < 0: it cannot be made writable. */
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
/* The agent has listed all of them; false: that does not count, and it is asked again. */
bool exec_synced(struct sandbox *b);
/* Which ran at some moment since @since_ns, as JSON: for exec_revive in a sandbox from its memory. */
int exec_save(const struct sandbox *b, uint64_t since_ns, struct buf *to);
/* They get rows, and wait for the agent to name them. Old ones of the same numbers go. */
int exec_revive(struct sandbox *b, const char *saved, struct err *e);
/* As ->again of the request of one that ended with its sandbox says: it is begun anew, by the daemon. */
int exec_again(struct sandbox *b, const json_t *spec, char ret_id[ID_SIZE], struct err *e);
/* Those that were not named are forgotten. */
void exec_revived(struct sandbox *b);
/* the clock was set: rows of those that have a limit of time are written again */
void exec_store_times(struct sandbox *b);
/* Rows for those that run for longer than a moment. */
void exec_store_running(struct service *s);
/* Old spools and the memory of old output, once in a while. */
void exec_prune(struct service *s, uint64_t now_ns);
