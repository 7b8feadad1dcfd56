/* Goes, with what speaks it, when the warden speaks vm/side.h. What the driver tells cloche-vmm, once, on its stdin (SOCK_SEQPACKET), with the descriptors below. */
#pragma once
#include <stdint.h>

#include "vm/side.h"

#define VM_START_VERSION 1

enum vm_fd {
	OLD_FD_AGENT, /* a stream socket: the host's end of it takes this VM for an agent */
	OLD_FD_INITRD,
	OLD_FD_ROOT, /* the image, erofs, read-only */
	OLD_FD_DISK, /* ext4, for changes */
	OLD_FD_USR, /* only of image `host`: its /usr, as ->ROOT */
	OLD_FDS,
};

struct old_start {
	uint32_t version;
	uint32_t memory_mib, cpus;
	uint64_t io_bps; /* of its disks together, each way; 0: as it can */
	uint32_t spec_len, zero;
};

/* After that, each as one message: "s" asks for what the guest says of itself, and MUX_STAT_LEN bytes answer. */
#define VM_ASK_STAT 's'
