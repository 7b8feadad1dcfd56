/* A sandbox as the daemon knows it. */
#pragma once
#include "base/id.h"
#include "service/service.h"
#include "service/sandbox/request.h"

enum sandbox_state {
	SANDBOX_MAKING, /* not to be seen yet */
	SANDBOX_RUNNING,
	SANDBOX_PAUSED,
	SANDBOX_STOPPED, /* nothing of it runs: its disk is there (service/sandbox/disk.h) */
	SANDBOX_HIBERNATED, /* nothing of it runs: its layers are all there is */
	SANDBOX_LOST,
	SANDBOX_ENDING, /* not to be seen any more */
};
const char *sandbox_state_name(enum sandbox_state s);
bool sandbox_may_become(enum sandbox_state from, enum sandbox_state to);

struct sandbox;
struct sandbox_queued;
struct sandbox_row;
struct msg_receipt;

/* A call that needs a sandbox which may be asleep. */
struct sandbox_waiter {
	struct sandbox_waiter *next;
	void (*fn)(void *arg, int r, const struct err *e); /* once; then it is not waiting any more */
	void *arg;
};

/* A maker of sandboxes other than sandbox_create; one of the callbacks is called, once. */
struct sandbox_maker {
	void (*up)(void *arg,
		   struct sandbox *b); /* it is ready, and not stored yet: sandbox_enter, or sandbox_give_up later */
	void (*failed)(void *arg, struct sandbox *b, int r, const struct err *e); /* it will be gone */
	bool group_later; /* it asks for its first exec's group, not sandbox_enter */
	bool at_once; /* ->up enters it, or gives it up */
};
/* @b is NULL when it failed; *e says why. @found: `key` led to one that was there. */
typedef void sandbox_made_fn(void *arg, struct sandbox *b, bool found, const struct err *e);
typedef void sandbox_done_fn(void *arg, int r, const struct err *e);

/* Takes @request over. The sandbox is ready and stored when @fn is called. */
void sandbox_create(struct service *s, const struct who *who, struct sandbox_request *request, sandbox_made_fn *fn,
		    void *arg);
/* Making one step by step: see struct sandbox_maker. */
struct sandbox_plan {
	struct tenant *tenant;
	struct sandbox_request *request; /* taken over on success */
	const struct sandbox_maker *maker;
	void *arg;
	bool hidden; /* for another that is there: neither listed by name nor counted, */
	bool counted; /* memory and disk count all the same: a hidden sandbox must not exceed the quota */
	struct sandbox *like; /* that one, or NULL */
	uint64_t tree; /* of forks it is to be of; 0 = a new one */
	bool shared; /* what is sealed of it may be used by all tenants */
	bool once; /* a fork: no other sandbox can continue from there */
	bool many; /* others continue from the same memory at the same time: it is to be shared */
};
int sandbox_begin(struct service *s, const struct sandbox_plan *p, struct sandbox **ret, struct err *e);
int sandbox_enter(struct sandbox *b, const struct who *who,
		  struct err *e); /* stored with this turn, to be seen from now on */
/* When the execs of its memory image are known, or it has none or is gone: at once, or later. */
void sandbox_when_revived(struct sandbox *b, void (*fn)(void *arg, struct sandbox *b), void *arg);
/*
 * Another sandbox, as @request says (taken over), takes the place of what @b has now: made first, then swapped, so that a
 * failure leaves the old one. @b keeps id, name, events.
 */
void sandbox_replace(struct sandbox *b, const struct who *who, struct sandbox_request *request, sandbox_done_fn *fn,
		     void *arg);
/* By id or name, of the tenant (any for an admin, by id). NULL and ERR_NOT_FOUND. Counts as a use. */
struct sandbox *sandbox_find(struct service *s, const struct who *who, const char *id, struct err *e);
/* By id, of whatever tenant: NULL when there is none that callers may see. */
struct sandbox *sandbox_by_id(const struct service *s, const char *id);
/* All that callers may see, in no order; *at is 0 at first. NULL: that were all. */
struct sandbox *sandbox_next(const struct service *s, size_t *at);

/* --- what callers see of it (show.c) --- */

const char *sandbox_id(const struct sandbox *b);
const char *sandbox_name(const struct sandbox *b); /* "" = none */
struct tenant *sandbox_tenant(const struct sandbox *b);
/* Texts are good until the loop's next call. */
struct sandbox_view {
	const char *id, *tenant;
	enum sandbox_state state;
	const struct sandbox_request *request; /* what it was asked to be, with what has been changed since */
	uint64_t created_ns, expires_ns, used_ns; /* wall clock; 0 = never */
	const char *memory_refused; /* why it sleeps without its processes, or NULL */
	const char *cut; /* JSON: connections to the outside that its processes have lost, or NULL */
	const char *restored; /* JSON: what came of its checkpoint; NULL = it is of none */
};
struct sandbox_view sandbox_view(const struct sandbox *b);
/* Calls @put for each limit and barrier that is in force. */
void sandbox_view_enforced(const struct sandbox *b, void (*put)(void *arg, const char *name, const char *how),
			   void *arg);
/* What it uses, as of the last sandbox_stat(): fields inside of an open object. */
void sandbox_write_stat(const struct sandbox *b, struct json *j);
unsigned sandbox_running_execs(const struct sandbox *b);

/* Gone when @fn is called with 0. */
void sandbox_delete(struct sandbox *b, const struct who *who, const char *kind, sandbox_done_fn *fn, void *arg);
void sandbox_pause(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg);
void sandbox_resume(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg);
/* Ends a sandbox of a pool that was not handed out. Its room is free at once. */
void sandbox_discard(struct sandbox *b, const char *why);
/*
 * Everything of it is freed, but for its files and its processes: ERR_REFUSED when those cannot be carried, unless they
 * may end: then ->memory_refused says why. Connections to the outside are cut, or refused likewise.
 */
struct sandbox_hibernate_opts {
	bool may_end, refuse_network;
};
void sandbox_hibernate(struct sandbox *b, const struct who *who, const struct sandbox_hibernate_opts *o,
		       sandbox_done_fn *fn, void *arg);
/* What a call needs of a sandbox: its processes, or, where they are lost or stopped, at least its disk. */
enum sandbox_need { SANDBOX_NEED_PROCESSES, SANDBOX_NEED_FILES };
/* Whether a call may begin at once, with what is there or will never be there. Counts as a use, then. */
bool sandbox_serves(struct sandbox *b, enum sandbox_need need);
/* For one that does not: sandbox_awake(), and its disk is opened. Counts as a use. */
bool sandbox_wake(struct sandbox *b, struct sandbox_waiter *w);
/*
 * Whether it is awake, from this process's view. If not, it is woken up, and @w is called: 0, or why not. A sandbox
 * that was paused for lack of use counts as asleep.
 */
bool sandbox_awake(struct sandbox *b, struct sandbox_waiter *w);
/* A sandbox that sleeps will wake up without its processes, which end: for when they cannot be restored. */
void sandbox_forget_memory(struct sandbox *b);
void sandbox_wait_cancel(struct sandbox *b, struct sandbox_waiter *w);
/* What may change: timeout (ms, UINT64_MAX = as is), idle, name, metadata (taken over; NULL = as is). Stored with the turn. */
int sandbox_update(struct sandbox *b, const struct who *who, uint64_t timeout_ms, const struct idle_request *idle,
		   const char *name, struct kv *metadata, struct err *e);
/* What it uses is fresh when @fn is called. */
void sandbox_stat(struct sandbox *b, sandbox_done_fn *fn, void *arg);
/* Running, not paused, not lost; else ERR_CONFLICT, ERR_LOST. */
int sandbox_ready(const struct sandbox *b, struct err *e);
/* It is being used: now, and until sandbox_rest. */
void sandbox_use(struct sandbox *b);
void sandbox_rest(struct sandbox *b);
/* It is being looked at: it does not fall asleep meanwhile, and is no later idle for it. */
void sandbox_look(struct sandbox *b);
void sandbox_looked(struct sandbox *b);
void sandbox_ref(struct sandbox *b);
void sandbox_unref(struct sandbox *b);
/* For adoption, src/service/adopt.c. */
struct sandbox *sandbox_load(struct service *s, const struct sandbox_row *row, struct err *e);
int sandbox_attach(struct sandbox *b, int sock, const struct msg_receipt *receipt, struct err *e);
void sandbox_lose(struct sandbox *b, const char *why);
bool sandbox_gone(struct sandbox *b); /* the warden does not have it any more. Returns whether that was news */
int sandbox_store(struct sandbox *b, struct err *e);
/* Attaches to its agent when it is not: after a pause that was long, or when the agent let go of us. */
void sandbox_reattach(struct sandbox *b);
/* It should run, whatever has frozen it. @first: before what waits for the warden. Tried again until it does. */
void sandbox_thaw(struct sandbox *b, bool first);
/* Asks for a further exec group ahead. */
void sandbox_ask_for_group(struct sandbox *b);
void sandbox_drop_group(struct sandbox *b); /* the one at hand; the warden is not informed */
/*
 * An exec has ended for good. Its agent and the warden are informed later with others, or not at all when the sandbox
 * goes first.
 */
void sandbox_put_off(struct sandbox *b, uint32_t exec, uint64_t group);
void sandbox_flush(struct sandbox *b);
/* Notes what a repeated request shall get: the id of what was made. Together with that, in one transaction. */
int idem_note(struct service *s, const struct tenant *t, const char *key, const uint8_t body[32], const char *answer,
	      struct err *e);
/*
 * What idem_note() noted for @key of @t: 1, and the text is good until the next call on @s; 0 when there is nothing. -EEXIST,
 * ERR_CONFLICT: the request was another one than @body.
 */
int idem_answer(struct service *s, const struct tenant *t, const char *key, const uint8_t body[32], const char **ret,
		struct err *e);
