/*
 * Messages between the warden and cloche-vmm: SOCK_SEQPACKET, cloche-vmm's stdin. Each message is one struct vm_msg
 * (START: and the sandbox's spec behind it; STEER: and rules), with descriptors. docs/design/0011-vm.md describes the
 * protocol.
 *
 * The warden treats messages of cloche-vmm as hostile, since it shares its jail with QEMU. Fields that a message does
 * not use are zero.
 */
#pragma once
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/mux.h"

#define VM_SIDE_VERSION 4U
#define VM_SPEC_MAX 32768 /* of what follows START: the sandbox's spec, as it goes to the guest */
#define VM_KERNEL "/vm/kernel" /* its path in the jail; only needed to boot */
#define VM_RULES_MAX 1024 /* of what follows STEER: struct steer_rules (linux/steer.h), for the guest */
#define VM_CHAIN_MAX 15U /* disks on top of each other, the writable one included */

enum vm_type {
	/* warden → vmm */
	VM_START = 1, /* once, the first; vm_start, fds by its mask → LOADED, of a template: TEMPLATED */
	/* once, after LOADED; vm_go; fd: AGENT, a stream socket whose other end takes this VM for an agent → UP */
	VM_GO,
	VM_ATTACH, /* after UP; fd: AGENT, a new one. The old one ends; READY and UP come on the new one */
	/*
	 * after UP, of a clone; vm_save; fds: META, PAGES (both empty, writable), DISK (empty, read and write: becomes
	 * the new top of the chain) → SAVED. After a failure the machine continues with the disks it had
	 */
	VM_SAVE,
	VM_GROUP_KILL, /* vm_group; never answered */
	VM_GROUP_END, /* likewise */
	VM_STEER, /* before GO: what is so from then on; after it: from now on. vm_steer; never answered */
	/*
	 * as SAVE; vm_join → JOINED: what is in the disks above ->base becomes part of the top one, and they are not used any
	 * more. The machine runs meanwhile, and no SAVE is taken. One that comes while another is under way follows it
	 */
	VM_JOIN,
	VM_GO_ON, /* a machine that is stopped since a SAVE with STAY runs again, others run already; never answered */
	/* vmm → warden */
	VM_LOADED = 32, /* waits for GO. Of COLD: the guest has booted */
	VM_TEMPLATED, /* META, RAM and DISK[0] are complete and will not change; cloche-vmm ends */
	VM_UP, /* vm_up; READY and UP have gone to AGENT */
	VM_SAVED, /* vm_saved */
	VM_FAILED, /* vm_failed: START, GO, SAVE or JOIN. After START and GO cloche-vmm ends */
	VM_JOINED, /* vm_joined */
};

enum vm_role {
	VM_COLD = 1, /* boots with memory of its own; waits for GO with what its sandbox is to be. Has no SAVE */
	VM_TEMPLATE, /* boots, makes the sandbox, saves all of it and ends */
	VM_CLONE, /* continues from a META and its memory */
};

enum vm_accel {
	VM_TCG = 1,
	VM_KVM,
};

/* vm_start.fds: which descriptors come, in this order. Then the disks. */
#define VM_FD_STAT 1U /* memfd of a page: struct vm_stat, written here. Always */
#define VM_FD_META 2U /* TEMPLATE: empty, written. CLONE: read */
#define VM_FD_RAM 4U /* memfd of the machine's size. TEMPLATE: written. CLONE: sealed against writing */
#define VM_FD_INITRD 8U /* memfd. Not CLONE */
#define VM_FD_ROOT 16U /* the image, erofs, read only. Always */
#define VM_FD_USR 32U /* of image `host`: its /usr, as ROOT */

/* vm_start.flags */
#define VM_KEEP 1U /* the end of AGENT does not end the machine: ATTACH may follow. Without: it does */

/*
 * How a guest's sandbox is steered, in short: without a network (0), or 1 + enum steer_mode, without addresses; or
 * VM_WAY_OTHER. vm_start.flags has it for a template; META has it later. A message costs the guest time and memory, so
 * it is only sent when it changes something.
 */
#define VM_WAY_SHIFT 8U /* in ->flags */
#define VM_WAY_NONE 0U
#define VM_WAY_OTHER 15U

/* What a machine's state belongs to. vmm only keeps it, in META, for the warden to compare. */
struct vm_what {
	uint8_t kernel[32], initrd[32]; /* sha256 */
	uint8_t root[32], usr[32]; /* ids of the images; zero: none */
	uint8_t key[32]; /* the template's */
};

struct vm_start {
	uint32_t role, accel; /* enum vm_role, enum vm_accel */
	uint32_t memory_mib, cpus;
	uint64_t io_bps; /* of its disks together, each way; 0: as it can */
	uint32_t flags; /* VM_KEEP, VM_WAY_* of a template or COLD */
	uint32_t fds; /* VM_FD_* */
	/*
	 * Their count, oldest first: the first is raw ext4, each further one qcow2 on the one before. The last is writable.
	 * TEMPLATE, COLD: 1. CLONE: at least 2, the last an empty file, which vmm makes a qcow2 of. Each is known by its number:
	 * these have 0, 1, 2 …, those that SAVE brings what that says
	 */
	uint32_t disks;
	uint32_t spec_len; /* of what follows the message; CLONE: 0 */
	struct vm_what what; /* TEMPLATE; of a CLONE META has it */
};

#define VM_GO_DROP 1U /* the execs that the state had are ended: restore without memory */
#define VM_GO_FRESH 2U /* made of a checkpoint or template: new machine-id and generation */
#define VM_GO_SECRETS 4U /* it will be given files of secrets */
struct vm_go {
	char hostname[64]; /* NUL-ended; "": as it was */
	uint8_t generation[16];
	uint8_t seed[32]; /* of the host's random numbers */
	uint32_t flags; /* VM_GO_* */
	uint32_t zero;
};

#define VM_SAVE_STAY 1U /* stopped until GO_ON; may be saved and joined again meanwhile */
/* ->id of this and the next: not 0, and no other's; the answer has it, too. */
struct vm_save {
	uint64_t id;
	uint32_t disk; /* its number: larger than any before */
	uint32_t flags; /* VM_SAVE_* */
};

#define VM_JOIN_STILL 1U /* the guest does not run meanwhile: it was not running to begin with */
struct vm_join {
	uint64_t id;
	uint32_t base; /* disks up to this number stay as they are */
	uint32_t flags; /* VM_JOIN_* */
};

struct vm_group {
	uint32_t number; /* as in the exec's group descriptor */
	uint32_t zero;
};

/*
 * The machine's network. Egress decides, outside of this jail's network; the rules are a hint for the guest, so that
 * connections that would be refused are refused there, at once.
 */
struct vm_steer {
	uint32_t on; /* 1: there is one; 0: none, and no rules follow */
	uint32_t len; /* of the rules that follow */
};

struct vm_up {
	uint32_t restored; /* FRAME_RESTORED_*, what was made anew */
	uint32_t landlock; /* its ABI in the guest */
};

struct vm_saved {
	uint64_t id;
	uint64_t pause_ns; /* time for which the guest was stopped */
	uint64_t pages; /* in PAGES */
};

struct vm_joined {
	uint64_t id;
	uint32_t top; /* the number of the one that is written: of those above ->base it is the only one left */
	uint32_t zero;
};

struct vm_failed {
	uint64_t id; /* SAVE's or JOIN's; 0: START, GO */
	int32_t errnum; /* positive */
	uint32_t zero;
	char text[240]; /* printable ASCII, NUL-ended: why */
};

struct vm_msg {
	uint32_t version; /* VM_SIDE_VERSION */
	uint32_t type; /* enum vm_type */
	union {
		struct vm_start start;
		struct vm_go go;
		struct vm_save save;
		struct vm_join join;
		struct vm_group group;
		struct vm_steer steer;
		struct vm_up up;
		struct vm_saved saved;
		struct vm_joined joined;
		struct vm_failed failed;
		uint8_t bytes[256];
	};
};
static_assert(sizeof(struct vm_start) == 40 + 160 && sizeof(struct vm_go) == 120 && sizeof(struct vm_failed) == 256,
	      "no padding");
static_assert(sizeof(struct vm_msg) == 264, "no padding");

/*
 * STAT: what the guest said last of itself, also after its death. ->seq is odd while it is written: read it before and
 * behind ->stat, and again when it is odd or has changed (some times: the writer may be hostile, or dead).
 */
struct vm_stat {
	uint64_t seq;
	struct mux_stat stat;
};
