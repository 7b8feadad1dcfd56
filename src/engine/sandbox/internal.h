/* The warden's and its sandboxes' state: only for the files of this library. */
#pragma once
#include "engine/blank/blank.h"
#include "engine/kernel_memory/watch.h"
#include "engine/pool/pool.h"
#include "engine/rootfs/root.h"
#include "engine/sandbox/group.h"
#include "engine/sandbox/sandbox.h"
#include "engine/tier.h"
#include "layers/layers.h"
#include "layers/seal.h"

struct warden_sandbox {
	struct warden_sandbox *next, **prev;
	struct blank blank;
	struct root root;
	struct warden_receipt receipt;
	uint64_t handle;
	struct groups groups;
	uint64_t memory;
	bool frozen;
	bool parked; /* what can be opened again is closed: see sandbox_park() */
	uint64_t no_who; /* no search for owners of connections before this time: the last one took too long */
	bool late; /* it was made without a way out, and given one */
	/* For layers sealed from it: its tenant and flags, and what it is based on. */
	uint64_t tenant;
	uint32_t flags, layers;
	char image[SPEC_PATH];
	char layer[SPEC_LAYERS][ID_SIZE];
	struct sealing *sealing; /* under way, and it may still need us; or NULL */
	struct restoring *restoring; /* its processes are not there yet; or NULL */
	struct kernel_watched *watched; /* NULL: no memory limit, or a machine */
	const struct tier_ops *tier;
	struct machine *vm; /* what runs in it, when it is a virtual machine's jail; or NULL (vm/host/host.h) */
};

/* A seal's tag: the sandbox may end before it does. */
struct sealing {
	struct seal *seal;
	struct warden_sandbox *sandbox; /* NULL: it has ended */
	void *tag;
	uint32_t layers; /* held until it is done */
	char layer[SPEC_LAYERS][ID_SIZE];
	struct sealing *next, **prev;
};

struct warden {
	struct env env;
	const struct tier_ops *const *tiers; /* NULL ends them; without a list: containers only */
	struct pool *pool; /* NULL: everything in the calling thread */
	struct blank_start start;
	struct guard guard; /* without a pool: of the last sandbox made */
	struct warden_sandbox *alive;
	struct warden_counts counts;
	struct kernel_watch *kernel; /* what no memory group counts */
	struct layers *layers; /* NULL: none here */
	struct workers *workers; /* for them */
	struct layer_children *children; /* make and check layers */
	uint64_t promised; /* bytes those seals may write; atomic */
	struct sealing *sealings;
	struct settles *settles;
	struct seal *unsettled; /* by ->work.next: answered, and settled in a moment */
	int later; /* a clock for those, or -1 */
	struct seal *retired; /* reported by warden_done() last: freed after that */
	struct restoring *restorings;
	int done, timer; /* an epoll: workers, agents that restore, a clock for those; -1 without layers */
	struct comparing *comparing; /* see engine/sandbox/compare.c */
	struct vms *vms; /* NULL: no virtual machine yet */
};

/* --- sandbox.c --- */
/* What is known of it before it is made: a container. */
int sandbox_new(const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e);
/* The container. Its agent is setting it up when this returns; on failure nothing is left but @s. */
int sandbox_make(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox *s, struct err *e);
/* From now on it outlives us. */
int sandbox_persist(struct warden *w, struct warden_sandbox *s, struct err *e);
/* It is one of those there are. */
void sandbox_show(struct warden *w, struct warden_sandbox *s);
/* The end of one that is not. */
int sandbox_end(struct warden *w, struct warden_sandbox *s, struct err *e);
/* Starts the workers, and the epoll that reports finished work. Once. */
int sandbox_workers(struct warden *w, struct err *e);

/* Lets go of what comparisons that are over have held; all of them, stopped if need be. */
/* Ends comparisons that are over. The number of the others. */
unsigned warden_compare_reap(struct warden *w);
void warden_compare_end(struct warden *w);

/* --- net.c --- */
/* Changes a blank's network to what @spec asks for, whatever it was prepared for. */
int net_fit(struct warden *w, struct blank *s, const struct sandbox_spec *spec, struct err *e);

/* --- system.c --- */
/* Whether a sandbox of @spec, with SPEC_SYSTEM_LATER, can start without a writable /usr. */
bool system_later(const struct warden *w, const struct sandbox_spec *spec);

/* --- restoring.c --- */
int restoring_open(struct warden *w, struct err *e);
void restoring_close(struct warden *w);
/* Behind KEEP. */
int restoring_start(struct warden *w, struct warden_sandbox *s, struct err *e);
/* Does not wait for it any more. */
void restoring_leave(struct warden *w, struct warden_sandbox *s);
bool restoring_done(struct warden *w, struct warden_done *ret);

/* --- sealing.c --- */
/* Refuses a spec with layers that were not checked before (warden_layers_ready). */
int sealing_check(struct warden *w, const struct sandbox_spec *spec, struct err *e);
/* The sandbox ends, for us at least: a seal that still needs it is given up. */
void sealing_leave(struct warden *w, struct warden_sandbox *s);
void sealing_end_all(struct warden *w);
/* What an earlier warden has answered, and not settled. */
void sealing_settle_found(struct warden *w);
