/*
 * Work on layers for worker threads: sealing the changes of a sandbox into a layer, and comparing a layer with its
 * manifest. It uses nothing of the store's list (layers/layers.h), and of the sandbox only what it is given.
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

enum seal_kind { SEAL_LAYER, SEAL_VERIFY, SEAL_SETTLE, SEAL_CLOSE, SEAL_FILL /* these have no result */ };

/* A result of workers_done(). */
struct seal {
	struct work work;
	enum seal_kind kind;
	void *tag; /* the caller's own */
	int result;
	struct err e;
	struct manifest m; /* SEAL_LAYER: given without the sums; SEAL_VERIFY, SEAL_SETTLE: given, and updated */
	uint64_t pause; /* ns for which the sandbox was stopped */
	struct memory_cuts cuts; /* connections that were cut from its memory */
	struct seal_impl *impl;
};

struct layer_child;
struct layer_children;
struct settles;
struct watch;

/* A sandbox based on this many layers is sealed together with some of them (older kernels stack about twelve). */
#define SEAL_LAYERS 12

/* One of a virtual machine's own disks. */
struct seal_disk {
	uint32_t number; /* its number for cloche-vmm (vm/vmm/side.h) */
	int fd;
	/*
	 * Of a disk that is not written any more: its copy in a layer, which others may share; -1: none. And its sums.
	 */
	int copy;
	int sums; /* a file with the copy's sums */
};
void seal_disk_done(struct seal_disk *d);

enum seal_save { SEAL_NOT_ASKED, SEAL_ASKED, SEAL_REFUSED, SEAL_SAVED };

struct crypt;

struct seal_source {
	int dir; /* the store; stays the caller's */
	struct watch *watch; /* of the store; likewise, or NULL */
	int writable; /* the sandbox's writable layer, a folder; stays the caller's while seal_busy() */
	uint32_t uid_base;
	struct layer_children *children; /* of ->dir; likewise, not NULL */
	uint64_t *promised; /* atomic: bytes that all seals under way may write; likewise */
	struct settles *settles; /* likewise, or NULL */
	bool soon; /* the layer is returned unsettled (layers/settle.h) */
	uint32_t unsettled; /* how many of its layers are unsettled */
	char unsettled_id[SPEC_LAYERS][ID_SIZE];
	bool paused; /* it is frozen, and remains frozen */
	const struct cgroup_host *cgroups;
	const struct cgroup *cgroup; /* must stay while seal_busy() */
	/* Layers of the sandbox that become part of the new one, the newest first; held by the caller. */
	uint32_t joins;
	char join[SPEC_LAYERS][ID_SIZE];
	uint64_t join_bytes;
	uint32_t below; /* bits of layer_trees[] that any of its layers has */
	/*
	 * With memory: the agent's table, owned after seal_start(). -1: files only, and the fields below are not used.
	 */
	int table;
	uint64_t limit; /* of the sandbox's memory; 0: none */
	bool refuses_network; /* connections to the outside make it fail */
	const struct crypt *crypt; /* key of the memory; stays the caller's */
	int program; /* cloche-dump; stays the caller's */
	int pidfd; /* the agent's; likewise, while seal_busy() */
	pid_t pid;
	/*
	 * Of a virtual machine: cloche-vmm's socket, used by the seal alone while seal_busy(); -1: a container. Then
	 * its disks, owned after seal_start(): those that become the layer's, and one that is put on top of them. Some
	 * may be joined first. Of ->join only the memory is still to be joined: the content of their disks is in the
	 * machine's own by then.
	 */
	int side;
	uint32_t disks;
	struct seal_disk disk[VM_CHAIN_MAX];
	/* joins all disks above number ->base into the one that is written; and a failure of that is ignored */
	bool joins_disks, joins_or_not;
	uint32_t base;
	uint64_t memory; /* its size */
	uint8_t key[SHA256_SIZE]; /* its template */
	char restored[ID_SIZE]; /* the layer whose memory it was made from, "": none */
};

/*
 * Copies while the sandbox is frozen; then it runs on while the copy is summed up, written to the disk and given its
 * name.
 */
int seal_start(struct workers *s, const struct seal_source *from, const struct manifest *m, void *tag,
	       struct seal **ret, struct err *e);
/* Whether the seal still needs the sandbox. */
bool seal_busy(struct seal *x);
/* /usr is writable from now on: the layer says so if it may contain changes from after this call. */
void seal_system(struct seal *x);
/* Cancels the seal if it still needs the sandbox, and returns when it does not any more. */
void seal_leave(struct seal *x);
/* Of @of only the store's fields are used. An unsettled layer is settled first. */
int seal_verify(struct workers *s, const struct seal_source *of, const struct manifest *m, void *tag, struct err *e);
/* Settles the layer that is the result @x; @x is returned again. */
void seal_settle(struct workers *s, struct seal *x);
/* The same for a layer that an earlier warden has left unsettled. */
int seal_settle_found(struct workers *s, const struct seal_source *of, const struct manifest *m);
/* Closes @fd, which it takes over: closing some descriptors waits in the kernel. */
void seal_close(struct workers *s, int fd); /* @s: NULL: at once */
/* Has a folder for the next layer made ahead. First returns what @x, if any, does not need any more. */
void seal_fill(struct workers *s, struct layer_children *children, struct seal *x);
void seal_free(struct seal *x);
/* The same for a result, by a worker with low priority. */
void seal_retire(struct workers *s, struct seal *x);
