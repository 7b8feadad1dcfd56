/* The machine: QEMU's arguments and its process. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vm/vmm/side.h"

#if defined(__x86_64__)
#define QEMU_NAME "qemu-system-x86_64"
#define QEMU_PACKAGE "qemu-system-x86"
#elif defined(__aarch64__)
#define QEMU_NAME "qemu-system-aarch64"
#define QEMU_PACKAGE "qemu-system-arm"
#endif
#define QEMU_PROGRAM "/usr/bin/" QEMU_NAME
#define QEMU_MACHINE 128

struct qemu_opts {
	enum vm_role role;
	enum vm_accel accel;
	uint32_t memory_mib, cpus;
	uint64_t io_bps;
	int ram, initrd, root, usr; /* descriptors of memory and images; -1: none */
	int disk[VM_CHAIN_MAX]; /* the chain, the oldest first; the last one is written */
	size_t disks;
	int port, console, qmp; /* QEMU's ends of stream sockets; ->console is also its stderr */
	uint32_t tsc_khz; /* x86: frequency of the processor's counter */
};

/* Describes board, processor, accelerator and devices: a state can only be loaded into a machine with the same text. */
void qemu_machine(const struct qemu_opts *o, char ret[QEMU_MACHINE]);
/* The disk's nodes: "d-rw-N", of file "f-rw-N", are the chain; what the guest has is the last of them. */
#define QEMU_DISK "rw"
/* Starts QEMU in the jail of this process. The descriptors stay the caller's. -errno: it could not be forked. */
pid_t qemu_start(const struct qemu_opts *o);
