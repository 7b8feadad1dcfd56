/*
 * Makes and ends sandboxes. Used in-process by `cloche run` and by cloche-warden, which serves it over a socket
 * (warden/msg.h). A sandbox that was handed out is controlled through its agent's socket.
 *
 * Calls come from one thread. With a pool, two threads of the warden's own make blanks ahead and clean up behind.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/blank/env.h"
#include "engine/image/disk.h"
#include "engine/kernel_memory/kind.h"
#include "engine/kernel_memory/socket_owner.h"
#include "engine/spec.h"
#include "layers/layers.h"
#include "layers/memory.h"
#include "linux/cgroup.h"
#include "proto/frame.h"

struct kernel_looker;
struct tier_ops;
struct warden;
struct warden_sandbox;

struct warden_opts {
	struct env_opts env;
	const struct tier_ops *const *tiers; /* tier/tiers.h: a list that NULL ends; NULL: containers only */
	const struct kernel_looker *looker; /* who looks at kernel memory (engine/kernel_memory/looker.h) */
	/* Blanks kept ready; 0 = none: everything happens in the calling thread. Needed with ->env.state. */
	unsigned pool;
	unsigned sockets; /* of the internet a sandbox may have, where the kernel bounds them; 0 = by its memory */
	/* percent of the host's pools for all sandboxes of a tenant (engine/kernel_memory/pools.h); 0 = KERNEL_POOLS_PERCENT */
	unsigned tenant_share;
};

/* What is in force for a sandbox, beyond what every sandbox has; sandbox_enforced() puts it into words. */
struct warden_receipt {
	uint32_t cgroup_version, controllers;
	uint32_t landlock_abi; /* known once the agent is ready: filled by the reader of READY */
	uint32_t filter_len;
	uint32_t uid_base; /* inside id 0 is this one outside; 0 without root */
	bool idmapped, rootless;
	uint32_t sockets; /* of the internet, bounded by BPF; 0 = not */
	/* percent of the host's pools, for all sandboxes of its tenant; 0 = there are no tenants */
	uint32_t tenant_share;
	bool kvm; /* a machine that is not emulated */
	uint64_t disk, inodes; /* as enforced */
	/* 0: its processes are not a layer's. Else WARDEN_RESTORED, and what was done before they ran: FRAME_RESTORED_*. */
	uint32_t restored;
};
#define WARDEN_RESTORED (1U << 31)

int warden_new(const struct warden_opts *o, struct warden **ret, struct err *e);
/* Ends every sandbox, unless this one keeps them, and waits until all is cleaned up. */
void warden_free(struct warden *w);
DEFINE_AUTO(struct warden, warden_free)

/*
 * The agent is setting the sandbox up when this returns: READY and UP, or FAILED, come on the socket, and execs may be
 * sent already. On failure everything is removed. 1, with SPEC_MEMORY in a warden that persists sandboxes, and for a tier
 * that takes longer in any: its processes are being restored, or the machine is being made, and it comes back by
 * warden_done(); until then it must not be handed out.
 */
int warden_create(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e);
/* With which tag it comes back. */
void warden_restoring(struct warden_sandbox *s, void *tag);
/*
 * Kills the sandbox and cleans up: before returning when there is no pool, else behind the caller's back. A step that
 * fails is retried, logged, counted.
 */
int warden_destroy(struct warden *w, struct warden_sandbox *s, struct err *e);

/* Names it for good, also to the next warden. Never 0. */
uint64_t warden_handle(const struct warden_sandbox *s);
/* The sandboxes there are, in no order: NULL = the first, returns NULL at the end. */
struct warden_sandbox *warden_next(struct warden *w, struct warden_sandbox *s);
/* The agent's socket and the first process; both stay the sandbox's. The socket is -1 once it was let go. */
int warden_sock(const struct warden_sandbox *s);
/* In a warden that persists sandboxes: the process with a copy of the socket is the agent's host from now on. */
void warden_let_go(struct warden_sandbox *s);
/* Another socket for the agent, the caller's: it turns to that one. -1 in a warden that does not keep. */
int warden_attach(struct warden_sandbox *s, int *ret_sock, struct err *e);
/*
 * Exec groups: the processes of one can be ended together, and remain part of the sandbox. *ret_fd is the caller's;
 * writing "0" there joins.
 */
int warden_group(struct warden *w, struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e);
/*
 * The descriptor of warden_group() only moves the agent's own children, so that its holder cannot move other processes.
 * This one moves processes that run as @uid inside already, as forks of a warm process do.
 */
int warden_group_for(struct warden *w, struct warden_sandbox *s, uint32_t group, uint32_t uid, int *ret_fd,
		     struct err *e);
/* Group 1 is made ahead in a warden that keeps; -1 where there is none. The caller's, once. */
int warden_first_group(struct warden_sandbox *s);
/* While the sandbox is frozen (version 1) the processes die when it thaws. */
int warden_group_kill(struct warden *w, struct warden_sandbox *s, uint32_t group, struct err *e);
int warden_group_end(struct warden *w, struct warden_sandbox *s, uint32_t group, struct err *e);
int warden_pidfd(const struct warden_sandbox *s);
pid_t warden_pid(const struct warden_sandbox *s);
const struct warden_receipt *warden_receipt(const struct warden_sandbox *s);
/* Why the agent did not even start, as -errno; 0 when it did or nothing is known. */
int warden_start_error(const struct warden *w);

struct warden_stat {
	struct cgroup_stat group;
	uint64_t disk_used, disk_size, inodes_used, inodes_size;
	struct kernel_usage kernel; /* not part of ->group.memory; its kills are part of ->group.oom_kills */
};
int warden_stat(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret);
/* memory.stat of its group, unchanged; only with control groups of version 2. */
int warden_memory_stat(const struct warden_sandbox *s, char *text, size_t size);
int warden_freeze(struct warden *w, struct warden_sandbox *s, struct err *e);
int warden_thaw(struct warden *w, struct warden_sandbox *s, struct err *e);

/*
 * Sealing, in a warden with ->env.layers: what the sandbox has changed becomes layer @id. Begins here, is done by a
 * worker, and comes back by warden_done() with @tag. The sandbox is frozen only while it is copied; meanwhile it cannot
 * be frozen, thawed or sealed again (ERR_CONFLICT), and destroying it gives up the seal. With memory: an image of its
 * processes becomes part of the layer (docs/design/0007-memory.md), or no layer is made. Soon: likewise, and it comes
 * back before it is safe on the disk (layers/settle.h).
 */
enum warden_what { WARDEN_FILES, WARDEN_WITH_MEMORY, WARDEN_MEMORY_SOON };
#define WARDEN_REFUSE_NETWORK 4U /* with memory, in a request: refused where a connection to the outside would be cut */
int warden_seal(struct warden *w, struct warden_sandbox *s, const char *id, uint32_t what, void *tag, struct err *e);
/* What its processes do not have any more, of connections that they had when they were saved. */
void warden_cuts(struct warden *w, const struct warden_sandbox *s, struct memory_cuts *ret);
/*
 * Before warden_create(): checks the spec's layers. 0: create can be called. 1: a layer's files are being compared with
 * its manifest, which comes back by warden_done(); then call again.
 */
int warden_layers_ready(struct warden *w, const struct sandbox_spec *spec, void *tag, struct err *e);
int warden_unseal(struct warden *w, const char *id, struct err *e);
/* The same, but it is moved to the quarantine (layers.h). */
int warden_put_aside(struct warden *w, const char *id, struct err *e);
/*
 * The next larger id after @id ("": the first). False: there is none, and ->users is the number of comparisons that still
 * hold layers.
 */
bool warden_layer_next(struct warden *w, const char *id, struct layer_facts *ret);
/*
 * Disks that outlive their sandboxes (spec.disk). The next larger id after @id ("": the first) into @ret, which is zero at
 * first and stays so when there is none. Removing: ERR_CONFLICT (-EBUSY) while a sandbox has it, or has not let go yet.
 */
int warden_disk_next(struct warden *w, const char *id, char *ret, struct err *e);
int warden_disk_remove(struct warden *w, const char *id, enum disk_end end, struct err *e);
/* How virtual machines run here, and why, one line. -EAGAIN until the first was asked for. */
int warden_accel(struct warden *w, bool *ret_kvm, char *why, size_t size);
/*
 * Finds it out, which may take seconds: -EAGAIN until then, call again whenever warden_done_fd() is readable, and warden_done()
 * was asked.
 */
int warden_accel_try(struct warden *w, bool *ret_kvm, char *why, size_t size, struct err *e);
/* What the first sandbox that is being made waits for, one line for people; "": nothing that takes long. */
void warden_doing(struct warden *w, char *ret, size_t size);
/* Readable when warden_done() has something; -1: never. */
int warden_done_fd(const struct warden *w);
enum warden_done_what {
	WARDEN_DONE_LOOKED, /* at a layer: when ->result is 0 ask warden_layers_ready() again */
	WARDEN_DONE_SEALED,
	WARDEN_DONE_RESTORED, /* or made; or not, then the sandbox is destroyed already */
};
struct warden_done {
	enum warden_done_what what;
	void *tag;
	int result;
	struct err e;
	struct manifest layer; /* sealed */
	uint64_t pause; /* ns; likewise */
	struct memory_cuts cuts; /* likewise */
	struct warden_sandbox *sandbox; /* restored; NULL when it failed */
	struct frame_restored restored; /* likewise */
};
/* False: nothing (more) is done. */
bool warden_done(struct warden *w, struct warden_done *ret);

/*
 * What differs between two states of one image, as a stream (proto/change.h) into a pipe whose end the caller gets: a
 * sandbox as it is just then, or sealed layers, or the image (a spec without layers). Layers: after warden_layers_ready().
 */
struct warden_compare {
	struct warden_sandbox *from, *to; /* or NULL, and: */
	const struct sandbox_spec *from_spec, *to_spec; /* image, tenant, kind of root; ->to_spec always */
	unsigned flags; /* DIFF_* of layers/diff.h */
	uint32_t max; /* entries, 0: all */
	int out; /* without @ret_fd: a pipe's end to write to, which is copied */
};
int warden_compare(struct warden *w, const struct warden_compare *c, int *ret_fd, struct err *e);

/*
 * The network of a sandbox made with SPEC_NET (linux/steer.h). The sockets that came with it, in the order of enum
 * steer_socket: the caller's, once; -1 where there are none (any more). Open copies of them keep the namespace
 * alive.
 */
void warden_net_sockets(struct warden_sandbox *s, int ret[STEER_SOCKETS]);
/*
 * Other rules, all at once or not at all; and when @ret_sockets is given, three new sockets: ERR_CONFLICT while a
 * process has the old ones. A sandbox made without SPEC_NET gets a network by this, with @ret_sockets (a policy may be
 * given while it runs); without them ERR_CONFLICT.
 */
/*
 * Other limits for one that runs: memory, pids, cpu_milli; 0: as it is. ERR_CONFLICT when more memory is in use and cannot be freed,
 * ERR_UNSUPPORTED for a virtual machine and what cannot change while it runs. On failure they are what they were.
 */
int warden_limits(struct warden *w, struct warden_sandbox *s, const struct spec_limits *want, struct err *e);
int warden_net(struct warden *w, struct warden_sandbox *s, const struct steer_rules *rules, int *ret_sockets,
	       struct err *e);
/* A TCP socket inside, not connected, for connections to a port there; of any sandbox. @family: 4 or 6. */
int warden_socket(struct warden *w, struct warden_sandbox *s, unsigned family, int *ret, struct err *e);

/* One TCP connection of a sandbox, or a sender of datagrams: addresses of the socket inside, which is the client's. */
struct warden_who {
	uint8_t family; /* 4 or 6 */
	uint8_t udp; /* 0 or 1 */
	uint16_t client_port, port; /* port: of ->addr, where it is connected to */
	uint16_t zero2;
	uint8_t client[16], addr[16]; /* IPv4 in the first four, the rest zero */
};
/* Looks at a bounded number of processes and descriptors, then gives up: 0 and pid 0. */
int warden_who(struct warden *w, struct warden_sandbox *s, const struct warden_who *who, struct socket_owner *ret,
	       struct err *e);
/* What the kernel refused of late, up to STEER_DENIED; returns how many. */
int warden_denied(struct warden *w, struct warden_sandbox *s, struct steer_denied ret[STEER_DENIED], struct err *e);

/*
 * Of a sandbox made with SPEC_SYSTEM_LATER: from now on /usr is writable for users with the right to; for others this
 * does nothing. Running processes see the change; open files stay the same.
 */
int warden_system(struct warden *w, struct warden_sandbox *s, struct err *e);

struct warden_counts {
	unsigned alive, ready, cleaning;
	uint64_t made, ended, cleanup_retries, cleanup_failures;
	uint64_t locked_ns; /* how long the pool's lock was held; not in messages */
};
void warden_counts(struct warden *w, struct warden_counts *ret);
/* Waits until @n blanks are ready (as far as the pool goes). */
void warden_pool_wait(struct warden *w, unsigned n);
/* Gives back what the pool keeps of ended sandboxes to build the next ones on. */
void warden_pool_trim(struct warden *w);
