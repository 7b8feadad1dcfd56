/* Between the parts of service/sandbox/. */
#pragma once
#include "service/sandbox/struct.h"

/* A pending call on a sandbox: of one caller, or of several that asked for the same key. */
struct sandbox_op {
	struct sandbox_op *next;
	struct sandbox *sandbox;
	struct who who;
	uint64_t handle; /* of its sandbox, when this was asked */
	uint32_t uid; /* sandbox->group_uid, when a group was asked for */
	bool found; /* it was there, or in the making, already */
	sandbox_made_fn *made;
	sandbox_done_fn *done;
	void *arg;
	struct err err; /* when ->r < 0 */
	int r;
	const char *kind; /* of the audit record */
	struct turn_wait wait;
};

/* name.c */
int sandbox_list(struct sandbox *b, struct err *e); /* by id, name and key. ERR_CONFLICT when the name is taken */
void sandbox_unlist(struct sandbox *b); /* its name and key are free again; by id it is still there */
struct sandbox *sandbox_by_key(struct service *s, const struct who *who,
			       const struct sandbox_request *request); /* NULL = none */
int sandbox_name_free(struct service *s, const struct tenant *t, const char *name, struct err *e); /* "" always is */
int sandbox_rename(struct sandbox *b, const char *name, struct err *e); /* not stored */

/* make.c */
struct sandbox_op *sandbox_op_new(struct sandbox *b, const struct who *who, sandbox_done_fn *done, void *arg);
/* The callback comes when what happened is stored; then the op is gone. */
void sandbox_tell(struct service *s, struct sandbox_op *op, int r, const struct err *e);
void sandbox_op_end(struct sandbox_op *op); /* at once */
void sandbox_up(struct sandbox *b); /* its agent says that it is up */
void sandbox_give_up(struct sandbox *b, int r, const struct err *e); /* it will not become ready */
void sandbox_make_room(struct sandbox *b); /* its names, and what it was charged for, are others' */
void sandbox_leave(struct sandbox *b); /* takes it out of everything and lets go of it */
struct tenant_quota sandbox_quota(const struct sandbox_request *w);
/* one that was made ahead, and was not counted for its tenant: -EDQUOT */
int sandbox_count(struct sandbox *b, struct err *e);

/* revive.c */
void sandbox_revive_ask(struct sandbox *b); /* its agent is there: ask for them already, where that can be */
void sandbox_revive(struct sandbox *b); /* it is stored: execs of its memory image get their rows, and are asked for */
void sandbox_revive_over(struct sandbox *b); /* its agent has listed all execs, or will not */
void sandbox_restored(struct sandbox *b); /* ->restored says what was done */

/* hibernate.c */
void sandbox_wake_waiters(struct sandbox *b); /* something else was under way, and they waited for that */
int sandbox_request_again(const struct sandbox *b, struct sandbox_request **ret,
			  struct err *e); /* what it was, to be made again */
void sandbox_tell_waiters(struct sandbox *b, int r, const struct err *e);

/* state.c */
/* Whether it is so now. One that is not in the table is a bug of ours: test builds abort, others log it and refuse. */
bool sandbox_set_state(struct sandbox *b, enum sandbox_state to);
enum sandbox_state sandbox_load_state(struct sandbox *b, const char *name); /* as its row has it */
/*
 * The audit record and the event of the change that it has just made: after those of its cause, and after what is
 * stored.
 */
void sandbox_note_state(struct sandbox *b, const struct who *who, const char *kind);
void sandbox_note_update(struct sandbox *b, const struct who *who);

/* sandbox.c */
int sandbox_store_new(struct sandbox *b, struct err *e); /* its first row; sandbox_store() changes it */
int sandbox_lost(const struct sandbox *b, struct err *e);
/* @b turns to the agent and the sandbox that @from has. */
void sandbox_move(struct sandbox *b, struct sandbox *from);
