/* The members of a sandbox: for the rooms of service/, which share them. Others use the functions of sandbox.h. */
#pragma once
#include "engine/sandbox/sandbox.h"
#include "service/link/agent_link.h"
#include "service/sandbox/sandbox.h"
#include "service/struct.h"
#include "warden/msg.h"

struct context;
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
	struct exec *over, **over_last; /* of these, the ones that have ended, the first to end first */
	unsigned nexecs, running, nover;
	uint64_t newest_over_ns; /* when the last of them ended */
	unsigned waiting; /* of these, the ones that have not begun */
	uint32_t next_exec;
	int group; /* a descriptor to join group_no by, for the next exec; -1 = none */
	int group_code; /* the same for a fork of the warm process, of user group_uid; -1 = none */
	uint32_t group_uid; /* 1 + the user of such forks, 0: there were none */
	uint64_t group_no;
	uint64_t ended_group; /* not needed any more; sent to the warden with the next request for one, or soon */
	uint32_t release[RELEASES_MAX]; /* execs that the agent can forget; sent soon */
	unsigned nrelease;
	unsigned unstored; /* execs that get a row soon */
	struct warden_stat stat; /* as last read */
	struct sandbox_op *making; /* the call that waits until it is ready */
	unsigned refs; /* it is not freed while > 0 */
	struct pool *pool; /* it counts for, or NULL */
	bool pooled; /* ready and not handed out: hidden */
	struct sandbox *ready_next, **ready_prev; /* of the pool's */
	uint64_t system_open, system_asked; /* handles: in which /usr can be changed; of which that was asked for */
	struct file_late *late; /* of service/file/late.c */
	struct file_worker *files; /* idle, of service/file/file.c */
	struct port *ports; /* of service/port/port.c */
	struct context *contexts; /* of service/context/context.c, oldest first */
	struct port_use *port_uses; /* requests from outside, not in the audit log yet */
	uint32_t file_tag;
	struct sandbox_secrets *secrets; /* NULL: it has none. See service/secret/give.h */
	bool promoting; /* a fork's changes are being brought into it */
	struct tenant_quota charged; /* what its tenant has used up for it */
	char *image_held; /* of service->image_hold(), or NULL */
	const struct sandbox_maker *maker; /* while it is made */
	void *maker_arg;
	struct swap *swap; /* another is made to take its place */
	struct sandbox_queued *queue; /* calls that wait for another change of it to be over: service/sandbox/queue.h */
	struct limiting *limiting; /* its limits change: service/sandbox/limit.c */
	struct sealing *sealing; /* requests to seal its files; the first is under way */
	char *restored; /* JSON: what came of its checkpoint; NULL = it is of none */
	/* State HIBERNATED: what was kept. Its newest layer is held then. */
	enum { ASLEEP_NOT, ASLEEP_FILES, ASLEEP_MEMORY } asleep;
	uint64_t tried_ns; /* not to be hibernated by itself again before */
	bool idle_refused; /* to be hibernated by itself: the log has the reason */
	bool idle_paused; /* by itself: a call resumes it */
	bool thaw_due; /* it should run, and could not be thawed yet: the warden was at a seal whose caller is gone */
	char *cut; /* JSON: connections to the outside that its processes lost when they were copied last, or NULL */
	char *memory_refused; /* why it sleeps without its processes, or NULL */
	struct sleep *sleep; /* it falls asleep */
	bool let_go; /* of its execs' pipes: the agent has them, and gives them again */
	bool missed; /* since then an exec has ended */
	bool hands_off; /* its pipes are being copied: they are not read until it continues, or is ended */
	bool ask_again; /* which execs its agent has: some of the answer under way was not taken */
	bool turning; /* it wakes up, and that is not stored: what was read now would come twice if we died */
	bool waking;
	bool opened; /* stopped or lost, and the container for its files is ready: service/sandbox/disk.h */
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

/* Whether callers may see it. */
static inline bool sandbox_seen(const struct sandbox *b)
{
	return b->state != SANDBOX_MAKING && b->state != SANDBOX_ENDING && !b->pooled;
}
