/* Between the parts of service/exec/. */
#pragma once
#include "service/exec/struct.h"

/* state.c */
/*
 * Whether it is so now. One that is not in the table is a bug of ours: test builds abort, others log it and refuse. ENDING makes
 * the audit record and the event of its end.
 */
bool exec_set_state(struct exec *x, enum exec_state to);
void exec_load_state(struct exec *x, enum exec_state is); /* as its row says: FOUND, or ENDED */
void exec_note_begin(struct exec *x); /* it was taken in: WAITING. With an audit record when its caller does not wait */

/* io.c */
void stream_init(struct exec *x, enum exec_stream which);
/*
 * Takes @fd on success. @later: it is not watched until stream_arm: most commands are over before it would be worth it, and what they said is in the pipe.
 */
int stream_open(struct stream *st, int fd, bool later, struct err *e);
int stream_arm(struct stream *st, struct err *e);
void stream_close(struct stream *st);
bool stream_quiet(const struct stream *st); /* nothing has come */
bool stream_busy(const struct stream *st); /* a worker has something of it */
void stream_pump(struct stream *st);
void stream_end(struct stream *st); /* delivers what was held back: no more will come */
void stream_unmask(struct stream *st);
void stream_exited(struct stream *st); /* what is there now is all that counts */
void stdin_open(struct exec *x, int fd); /* takes @fd */
void stdin_open_terminal(struct exec *x); /* behind stream_open of the terminal */
void stdin_close(struct exec *x);

/* time.c */
void exec_kill_number(struct sandbox *b, uint32_t number);
void exec_kill_tree(struct exec *x);
void exec_look_at_cpu(struct exec *x);
void exec_arm(struct exec *x); /* for its next limit of time */
void exec_timer_stop(struct exec *x);

/* start.c */
void exec_fail(struct exec *x, int r, const struct err *e); /* it did not even start */
void exec_start_waiting(struct sandbox *b); /* starts those that came before the agent had listed its execs */
int exec_store(struct exec *x, const char *result, struct err *e); /* writes its row; @result NULL while it runs */
int exec_store_end(struct exec *x, struct err *e);

/* exec.c */
struct exec *exec_alloc(struct sandbox *b, const char *id, uint32_t number, struct err *e);
void exec_list(struct exec *x);
void exec_list_over(struct exec *x); /* it has ended, and nothing of it is read any more: it may be forgotten */
void exec_unlist(struct exec *x); /* of these lists, and by its id */
void exec_waits_no_more(struct exec *x);
void exec_tell(struct exec *x); /* calls all watchers */
void exec_signal_early(struct exec *x); /* what was asked for before it was started */

/* kept.c */
int exec_charge(struct exec *x, struct err *e); /* ->request counts for its tenant. ERR_QUOTA when that has too much */
void exec_trim(struct exec *x); /* what it was started with is not needed any more */
void exec_remember(struct exec *x); /* it has ended: one of the tenant's history, whose oldest may go */
void exec_forget(struct exec *x); /* takes it out of its sandbox and the database */
void exec_uncount(struct exec *x); /* it goes */
void exec_drop_rows(struct service *s); /* of those that were forgotten */

/* find.c */
void exec_drain(struct exec *x, uint32_t flags, int *fds, size_t nfds); /* it ended before, and is still held */

/* end.c */
void exec_check_end(struct exec *x); /* ends it when it has exited and everything was read */
void exec_end(struct exec *x);
void exec_note_end(struct exec *x); /* from exec_set_state */
void exec_release(struct exec *x);
/* Its output in memory counts from now on, until it is freed or the oldest has to go. */
void exec_keep(struct exec *x);
void exec_unkeep(struct exec *x);
