/*
 * A turn of the loop: what was changed in it reaches SQLite and the audit log together, and only then are its answers
 * sent. One commit and one write for all requests of a turn.
 */
#pragma once
#include "audit/audit.h"
#include "base/err.h"
#include "store/db.h"

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
 * Stores what is left and forgets who waits. The loop must run once more, for libuv lets go of handles only then; @d
 * and @a are not used after this returns.
 */
void turn_free(struct turn *t);
/*
 * From now on a full disk does not end the process: @fn is called, which gives back what was kept for this (true: some
 * was). If that is not enough, what was changed waits in memory, and its answers with it, until it can be stored; it is
 * tried again by itself. Only when SQLite has undone the turn is there no other way than the end.
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
 * Who waits already goes to the end.
 */
struct turn_wait { /* all zeros at first */
	struct turn_wait *next, *prev; /* NULL: not waiting */
	void (*fn)(void *arg);
	void *arg;
};
void turn_after(struct turn *t, struct turn_wait *w, void (*fn)(void *arg), void *arg);
void turn_cancel(struct turn_wait *w); /* fine when it is not waiting */
/* Something was changed that nobody waits for: stored at the end of this turn. */
void turn_dirty(struct turn *t);
