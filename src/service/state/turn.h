/*
 * A turn of the loop: what was changed in it reaches SQLite and the audit log together, and only then are its answers
 * sent. One commit and one write for all requests of a turn.
 */
#pragma once
#include "audit/audit.h"
#include "base/err.h"

struct db;
struct uv_loop_s;
#define EXIT_NO_ROOM 75 /* of this process: the disk is full. Worth another try, as often as it takes */
/* With what the process ends for an error of that number, or -errno. */
int turn_exit_of(int errnum);

struct turn;

/* Brings both logs (@db may be -1) to the disk. For a worker. 0 or -errno. */
int turn_sync(int audit, int db);
/*
 * A failed commit or write ends the process: what cannot be noted is not done (the supervisor starts it again). But see
 * turn_on_full().
 */
int turn_new(struct uv_loop_s *loop, struct db *d, struct audit *a, struct turn **ret, struct err *e);
/*
 * Stores what is left and drops the waits. The loop must run once more, for libuv frees handles only then; @d and @a
 * are not used after this returns.
 */
void turn_free(struct turn *t);
/*
 * From now on a full disk does not end the process: @fn is called, which releases the reserve (true: there was some).
 * If that is not enough, changes wait in memory, and their answers with them, until they can be stored; this is retried
 * by itself. The process only ends if SQLite has undone the turn.
 */
void turn_on_full(struct turn *t, bool (*fn)(void *arg), void *arg);
/* Whether something waits for that now. */
bool turn_stuck(const struct turn *t);
/*
 * From now on answers wait until the audit log and the state's have reached the disk, which a worker sees to; turns that
 * come meanwhile share the next one.
 */
int turn_sync_always(struct turn *t, struct err *e);
/*
 * Calls @fn when everything changed so far is stored, later in this turn (never from within). Callbacks run in order.
 * One that is taken back with turn_cancel is not called. Registered by a callback: the next turn, which comes at once.
 * One that waits already moves to the end.
 */
struct turn_wait { /* all zeros at first */
	struct turn_wait *next, *prev; /* NULL: not waiting */
	void (*fn)(void *arg);
	void *arg;
};
void turn_after(struct turn *t, struct turn_wait *w, void (*fn)(void *arg), void *arg);
void turn_cancel(struct turn_wait *w); /* fine when it is not waiting */
/* Something was changed for which no call waits: it is stored at the end of this turn. */
void turn_dirty(struct turn *t);
