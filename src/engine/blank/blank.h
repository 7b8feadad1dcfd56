/* An anonymous sandbox: namespaces, cgroups and a locked agent, but no image yet. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/blank/env.h"
#include "linux/cgroup.h"
#include "linux/ns.h"
#include "linux/steer.h"

/*
 * What is left of an ended sandbox and can serve the next of the same tenant: its slot and user ids, its cgroups, as
 * good as new, and its network namespace. Making these anew is a third of what a sandbox costs.
 */
#define GROUND_MEMBERS                                                                                                   \
	bool valid; /* of struct ground: there is one */                                                                 \
	uint32_t slot;                                                                                                   \
	int slot_fd; /* holds its lock, where sandboxes are kept (engine/blank/persist.h); or -1 */                      \
	int net; /* its network namespace, kept only when ->start asked for it; or -1 */                                 \
	bool steered; /* ->rules are in force there */                                                                   \
	struct steer_rules rules;                                                                                        \
	uint64_t tenant;                                                                                                 \
	struct cgroup cgroup;                                                                                            \
	int tree; /* the base with these groups (engine/image/group_tree.h), for the next on the same slot; -1 = none */ \
	uint64_t shown; /* the processors that the agent's base shows: as in struct group_tree */                        \
	bool grouped; /* it may have children; of struct ground: exec group 1 is there, as good as new */                \
	bool limited; /* ->limits are in force */                                                                        \
	struct cgroup_limits limits

struct ground {
	GROUND_MEMBERS;
};

struct blank {
	union {
		struct ground ground;
		struct {
			GROUND_MEMBERS;
		};
	};
	uint32_t uid_base; /* 0 when rootless */
	pid_t pid;
	int pidfd; /* -1 = no blank */
	int sock; /* the host's end of the agent's control socket */
	int userns;
	int way[STEER_SOCKETS]; /* sockets of its network, until they are handed out; -1: none */
	bool used; /* it has a recycled slot, which a sandbox of ->tenant has left */
	/* The rest belongs to persistent sandboxes (engine/blank/persist.h); for others it is -1 or false. */
	/*
	 * after KEEP was sent ahead: an open file of slots that the agent has as well, by which it will hold the slot.
	 * -1: not sent ahead, or already in effect
	 */
	int again;
	int take, give; /* the ends of the rendezvous; ->take is -1 once the agent has it */
	int table; /* the agent's table of execs (proto/table.h); -1 once the agent has it: then see persist_table() */
	int group; /* the file by which processes join exec group 1, until it is handed out */
	bool recorded; /* its record exists, and must be cleared at its end */
	bool adopted; /* an earlier warden made it, so its agent is not our child */
	bool heard; /* the agent is known to have received KEEP */
	uint64_t started; /* the agent's start time, as in /proc/PID/stat */
};

struct stash;
#define BLANK_LOW (3 + CGROUP_CONTROLLERS)

/*
 * What the new process uses of our memory until it executes the agent. Do not reuse it before the agent's first frame.
 */
struct blank_start {
	_Alignas(16) char stack[NS_STACK_SIZE];
	/* the image whose device folder and base are copied; opened in the caller's mount namespace */
	const struct image_host *image;
	/* what an ended sandbox has left, to be used again; taken over if it is valid. NULL: nothing */
	struct ground *ground;
	unsigned cpus; /* processors that the sandbox will probably show; 0: unknown */
	struct group_tree tree; /* what was copied for the last one; only with one image */
	const struct device_plan *devices; /* device nodes for this sandbox only; NULL: none */
	uint32_t uid, gid; /* owner of these nodes, as seen inside */
	const struct steer_rules *steer; /* rules of its network; NULL: no network */
	bool keep_net; /* keep the network namespace's descriptor in the blank */
	/*
	 * Reserved low descriptor numbers for what the new process needs. The clone then copies only a short table: a
	 * warden of many sandboxes has thousands of descriptors. ->nlow 0: it copies all of them. The pool makes
	 * several blanks at a time, each with its own struct.
	 */
	int low[BLANK_LOW];
	unsigned nlow, limit; /* all descriptors that are needed are below ->limit */
	int agent, null, dev, base, sock, peer;
	int join[CGROUP_CONTROLLERS];
	unsigned njoin;
	uint32_t single_id;
	char single[24 + CGROUP_WHERE_MAX], fault[64]; /* the agent's arguments */
	int error; /* why it did not become the agent */
	/*
	 * the holder that makes the agent as a copy of itself (engine/blank/stash.h); needs ->keep_net. NULL: the agent
	 * is started from its program
	 */
	struct stash *stash;
	struct guard *guard; /* a guard to start before anything is made that would need cleaning up; NULL: none */
};

void blank_init(struct blank *s);
/* The agent's user as the host sees it; 0 when rootless. */
uid_t blank_agent_uid(const struct blank *s);
/*
 * @single_id: without root, the id the sandbox's user shall have (the only one mapped). The agent is starting when
 * this returns; its READY is the first frame on ->sock. Nothing is left behind on failure.
 */
int blank_make(struct env *v, struct blank_start *start, unsigned controllers, uint32_t single_id, struct blank *ret,
	       struct err *e);
/* Takes only a slot and makes its control groups; blank_end() removes both. */
int blank_place(struct env *v, struct blank *s, unsigned controllers, struct err *e);
/* Reserves the numbers of ->low. 0, or -errno and nothing is reserved. */
int blank_start_reserve(const struct env *v, struct blank_start *start);
/*
 * Closes the descriptors that were opened for the agent. Call it after the agent's first frame or death, and before you
 * read ->sock for the end of the agent.
 */
void blank_start_release(const struct env *v, struct blank_start *start);
void blank_start_done(struct blank_start *start);
/*
 * A process that outlives the caller for a moment: when the caller dies before blank_end, it removes the sandbox's
 * cgroups, killing what is left in them. It starts before them, shares the caller's memory, and does nothing until
 * then. Processes that are in no cgroup (without root) end when the agent's socket closes.
 */
struct guard {
	_Alignas(16) char stack[2 * NS_STACK_SIZE];
	const struct env *env;
	struct cgroup cgroup; /* its name and controllers */
	int pipe; /* the guard's end */
	int hold; /* ours: closed by our death; a byte ends the guard */
	pid_t pid; /* 0 = none */
	void (*dismiss)(struct guard *g);
	void (*end)(struct guard *g);
};
/* The sandbox is gone: lets the guard go without waiting for it. */
static inline void guard_dismiss(struct guard *g)
{
	if (g->pid)
		g->dismiss(g);
}
/* The same, but waits until the guard has ended. */
static inline void guard_end(struct guard *g)
{
	if (g->pid)
		g->end(g);
}

/*
 * Kills the agent, waits until every process is gone, removes the cgroups and frees the slot. Accepts a half-made
 * blank.
 */
int blank_end(struct env *v, struct blank *s, struct err *e);
/* As blank_end(), but writes to *ret what the next sandbox can use. ret->valid is false if there is nothing. */
int blank_end_keep(struct env *v, struct blank *s, struct ground *ret, struct err *e);
void ground_init(struct ground *g);
/* Removes what @g holds. Does nothing if it is not valid. */
void ground_end(struct env *v, struct ground *g);
