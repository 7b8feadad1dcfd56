/* A sandbox as the daemon knows it. */
#pragma once
#include "base/id.h"
#include "service/link/agent_link.h"
#include "service/service.h"
#include "service/sandbox/request.h"
#include "warden/msg.h"
#include "engine/sandbox/sandbox.h"

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
struct exec;
struct pool;
struct sandbox_op;
struct port;
struct swap;
struct sealing;
struct limiting;
struct sleep;
struct sandbox_queued;
struct sandbox_secrets;
struct net_state;
struct net_run;
struct sandbox_starting;

/* Somebody who needs a sandbox that may be asleep. */
struct sandbox_waiter {
	struct sandbox_waiter *next;
	void (*fn)(void *arg, int r, const struct err *e); /* once; then it is not waiting any more */
	void *arg;
};

/* Who makes a sandbox otherwise than by sandbox_create; each is told once. */
struct sandbox_maker {
	void (*up)(void *arg,
		   struct sandbox
			   *b); /* it stands, and is not in the store yet: sandbox_enter, or sandbox_give_up later */
	void (*failed)(void *arg, struct sandbox *b, int r, const struct err *e); /* it will be gone */
	bool group_later; /* it asks for its first exec's group, not sandbox_enter */
	bool at_once; /* ->up enters it, or gives it up */
};
struct file_worker;

#define SANDBOX_HELD_MAX 32 /* execs of a memory image: there are fewer */

struct sandbox {
	struct service *service;
	char id[ID_SIZE];
	struct tenant *tenant;
	struct sandbox_request *request; /* ->name is the current one */
	enum sandbox_state state; /* written by sandbox_set_state() alone */
	uint64_t handle;
	struct agent_link link;
	struct warden_receipt receipt;
	bool synced; /* false while execs are found again */
	bool found; /* of a time before ours: its agent is to be attached to */
	bool attaching;
	bool lost_to_oom; /* lost by the memory limit */
	unsigned breaks; /* of the link to its agent, since the agent last answered */
	uint64_t created_ns, expires_ns, used_ns; /* wall clock */
	uint64_t paused_ns; /* while it is paused or hibernated: about since when; else 0 */
	unsigned calls; /* under way: not idle */
	uint64_t tree; /* of forks, that it is of */
	struct net_state *net; /* service/network/network.h: what it has used, or NULL: it never had a network */
	struct net_run *run; /* what egress has of it, or NULL */
	struct exec *execs; /* newest first */
	unsigned nexecs, running;
	uint32_t next_exec;
	int group; /* a descriptor to join group_no by, for the next exec; -1 = none */
	int group_code; /* the same for a fork of the warm process, of user group_uid; -1 = none */
	uint32_t group_uid; /* 1 + the user of such forks, 0: there were none */
	uint64_t group_no;
	uint64_t ended_group; /* not needed any more; the warden is told with the next request for one, or soon */
	uint32_t release[16]; /* execs the agent can forget; told soon */
	unsigned nrelease;
	unsigned unstored; /* execs that get a row soon */
	struct warden_stat stat; /* as last read */
	struct sandbox_op *making; /* who waits for it to stand */
	unsigned refs; /* it is not freed while > 0 */
	struct pool *pool; /* it counts for, or NULL */
	bool pooled; /* ready, and nobody's: not to be seen */
	struct sandbox *ready_next, **ready_prev; /* of the pool's */
	uint64_t system_open, system_asked; /* handles: in which /usr can be changed; of which that was asked for */
	struct sandbox_late *late; /* of service/sandbox/system.c */
	struct file_worker *files; /* idle, of service/file/file.c */
	struct port *ports; /* of service/port/port.c */
	struct port_use *port_uses; /* requests from outside, not in the audit log yet */
	uint32_t file_tag;
	struct sandbox_secrets *secrets; /* NULL: it has none. See service/secret/give.h */
	bool promoting; /* a fork's changes are being brought into it */
	struct tenant_quota charged; /* what its tenant has used up for it */
	const struct sandbox_maker *maker; /* while it is made */
	void *maker_arg;
	struct swap *swap; /* another is made to take its place */
	struct sandbox_queued *queue; /* calls that wait for another change of it to be over: service/sandbox/queue.h */
	struct limiting *limiting; /* its limits change: service/sandbox/limit.c */
	struct sealing *sealing; /* who wants its files sealed, the first is at it */
	char *restored; /* JSON: what came of its checkpoint; NULL = it is of none */
	/* State HIBERNATED: what was kept. Its newest layer is held then. */
	enum { ASLEEP_NOT, ASLEEP_FILES, ASLEEP_MEMORY } asleep;
	uint64_t tried_ns; /* not to be hibernated by itself again before */
	bool idle_paused; /* by itself: a call resumes it */
	bool thaw_due; /* it should run, and could not be thawed yet: its warden was at a seal that nobody waits for */
	char *cut; /* JSON: connections to the outside that its processes lost when they were copied last, or NULL */
	char *memory_refused; /* why it sleeps without its processes, or NULL */
	struct sleep *sleep; /* it falls asleep */
	bool let_go; /* of its execs' pipes: the agent has them, and gives them again */
	bool missed; /* since then an exec has ended */
	bool hands_off; /* its pipes are being copied: nobody reads them until it goes on, or is ended */
	bool ask_again; /* which execs its agent has: some of the answer under way was not taken */
	bool turning; /* it wakes up, and that is not stored: what was read now would come twice if we died */
	bool waking;
	bool opened; /* stopped or lost, and what has its files stands: service/sandbox/disk.h */
	struct sandbox_starting *starting;
	struct sandbox_waiter *waiters; /* for it to be awake */
	uint32_t fresh; /* FRAME_RESTORED_*: what its agent made anew */
	bool reviving; /* execs of a memory image are looked for */
	bool asked; /* for those, before they have rows */
	uint32_t held[SANDBOX_HELD_MAX]; /* then: numbers its agent named */
	unsigned nheld;
	void (*revived)(void *arg, struct sandbox *b);
	void *revived_arg;
};

/* @b is NULL when it failed; *e says why. @found: `key` led to one that was there. */
typedef void sandbox_made_fn(void *arg, struct sandbox *b, bool found, const struct err *e);
typedef void sandbox_done_fn(void *arg, int r, const struct err *e);

/* Takes @request over. The sandbox stands and is stored when @fn is called. */
void sandbox_create(struct service *s, const struct who *who, struct sandbox_request *request, sandbox_made_fn *fn,
		    void *arg);
/* Making one step by step: see struct sandbox_maker. */
struct sandbox_plan {
	struct tenant *tenant;
	struct sandbox_request *request; /* taken over on success */
	const struct sandbox_maker *maker;
	void *arg;
	bool stand_in; /* for another that is there: neither listed by name nor counted, */
	bool counted; /* but for memory and disk: what nobody asked to have should not be more than somebody may */
	struct sandbox *like; /* that one, or NULL */
	uint64_t tree; /* of forks it is to be of; 0 = a new one */
	bool once; /* a fork: nobody else can go on from there */
	bool many; /* others go on from the same memory at the same time: it is to be shared */
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
/* Gone when @fn is called with 0. */
void sandbox_delete(struct sandbox *b, const struct who *who, const char *kind, sandbox_done_fn *fn, void *arg);
void sandbox_pause(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg);
void sandbox_resume(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg);
/* Whether anybody may see it. */
static inline bool sandbox_seen(const struct sandbox *b)
{
	return b->state != SANDBOX_MAKING && b->state != SANDBOX_ENDING && !b->pooled;
}
/* Ends one of a pool that is nobody's. Its room is free at once. */
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
/*
 * Whether it is awake, as far as it depends on us. If not it is woken up, and @w is told: 0, or why not. A sandbox that
 * was paused since nobody used it counts as asleep.
 */
bool sandbox_awake(struct sandbox *b, struct sandbox_waiter *w);
/* One that sleeps wakes up without its processes, which end: for when they cannot go on. */
void sandbox_forget_memory(struct sandbox *b);
void sandbox_wait_cancel(struct sandbox *b, struct sandbox_waiter *w);
/* What may change: timeout (ms, UINT64_MAX = as is), idle, name, metadata (taken over; NULL = as is). Stored with the turn. */
int sandbox_update(struct sandbox *b, const struct who *who, uint64_t timeout_ms, const struct idle_request *idle,
		   const char *name, struct kv *metadata, struct err *e);
/* ->stat is fresh when @fn is called. */
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
void sandbox_drop_group(struct sandbox *b); /* that was at hand; the warden is not told */
/* An exec is over for good. Its agent and the warden are told with others, or not at all when the sandbox goes first. */
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
