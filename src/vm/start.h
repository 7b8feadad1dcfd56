/* What the driver tells cloche-vmm, once, on its stdin (SOCK_SEQPACKET), with the descriptors below. */
#pragma once
#include <stdint.h>

#include "proto/mux.h"

#define VM_START_VERSION 1
#define VM_SPEC_MAX 32768 /* of what follows: the sandbox's spec, as it goes to the guest */
#define VM_KERNEL "/vm/kernel" /* where it is in the jail */

enum vm_fd {
	VM_FD_AGENT, /* a stream socket: the host's end of it takes this VM for an agent */
	VM_FD_INITRD,
	VM_FD_ROOT, /* the image, erofs, read-only */
	VM_FD_DISK, /* ext4, for changes */
	VM_FD_USR, /* only of image `host`: its /usr, as ->ROOT */
	VM_FDS,
};

struct vm_start {
	uint32_t version;
	uint32_t memory_mib, cpus;
	uint64_t io_bps; /* of its disks together, each way; 0: as it can */
	uint32_t spec_len, zero;
};

/* After that, each as one message: "s" asks for what the guest says of itself, and MUX_STAT_LEN bytes answer. */
#define VM_ASK_STAT 's'
