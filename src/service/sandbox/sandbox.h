/* A sandbox as the daemon knows it. */
#pragma once
#include "base/id.h"
#include "service/link/agent_link.h"
#include "service/service.h"
#include "service/sandbox/request.h"
#include "warden/msg.h"
#include "warden/warden.h"

enum box_state {
	BOX_MAKING, /* not to be seen yet */
	BOX_RUNNING,
	BOX_PAUSED,
	BOX_STOPPED, /* nothing of it runs: its disk is there (service/sandbox/disk.h) */
	BOX_HIBERNATED, /* nothing of it runs: its layers are all there is */
	BOX_LOST,
	BOX_ENDING, /* not to be seen any more */
};
const char *box_state_name(enum box_state s);

struct box;
struct exec;
struct pool;
struct box_op;
struct port;
struct swap;
struct sealing;
struct limiting;
struct sleep;
struct box_queued;
struct box_secrets;
struct net_state;
struct net_run;
struct box_starting;

/* Somebody who needs a sandbox that may be asleep. */
struct box_waiter {
	struct box_waiter *next;
	void (*fn)(void *arg, int r, const struct err *e); /* once; then it is not waiting any more */
	void *arg;
};

/* Who makes a box otherwise than by box_create; each is told once. */
struct box_maker {
	void (*up)(void *arg, struct box *b); /* it stands, and is not in the store yet: box_enter, or box_give_up later */
	void (*failed)(void *arg, struct box *b, int r, const struct err *e); /* it will be gone */
	bool group_later; /* it asks for its first exec's group, not box_enter */
	bool at_once; /* ->up enters it, or gives it up */
};
struct file_worker;

#define BOX_HELD_MAX 32 /* execs of a memory image: there are fewer */

struct box {
	struct service *service;
	char id[ID_SIZE];
	struct tenant *tenant;
	struct box_want *want; /* ->name is the current one */
	enum box_state state;
	uint64_t handle;
	struct alink link;
	struct warden_receipt receipt;
	bool up, synced; /* synced: false while execs are found again */
	bool found; /* of a time before ours: its agent is to be attached to */
	bool attaching;
	bool drowned; /* lost by the memory limit */
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
	struct box_op *making; /* who waits for it to stand */
	unsigned refs; /* it is not freed while > 0 */
	struct pool *pool; /* it counts for, or NULL */
	bool pooled; /* ready, and nobody's: not to be seen */
	struct box *ready_next, **ready_prev; /* of the pool's */
	uint64_t system_open, system_asked; /* handles: in which /usr can be changed; of which that was asked for */
	struct box_late *late; /* of service/sandbox/system.c */
	struct file_worker *files; /* idle, of service/file/file.c */
	struct port *ports; /* of service/port/port.c */
	struct port_use *port_uses; /* requests from outside, not in the audit log yet */
	uint32_t file_tag;
	struct box_secrets *secrets; /* NULL: it has none. See service/secret/give.h */
	bool promoting; /* a fork's changes are being brought into it */
	struct tenant_quota charged; /* what its tenant has used up for it */
	const struct box_maker *maker; /* while it is made */
	void *maker_arg;
	struct swap *swap; /* another is made to take its place */
	struct box_queued *queue; /* calls that wait for another change of it to be over: service/sandbox/queue.h */
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
	struct box_starting *starting;
	struct box_waiter *waiters; /* for it to be awake */
	uint32_t fresh; /* FRAME_RESTORED_*: what its agent made anew */
	bool reviving; /* execs of a memory image are looked for */
	bool asked; /* for those, before they have rows */
	uint32_t held[BOX_HELD_MAX]; /* then: numbers its agent named */
	unsigned nheld;
	void (*revived)(void *arg, struct box *b);
	void *revived_arg;
};

/* @b is NULL when it failed; *e says why. @found: `key` led to one that was there. */
typedef void box_made_fn(void *arg, struct box *b, bool found, const struct err *e);
typedef void box_done_fn(void *arg, int r, const struct err *e);

/* Takes @want over. The box stands and is stored when @fn is called. */
void box_create(struct service *s, const struct who *who, struct box_want *want, box_made_fn *fn, void *arg);
/* Making one step by step: see struct box_maker. */
struct box_plan {
	struct tenant *tenant;
	struct box_want *want; /* taken over on success */
	const struct box_maker *maker;
	void *arg;
	bool stand_in; /* for another that is there: neither listed by name nor counted, */
	bool counted; /* but for memory and disk: what nobody asked to have should not be more than somebody may */
	struct box *like; /* that one, or NULL */
	uint64_t tree; /* of forks it is to be of; 0 = a new one */
	bool once; /* a fork: nobody else can go on from there */
	bool many; /* others go on from the same memory at the same time: it is to be shared */
};
int box_begin(struct service *s, const struct box_plan *p, struct box **ret, struct err *e);
int box_enter(struct box *b, const struct who *who, struct err *e); /* stored with this turn, to be seen from now on */
/* When the execs of its memory image are known, or it has none or is gone: at once, or later. */
void box_when_revived(struct box *b, void (*fn)(void *arg, struct box *b), void *arg);
/*
 * Another sandbox, as @want says (taken over), takes the place of what @b has now: made first, then swapped, so that a
 * failure leaves the old one. @b keeps id, name, events.
 */
void box_replace(struct box *b, const struct who *who, struct box_want *want, box_done_fn *fn, void *arg);
/* By id or name, of the tenant (any for an admin, by id). NULL and ERR_NOT_FOUND. Counts as a use. */
struct box *box_find(struct service *s, const struct who *who, const char *id, struct err *e);
/* Gone when @fn is called with 0. */
void box_delete(struct box *b, const struct who *who, const char *kind, box_done_fn *fn, void *arg);
void box_pause(struct box *b, const struct who *who, box_done_fn *fn, void *arg);
void box_resume(struct box *b, const struct who *who, box_done_fn *fn, void *arg);
/* Whether anybody may see it. */
static inline bool box_seen(const struct box *b)
{
	return b->state != BOX_MAKING && b->state != BOX_ENDING && !b->pooled;
}
/* Ends one of a pool that is nobody's. Its room is free at once. */
void box_discard(struct box *b, const char *why);
/*
 * Everything of it is freed, but for its files and its processes: ERR_REFUSED when those cannot be carried, unless they
 * may end: then ->memory_refused says why. Connections to the outside are cut, or refused likewise.
 */
struct box_hibernate_opts {
	bool may_end, refuse_network;
};
void box_hibernate(struct box *b, const struct who *who, const struct box_hibernate_opts *o, box_done_fn *fn, void *arg);
/*
 * Whether it is awake, as far as it depends on us. If not it is woken up, and @w is told: 0, or why not. A sandbox that
 * was paused since nobody used it counts as asleep.
 */
bool box_awake(struct box *b, struct box_waiter *w);
/* One that sleeps wakes up without its processes, which end: for when they cannot go on. */
void box_forget_memory(struct box *b);
void box_wait_cancel(struct box *b, struct box_waiter *w);
/* What may change: timeout (ms, UINT64_MAX = as is), idle, name, metadata (taken over; NULL = as is). Stored with the turn. */
int box_update(struct box *b, const struct who *who, uint64_t timeout_ms, const struct want_idle *idle,
	       const char *name, struct kv *metadata, struct err *e);
/* ->stat is fresh when @fn is called. */
void box_stat(struct box *b, box_done_fn *fn, void *arg);
/* Running, not paused, not lost; else ERR_CONFLICT, ERR_LOST. */
int box_ready(const struct box *b, struct err *e);
/* It is being used: now, and until box_rest. */
void box_use(struct box *b);
void box_rest(struct box *b);
/* It is being looked at: it does not fall asleep meanwhile, and is no later idle for it. */
void box_look(struct box *b);
void box_looked(struct box *b);
void box_ref(struct box *b);
void box_unref(struct box *b);
/* For adoption, src/service/state/adopt.c. */
struct box *box_load(struct service *s, const struct box_row *row, struct err *e);
int box_attach(struct box *b, int sock, const struct msg_receipt *receipt, struct err *e);
void box_lose(struct box *b, const char *why);
bool box_gone(struct box *b); /* the warden does not have it any more. Returns whether that was news */
int box_store(struct box *b, struct err *e);
/* Attaches to its agent when it is not: after a pause that was long, or when the agent let go of us. */
void box_reattach(struct box *b);
/* It should run, whatever has frozen it. @first: before what waits for the warden. Tried again until it does. */
void box_thaw(struct box *b, bool first);
/* Asks for a further exec group ahead. */
void box_want_group(struct box *b);
void box_drop_group(struct box *b); /* that was at hand; the warden is not told */
/* An exec is over for good. Its agent and the warden are told with others, or not at all when the box goes first. */
void box_put_off(struct box *b, uint32_t exec, uint64_t group);
void box_flush(struct box *b);
/* Notes what a repeated request shall get: the id of what was made. Together with that, in one transaction. */
int idem_note(struct service *s, const struct tenant *t, const char *key, const uint8_t body[32], const char *answer,
	      struct err *e);
