/* What a warden knows of itself and its sandboxes: for the files that make it up, nobody else. */
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
	uint64_t no_who; /* until then nobody's connection is looked for: the last time took too long */
	bool late; /* it was made without a way out, and given one */
	/* What a layer sealed from it says, and what it stands on. */
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
	const struct tier_ops *const *tiers; /* besides containers; NULL ends them, and there may be no list */
	struct pool *pool; /* NULL: everything in the calling thread */
	struct blank_start start;
	struct guard guard; /* without a pool: of the last sandbox made */
	struct warden_sandbox *alive;
	struct warden_counts counts;
	struct kernel_watch *kernel; /* what no memory group counts */
	struct layers *layers; /* NULL: none here */
	struct workers *workers; /* for them */
	struct copy_pipeline_spare *spare; /* for what they seal */
	struct layer_prealloc *prealloc; /* likewise */
	uint64_t promised; /* bytes those seals may write; atomic */
	struct sealing *sealings;
	struct settles *settles;
	struct seal *unsettled; /* by ->work.next: answered, and settled in a moment */
	int later; /* a clock for those, or -1 */
	struct seal *retired; /* told of by warden_done() last: its rest is cleared away after that */
	struct restoring *restorings;
	int done, timer; /* an epoll: workers, agents that restore, a clock for those; -1 without layers */
	struct comparing *comparing; /* see engine/sandbox/compare.c */
	struct vms *vms; /* NULL: no virtual machine yet */
};

/* --- sandbox.c --- */
extern const struct tier_ops container_tier;
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
/* Workers, and what tells that they are done. Once. */
int sandbox_workers(struct warden *w, struct err *e);

/* Lets go of what comparisons that are over have held; all of them, stopped if need be. */
void warden_compare_reap(struct warden *w);
void warden_compare_end(struct warden *w);

/* --- net.c --- */
/* Makes a blank's network what @spec wants, whatever it was made ready for. */
int net_fit(struct warden *w, struct blank *s, const struct sandbox_spec *spec, struct err *e);

/* --- system.c --- */
/* Whether a sandbox of @spec, which wishes so, can do without a writable /usr at first. */
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
/* What was not looked at before (warden_layers_ready) is not stood on. */
int sealing_check(struct warden *w, const struct sandbox_spec *spec, struct err *e);
/* The sandbox ends, for us at least: a seal that still needs it is given up. */
void sealing_leave(struct warden *w, struct warden_sandbox *s);
void sealing_end_all(struct warden *w);
/* What an earlier warden has answered, and not settled. */
void sealing_settle_found(struct warden *w);
