/*
 * Work on layers for worker threads: sealing what a sandbox has changed into one, and comparing one with its manifest.
 * None of it touches the store's list (layers/layers.h) or anything of the sandbox but what it is given.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/id.h"
#include "engine/work.h"
#include "layers/manifest.h"
#include "layers/memory.h"
#include "linux/cgroup.h"
#include "vm/vmm/side.h"

enum seal_kind { SEAL_LAYER, SEAL_VERIFY, SEAL_SETTLE, SEAL_CLOSE, SEAL_PREALLOC /* these do not come back */ };

/* What comes back from workers_done(). */
struct seal {
	struct work work;
	enum seal_kind kind;
	void *tag; /* the caller's own */
	int result;
	struct err e;
	struct manifest m; /* SEAL_LAYER: given but for the sums; SEAL_VERIFY, SEAL_SETTLE: given, and as it is now */
	uint64_t pause; /* ns that the sandbox did not run */
	struct memory_cuts cuts; /* of its memory */
	struct seal_impl *impl;
};

struct copy_pipeline_spare;
struct settles;
struct layer_prealloc;
struct watch;

/* Who stands on so many is sealed together with some of them (older kernels take some twelve). */
#define SEAL_LAYERS 12

/* One of a machine's own disks. */
struct seal_disk {
	uint32_t number; /* as cloche-vmm knows it (vm/vmm/side.h) */
	int fd;
	/* Of one that is not written any more: what a layer has of it, which others can have, too; -1: none. And its sums. */
	int copy;
	uint8_t (*sum)[SHA256_SIZE];
};
void seal_disk_done(struct seal_disk *d);

enum seal_save { SEAL_NOT_ASKED, SEAL_ASKED, SEAL_REFUSED, SEAL_SAVED };

struct crypt;

struct seal_source {
	int dir; /* the store; stays the caller's */
	struct watch *watch; /* of the store; likewise, or NULL */
	int writable; /* the sandbox's writable layer, a folder; stays the caller's while seal_busy() */
	uint32_t uid_base;
	struct copy_pipeline_spare *spare; /* stays the caller's, or NULL */
	struct layer_prealloc *prealloc; /* of ->dir; likewise */
	uint64_t *promised; /* bytes that all those under way may write; likewise, and atomic */
	struct settles *settles; /* likewise, or NULL */
	bool soon; /* the layer comes back unsettled (layers/settle.h) */
	uint32_t unsettled; /* layers the sandbox stands on that are so */
	char unsettled_id[SPEC_LAYERS][ID_SIZE];
	bool paused; /* it is frozen, and stays so */
	const struct cgroup_host *cgroups;
	const struct cgroup *cgroup; /* must stay while seal_busy() */
	/* Layers the sandbox stands on that become part of the new one, the newest first; held by the caller. */
	uint32_t joins;
	char join[SPEC_LAYERS][ID_SIZE];
	uint64_t join_bytes;
	uint32_t below; /* bits of layer_trees[] that any layer it stands on has */
	/* With memory: the agent's table, taken over by seal_start(). -1: files only, and the rest means nothing. */
	int table;
	uint64_t limit; /* of the sandbox's memory; 0: none */
	bool refuses_network; /* not with connections to the outside */
	const struct crypt *crypt; /* of memory; stays the caller's */
	int program; /* cloche-dump; stays the caller's */
	int pidfd; /* the agent's; likewise, while seal_busy() */
	pid_t pid;
	/*
	 * Of a virtual machine: cloche-vmm's socket, and nobody else's while seal_busy(); -1: a container. Then its disks, taken
	 * over by seal_start(): those that become the layer's, and one that is put on top of them. Some may be joined first. Of
	 * ->join only the memory is left to be joined: what is on their disks is in the machine's own by then.
	 */
	int side;
	uint32_t disks;
	struct seal_disk disk[VM_CHAIN_MAX];
	bool joins_disks, joins_or_not; /* into the one that is written, all above number ->base; and it may go on without */
	uint32_t base;
	uint64_t memory; /* its size */
	uint8_t key[SHA256_SIZE]; /* its template */
	char restored[ID_SIZE]; /* the layer whose memory it was made from, "": none */
};

/* Copies while the sandbox is frozen, then sums up, writes to disk and makes the layer visible while it runs on. */
int seal_start(struct workers *s, const struct seal_source *from, const struct manifest *m, void *tag,
	       struct seal **ret, struct err *e);
/* Whether the sandbox is still needed. */
bool seal_busy(struct seal *x);
/* /usr can be changed from now on: the layer says so if it may be of a later moment. */
void seal_system(struct seal *x);
/* Gives up if it still needs the sandbox, and returns when it does not any more. */
void seal_leave(struct seal *x);
/* An unsettled one is settled first. */
int seal_verify(struct workers *s, int dir, struct watch *watch, struct settles *settles, const struct manifest *m, void *tag,
		struct err *e);
/* Settles the layer that @x came back with; it comes back again. */
void seal_settle(struct workers *s, struct seal *x);
/* The same, of one that an earlier warden has left so. */
int seal_settle_found(struct workers *s, int dir, struct watch *watch, struct settles *settles, const struct manifest *m);
/* Closes @fd, taken over: some take a wait in the kernel. */
void seal_close(struct workers *s, int fd);
/* Fills @prealloc, which stays the caller's. */
void seal_prealloc(struct workers *s, struct layer_prealloc *prealloc);
void seal_free(struct seal *x);
/* The same, of one that came back, by a worker and at leisure. */
void seal_retire(struct workers *s, struct seal *x);
