/*
 * Messages between a daemon and cloche-warden: one fixed-size request, one fixed-size reply, over a SOCK_SEQPACKET
 * socket. They hold no pointers and no padding whose content is not checked. The warden parses nothing else. What comes
 * with nearly every call has neither a spec nor numbers to report: then only the heads of both may be sent (msg_brief()).
 *
 * Each side treats the other's bytes as hostile. Fields that a request does not use must be zero.
 */
#pragma once
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/sandbox/sandbox.h"
#include "engine/spec.h"

#define MSG_VERSION 15U
#define MSG_ID 32 /* an id, padded with zeros */

enum warden_op {
	WARDEN_HELLO = 1, /* no fields: checks that the other side speaks this version */
	/*
	 * spec → handle, receipt; fds: the agent's socket, the first process's pidfd; and when ->arg is 1, as in a
	 * warden that keeps, a third: the descriptor by which processes join exec group 1. With SPEC_MEMORY it is
	 * answered when the processes run: they are execs of the agent, which SYNC lists, and exec group i + 1 is that
	 * of the i-th by id; a third descriptor comes only when there is none. With SPEC_NET the last three are the
	 * STEER_SOCKETS
	 */
	WARDEN_CREATE,
	/*
	 * handle → handle, receipt; fds: an agent's socket, the pidfd. In a warden that keeps, the socket is a new one:
	 * the agent switches to it as soon as it can (and sends READY and UP again) and the old one ends
	 */
	WARDEN_ATTACH,
	WARDEN_DESTROY, /* handle */
	WARDEN_STAT, /* handle → stat */
	WARDEN_FREEZE, /* handle */
	WARDEN_THAW, /* handle */
	WARDEN_COUNTS, /* → counts */
	WARDEN_NEXT, /* handle or 0 → the next larger handle there is and its receipt, or 0 */
	/*
	 * handle, arg: 0, or 1 + a user id inside → arg: the number of a new exec group; fds: for the agent's children
	 * to join it, and with arg a second one for processes of that user, which allows nothing else (linux/cgroup.h).
	 * ended: 0, or a group that is dropped first, as with GROUP_END
	 */
	WARDEN_GROUP,
	WARDEN_GROUP_KILL, /* handle, arg: kills every process of that group */
	/* handle, arg: drops that group. It is removed when it is empty, now or later. */
	WARDEN_GROUP_END,
	/*
	 * handle, id → layer; arg: for how many ns the sandbox was stopped. Its changes become layer ->id; with arg 1
	 * its processes, too (2: soon, see enum warden_what; and WARDEN_REFUSE_NETWORK). Takes as long as the copying;
	 * the connection is not read meanwhile, others are served
	 */
	WARDEN_SEAL,
	WARDEN_UNSEAL, /* id: removes a layer that nothing is based on; with arg 1 it is moved to the quarantine */
	WARDEN_LAYERS, /* id or none → the next larger id and its layer, or none */
	/*
	 * diff, spec; handle or 0 → fd: a pipe with the differences, in the format of proto/change.h. From ->diff (a
	 * sandbox, or layers, or neither: the image) to the sandbox ->handle or the layers of ->spec. Image, tenant,
	 * work folder and kind of root are the spec's; both sides must match them
	 */
	WARDEN_DIFF,
	/*
	 * handle, spec.net (all else of the spec zero), arg → new rules for its network; with arg 1 fds: STEER_SOCKETS
	 * new sockets, after the process with the old ones died
	 */
	WARDEN_NET,
	WARDEN_SOCKET, /* handle, arg: 4 or 6 → fd: an unconnected TCP socket inside */
	WARDEN_WHO, /* handle, who → they: the owner of a socket */
	WARDEN_DENIED, /* handle → arg: the number of entries in denied */
	WARDEN_SYSTEM, /* handle: from the next exec on /usr is writable, if the spec allows that */
	WARDEN_MACHINES, /* → arg: how virtual machines run, MSG_MACHINES_*; msg: the reason, one line */
	WARDEN_DISKS, /* id or none → the next larger id of a disk, or none */
	/* id: removes a disk; ERR_CONFLICT while a sandbox has it; with arg 1 it is moved to the quarantine */
	WARDEN_DISK_REMOVE,
	WARDEN_LIMITS, /* handle, spec.limits (memory, pids, cpu_milli; 0: unchanged; all else of the spec zero) */
	WARDEN_OP_END
};

#define MSG_MACHINES_UNKNOWN 0U /* not decided yet, or a trial is under way */
#define MSG_MACHINES_TCG 1U
#define MSG_MACHINES_KVM 2U

struct msg_diff {
	uint64_t from; /* a sandbox's handle, or 0 */
	uint32_t flags; /* DIFF_* of layers/diff.h */
	uint32_t max; /* entries in the stream; 0: all */
	uint32_t layers; /* the layers it starts from, without a handle */
	uint32_t zero;
	char layer[SPEC_LAYERS][ID_SIZE];
};

struct warden_req {
	uint32_t version;
	uint32_t op;
	uint64_t seq; /* repeated in the reply */
	uint64_t handle;
	/*
	 * GROUP: see above; GROUP_KILL, GROUP_END: the group; SEAL: enum warden_what and WARDEN_REFUSE_NETWORK; UNSEAL,
	 * NET, SOCKET: see above; else 0
	 */
	uint64_t arg;
	uint64_t ended; /* GROUP only */
	char id[MSG_ID]; /* SEAL, UNSEAL, LAYERS: a layer; DISKS, DISK_REMOVE: a disk */
	struct msg_diff diff; /* DIFF only */
	struct warden_who who; /* WHO only */
	struct sandbox_spec spec; /* CREATE, DIFF only; with NET its ->net, with LIMITS its ->limits */
};
static_assert(sizeof(struct sandbox_spec) == 7320 + 8 + DEVICE_NAMES * DEVICE_NAME + sizeof(struct steer_rules),
	      "the spec is part of the protocol: raise MSG_VERSION");
static_assert(sizeof(struct msg_diff) == 24 + SPEC_LAYERS * ID_SIZE, "no padding");
static_assert(sizeof(struct steer_rules) == 8 + STEER_RULES * 24 && sizeof(struct warden_who) == 40, "no padding");
static_assert(sizeof(struct warden_req) == 72 + 40 + sizeof(struct msg_diff) + sizeof(struct sandbox_spec),
	      "no padding");

#define MSG_IDMAPPED 1U
#define MSG_ROOTLESS 2U
/* Only with CREATE and SPEC_MEMORY: the processes run again, and these flags say what had to change. */
#define MSG_RESTORED 4U
#define MSG_NEW_MACHINE_ID 8U
#define MSG_NEW_GENERATION 16U
#define MSG_CLOCK_BACK 32U /* the monotonic clock is behind the values that they have seen */
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

#define MSG_LAYER_MEMORY 2U /* it contains processes, too */
#define MSG_LAYER_BAD 1U /* its manifest cannot be read, or its files differ: only UNSEAL accepts it */

struct msg_layer {
	char parent[MSG_ID]; /* zeros: based on the image */
	uint64_t tenant;
	uint64_t made; /* ns since 1970 */
	uint64_t entries, files, size;
	uint64_t memory; /* bytes of its memory image, 0: none */
	uint32_t depth; /* length of its chain, with this one */
	uint32_t users; /* live sandboxes and layers that are based on it; after the last one: comparisons under way */
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
	int32_t result; /* 0 or -errno; after an error: */
	uint32_t what; /* a kind or reason, as err_what() gives it */
	/* also in a reply to MACHINES */
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
static_assert(sizeof(struct warden_stat) == (14 + 2 + KERNEL_KINDS_MAX) * sizeof(uint64_t),
	      "usage is part of the protocol: raise MSG_VERSION");
static_assert(sizeof(struct memory_cuts) == 8 + MEMORY_CUTS * 72, "no padding");
static_assert(sizeof(struct warden_rep) ==
		      40 + 440 + 48 + 176 + 56 + 32 + 128 + 136 + sizeof(struct memory_cuts) + STEER_DENIED * 32,
	      "no padding");

#define MSG_REQ_HEAD offsetof(struct warden_req, diff)
#define MSG_REP_HEAD offsetof(struct warden_rep, receipt)
/* Whether a request for @op may end behind its head; what follows counts as zero. The reply does so, too, then. */
bool msg_brief(uint32_t op);

#define MSG_FDS 6 /* maximal number in one message */
#define MSG_NO_FDS                                                                                                     \
	{                                                                                                              \
		-1, -1, -1, -1, -1, -1                                                                                 \
	}

/*
 * Checks @len received bytes as a request: size, version, operation, that there is a handle exactly where one is
 * needed, that unused bytes are zero, and the spec by spec_check().
 */
int msg_check_req(const struct warden_req *q, size_t len, struct err *e);
/*
 * Checks @len received bytes with @nfds descriptors as the reply to @q. A refusal is a valid message: the function
 * returns 0, and ->result is the error.
 */
int msg_check_rep(const struct warden_rep *p, size_t len, size_t nfds, const struct warden_req *q, struct err *e);

/* The number of descriptors that come with @p, a success of @q. */
size_t msg_fds(const struct warden_rep *p, const struct warden_req *q);

/* @older: its layers are used, unless @from is a handle. */
void msg_put_diff(uint64_t from, const struct sandbox_spec *older, uint32_t flags, uint32_t max, struct msg_diff *to);
void msg_put_receipt(const struct warden_receipt *from, struct msg_receipt *to);
void msg_get_receipt(const struct msg_receipt *from, struct warden_receipt *to);
