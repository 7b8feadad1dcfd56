/* An anonymous sandbox: namespaces, cgroups and a locked agent, but no image yet. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "engine/blank/env.h"
#include "linux/cgroup.h"
#include "linux/ns.h"
#include "linux/steer.h"

struct blank {
	uint32_t slot;
	uint32_t uid_base; /* 0 when rootless */
	pid_t pid;
	int pidfd; /* -1 = no blank */
	int sock; /* the host's end of the agent's control socket */
	int userns;
	int net; /* its network namespace, kept only when ->start asked for it */
	bool steered; /* ->rules are in force there */
	struct steer_rules rules;
	int way[STEER_SOCKETS]; /* sockets of its network, until they are handed out; -1 */
	bool used; /* it uses what a sandbox of ->tenant left (a recycled slot) */
	uint64_t tenant;
	struct cgroup cgroup;
	int tree; /* the base with these groups (engine/image/group_tree.h), for the next on the same slot; -1 = none */
	bool limited; /* ->limits are in force */
	struct cgroup_limits limits;
	/* Of a sandbox that is kept (engine/blank/persist.h), else -1 and false. */
	int slot_fd; /* holds its slot's lock */
	/* the agent's own file of slots, which will hold it: KEEP was sent ahead; -1 when it was not, or has come */
	int again;
	int take, give; /* the rendezvous; ->take until the agent has it */
	int table; /* proto/table.h, likewise: persist_table() takes it back */
	int group; /* what members of exec group 1 join by, until it was handed out */
	bool grouped; /* its cgroup may have children */
	bool recorded; /* there is a record to be cleared */
	bool adopted; /* another warden's, so not our child */
	bool heard; /* what KEEP brought is on its places, as far as we looked */
	uint64_t started; /* its start time, as in /proc/PID/stat */
};

/*
 * What is left of an ended sandbox and can serve the next of the same tenant: its slot and user ids, its cgroups, as
 * good as new, and its network namespace. Making these anew is a third of what a sandbox costs.
 */
struct ground {
	bool valid;
	uint32_t slot;
	int slot_fd; /* holds its lock, or -1 */
	int net;
	bool steered;
	struct steer_rules rules; /* in force in ->net */
	uint64_t tenant;
	struct cgroup cgroup;
	int tree; /* as in struct blank */
	bool grouped; /* exec group 1 is there, as good as new */
	bool limited;
	struct cgroup_limits limits;
};

struct stash;
#define BLANK_LOW (3 + CGROUP_CONTROLLERS)

/* What the new process runs on until it becomes the agent. Not to be used again before the agent's first frame. */
struct blank_start {
	_Alignas(16) char stack[NS_STACK_SIZE];
	const struct image_host *image; /* whose dev and base are copied, in the caller's mount namespace */
	struct ground *ground; /* to build on, taken over when valid; NULL = none */
	const struct device_plan *devices; /* nodes of its own; NULL = none */
	uint32_t uid, gid; /* inside: whose those are */
	const struct steer_rules *steer; /* the way out its network namespace is to have; NULL = none */
	bool keep_net; /* keep the network namespace's descriptor in the blank */
	/*
	 * Numbers kept free for what the new process needs, so low that nothing else has to be copied for it: a warden
	 * of many sandboxes has thousands of descriptors. none: it gets a copy of all. The pool has several on their
	 * way.
	 */
	int low[BLANK_LOW];
	unsigned nlow, limit; /* all descriptors that are needed are below ->limit */
	int agent, null, dev, base, sock, peer;
	int join[CGROUP_CONTROLLERS];
	unsigned njoin;
	uint32_t single_id;
	char single[24 + CGROUP_WHERE_MAX], fault[64]; /* the agent's arguments */
	int error; /* why it did not become the agent */
	/* the agent is a copy of this holder's (engine/blank/stash.h); NULL = of the program. With ->keep_net */
	struct stash *stash;
	struct guard *guard; /* to be started before there is anything to clean up; NULL = none */
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
/* A slot and control groups alone, for blank_end to end. */
int blank_place(struct env *v, struct blank *s, unsigned controllers, struct err *e);
/* Reserves ->low. 0 or -errno, then nothing is reserved. */
int blank_start_reserve(const struct env *v, struct blank_start *start);
/* After the agent's first frame or its death, and before that is looked for on ->sock: lets go of what it was given. */
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
/* And waits. */
static inline void guard_end(struct guard *g)
{
	if (g->pid)
		g->end(g);
}

/* Kills it, waits until every process is gone, removes its cgroups and frees its slot. Accepts a half-made one. */
int blank_end(struct env *v, struct blank *s, struct err *e);
/* As blank_end, but leaves in *ret what can be used again; not valid when nothing can. */
int blank_end_keep(struct env *v, struct blank *s, struct ground *ret, struct err *e);
void ground_init(struct ground *g);
/* Removes it. Accepts one that is not valid. */
void ground_end(struct env *v, struct ground *g);
