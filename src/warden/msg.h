/*
 * Messages between a daemon and cloche-warden: one fixed-size request, one fixed-size reply, over a SOCK_SEQPACKET
 * socket. They hold no pointers and no padding whose content is not checked. The warden parses nothing else.
 *
 * Each side treats the other's bytes as a stranger's. What a request does not use must be zero.
 */
#pragma once
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/sandbox/sandbox.h"
#include "engine/spec.h"

#define MSG_VERSION 12U
#define MSG_ID 32 /* an id, filled up with zeros */

enum warden_op {
	WARDEN_HELLO = 1, /* nothing: does the other side speak this version? */
	/*
	 * spec → handle, receipt; fds: the agent's socket, the first process's pidfd; and when ->arg is 1, as in a
	 * warden that keeps, a third: what the processes of exec group 1 join it by. With SPEC_MEMORY it is answered when
	 * the processes run: they are execs of the agent's, which SYNC tells of, and exec group i + 1 is that of the i-th
	 * by id; a third descriptor comes only when there is none. With SPEC_NET the last three are the STEER_SOCKETS
	 */
	WARDEN_CREATE,
	/*
	 * handle → handle, receipt; fds: an agent's socket, the pidfd. In a warden that keeps, the socket is a new one:
	 * the agent turns to it as soon as it can (READY, UP come again) and the old one ends
	 */
	WARDEN_ATTACH,
	WARDEN_DESTROY, /* handle */
	WARDEN_STAT, /* handle → stat */
	WARDEN_FREEZE, /* handle */
	WARDEN_THAW, /* handle */
	WARDEN_REFRESH, /* handle */
	WARDEN_COUNTS, /* → counts */
	WARDEN_NEXT, /* handle or 0 → the next larger handle there is and its receipt, or 0 */
	/*
	 * handle, arg: 0, or 1 + a user id inside → arg: the number of a new exec group; fds: for the agent's children to join
	 * by, and with arg a second one for processes of that user (linux/cgroup.h says what else they can do: nothing)
	 */
	WARDEN_GROUP,
	WARDEN_GROUP_KILL, /* handle, arg: kills every process of that group */
	/* handle, arg: the group is not needed any more. Goes when it is empty, if not now then later. */
	WARDEN_GROUP_END,
	/*
	 * handle, id → layer; arg: for how many ns the sandbox did not run. What it has changed becomes layer ->id; with
	 * arg 1 its processes, too (2: soon, see enum warden_what; and WARDEN_REFUSE_NETWORK). Takes as long as copying that takes; the connection is not read meanwhile, others are
	 * served
	 */
	WARDEN_SEAL,
	WARDEN_UNSEAL, /* id: removes a layer that nothing stands on; with arg 1 it is moved to the quarantine */
	WARDEN_LAYERS, /* id or none → the next larger id there is and its layer, or none */
	/*
	 * diff, spec; handle or 0 → fd: a pipe with what differs, as proto/change.h has it. From ->diff (a sandbox, or
	 * layers, or neither: the image) to the sandbox ->handle or the layers of ->spec. Image, tenant, work folder and kind
	 * of root are the spec's; both sides must be of those
	 */
	WARDEN_DIFF,
	/*
	 * handle, spec.net (all else of the spec zero), arg → other rules for its way out; with arg 1 fds: STEER_SOCKETS new
	 * sockets, after who had the old ones died
	 */
	WARDEN_NET,
	WARDEN_SOCKET, /* handle, arg: 4 or 6 → fd: an unconnected TCP socket inside */
	WARDEN_WHO, /* handle, who → they */
	WARDEN_DENIED, /* handle → arg: how many of denied */
	WARDEN_SYSTEM, /* handle: who comes next may change /usr, if anybody may */
	WARDEN_MACHINES, /* → arg: how virtual machines run, MSG_MACHINES_*; msg: why, one line */
	WARDEN_DISKS, /* id or none → the next larger id of a disk there is, or none */
	WARDEN_DISK_REMOVE, /* id: a disk that no sandbox has; ERR_CONFLICT while one has it; with arg 1 it is moved to the quarantine */
	WARDEN_LIMITS, /* handle, spec.limits (memory, pids, cpu_milli; 0: as it is; all else of the spec zero) */
	WARDEN_OP_END
};

#define MSG_MACHINES_UNKNOWN 0U /* nobody has asked for one yet, or it is just being tried */
#define MSG_MACHINES_TCG 1U
#define MSG_MACHINES_KVM 2U

struct msg_diff {
	uint64_t from; /* a sandbox's handle, or 0 */
	uint32_t flags; /* DIFF_* of layers/diff.h */
	uint32_t max; /* entries told; 0: all */
	uint32_t layers; /* it is from, without a handle */
	uint32_t zero;
	char layer[SPEC_LAYERS][ID_SIZE];
};

struct warden_req {
	uint32_t version;
	uint32_t op;
	uint64_t seq; /* comes back in the reply */
	uint64_t handle;
	uint64_t arg; /* GROUP: see there; GROUP_KILL, GROUP_END: which group; SEAL: enum warden_what and WARDEN_REFUSE_NETWORK; UNSEAL, NET, SOCKET: see there; else 0 */
	char id[MSG_ID]; /* SEAL, UNSEAL, LAYERS: which layer; DISKS, DISK_REMOVE: which disk */
	struct msg_diff diff; /* DIFF only */
	struct warden_who who; /* WHO only */
	struct sandbox_spec spec; /* CREATE, DIFF only; of NET its ->net, of LIMITS its ->limits */
};
static_assert(sizeof(struct sandbox_spec) == 7320 + sizeof(struct steer_rules), "the spec is part of the protocol: raise MSG_VERSION");
static_assert(sizeof(struct msg_diff) == 24 + SPEC_LAYERS * ID_SIZE, "no padding");
static_assert(sizeof(struct steer_rules) == 8 + STEER_RULES * 24 && sizeof(struct warden_who) == 40, "no padding");
static_assert(sizeof(struct warden_req) == 64 + 40 + sizeof(struct msg_diff) + sizeof(struct sandbox_spec), "no padding");

#define MSG_IDMAPPED 1U
#define MSG_ROOTLESS 2U
/* Only of a CREATE with SPEC_MEMORY: its processes run again, and what was done before that. */
#define MSG_RESTORED 4U
#define MSG_NEW_MACHINE_ID 8U
#define MSG_NEW_GENERATION 16U
#define MSG_CLOCK_BACK 32U /* the monotonic clock is behind what they have seen */
#define MSG_NUMBERS_LOST 64U /* open files have other inode numbers */
#define MSG_KVM 128U
#define MSG_RECEIPT_FLAGS 255U

struct msg_receipt {
	uint32_t cgroup_version, controllers, filter_len, flags;
	uint64_t uid_base, disk, inodes;
	uint32_t sockets, tenant_share;
};

struct msg_counts {
	uint64_t alive, ready, cleaning, made, ended, cleanup_retries, cleanup_failures;
};

#define MSG_LAYER_MEMORY 2U /* it has the processes, too */
#define MSG_LAYER_BAD 1U /* its manifest cannot be read, or its files differ: good for nothing but UNSEAL */

struct msg_layer {
	char parent[MSG_ID]; /* zeros: the image */
	uint64_t tenant;
	uint64_t made; /* ns since 1970 */
	uint64_t entries, files, size;
	uint64_t memory; /* bytes of the image of its processes, 0: none */
	uint32_t depth; /* layers it takes, with this one */
	uint32_t users; /* sandboxes that live and layers, that stand on it */
	uint32_t flags;
	uint32_t zero;
	uint8_t sum[32];
};

struct warden_rep {
	uint32_t version;
	uint32_t op;
	uint64_t seq;
	uint64_t handle;
	uint64_t arg; /* CREATE, GROUP, SEAL, DENIED, MACHINES; else 0 */
	int32_t result; /* 0 or -errno; then: */
	uint32_t kind; /* enum err_kind */
	/* MACHINES has it, too */
	char msg[sizeof(((struct err *)0)->msg)];
	char remedy[sizeof(((struct err *)0)->remedy)];
	struct msg_receipt receipt;
	struct warden_stat stat;
	struct msg_counts counts;
	char id[MSG_ID]; /* LAYERS, DISKS only */
	struct msg_layer layer; /* SEAL, LAYERS only */
	struct socket_owner they; /* WHO only */
	struct memory_cuts cuts; /* SEAL, and CREATE with SPEC_MEMORY */
	struct steer_denied denied[STEER_DENIED]; /* DENIED only */
};
static_assert(sizeof(struct warden_stat) == (14 + 2 + KERNEL_KINDS_MAX) * sizeof(uint64_t), "usage is part of the protocol: raise MSG_VERSION");
static_assert(sizeof(struct memory_cuts) == 8 + MEMORY_CUTS * 72, "no padding");
static_assert(sizeof(struct warden_rep) == 40 + 440 + 48 + 176 + 56 + 32 + 128 + 136 + sizeof(struct memory_cuts) + STEER_DENIED * 32, "no padding");

#define MSG_FDS 6 /* at most */
#define MSG_NO_FDS { -1, -1, -1, -1, -1, -1 }

/*
 * Checks @len received bytes as a request, all of it: size, version, operation, that a handle is given exactly where
 * one is needed, that unused bytes are zero, and the spec by spec_check().
 */
int msg_check_req(const struct warden_req *q, size_t len, struct err *e);
/*
 * Checks @len received bytes with @nfds descriptors as the reply to @q. A refusal is no error of the message: 0 is
 * returned for it as well, and ->result tells.
 */
int msg_check_rep(const struct warden_rep *p, size_t len, size_t nfds, const struct warden_req *q, struct err *e);

/* How many descriptors come with @p, a success of @q. */
size_t msg_fds(const struct warden_rep *p, const struct warden_req *q);

/* @older: its layers count, unless @from is a handle. */
void msg_put_diff(uint64_t from, const struct sandbox_spec *older, uint32_t flags, uint32_t max, struct msg_diff *to);
void msg_put_receipt(const struct warden_receipt *from, struct msg_receipt *to);
void msg_get_receipt(const struct msg_receipt *from, struct warden_receipt *to);
