/* Between the parts of service/sandbox/. */
#pragma once
#include "service/sandbox/sandbox.h"

/* Who waits for a box: one caller, or several that asked for the same key. */
struct box_op {
	struct box_op *next;
	struct box *box;
	struct who who;
	uint64_t handle; /* of its sandbox, when this was asked */
	uint32_t uid; /* box->group_uid, when a group was asked for */
	bool found; /* it was there, or in the making, already */
	box_made_fn *made;
	box_done_fn *done;
	void *arg;
	struct err err; /* when ->r < 0 */
	int r;
	const char *kind; /* of the audit record */
	struct turn_wait wait;
};

/* box_name.c */
int box_list(struct box *b, struct err *e); /* by id, name and key. ERR_CONFLICT when the name is taken */
void box_unlist(struct box *b); /* its name and key are free again; by id it is still there */
struct box *box_by_key(struct service *s, const struct who *who, const struct box_want *want); /* NULL = none */
int box_name_free(struct service *s, const struct tenant *t, const char *name, struct err *e); /* "" always is */
int box_rename(struct box *b, const char *name, struct err *e); /* not stored */

/* box_make.c */
struct box_op *box_op_new(struct box *b, const struct who *who, box_done_fn *done, void *arg);
/* The callback comes when what happened is stored; then the op is gone. */
void box_tell(struct service *s, struct box_op *op, int r, const struct err *e);
void box_op_end(struct box_op *op); /* at once */
void box_stand(struct box *b); /* its agent says that it is up */
void box_give_up(struct box *b, int r, const struct err *e); /* it will not stand */
void box_make_room(struct box *b); /* its names, and what it was charged for, are others' */
void box_leave(struct box *b); /* takes it out of everything and lets go of it */
struct tenant_quota box_quota(const struct box_want *w);

/* box_pool.c: 1 and a referenced one that was ready, stored with the turn; then @want is taken over. 0: there is none */
int box_from_pool(struct service *s, const struct who *who, struct box_want *want, struct box **ret, struct err *e);

/* box_revive.c */
void box_revive_ask(struct box *b); /* its agent is there: ask for them already, where that can be */
void box_revive(struct box *b); /* it is stored: execs of its memory image get their rows, and are asked for */
void box_revive_over(struct box *b); /* its agent has told all it has, or will not */
void box_restored(struct box *b); /* ->restored says what was done */

/* box_sleep.c */
void box_wake_waiters(struct box *b); /* something else was under way, and they waited for that */
int box_want_again(const struct box *b, struct box_want **ret, struct err *e); /* what it was, to be made again */
void box_tell_waiters(struct box *b, int r, const struct err *e);

/* box.c */
void box_note(struct box *b, const struct who *who, const char *kind); /* audit record and event */
int box_lost(const struct box *b, struct err *e);
/* @b turns to the agent and the sandbox that @from has. */
void box_move(struct box *b, struct box *from);
