/* The machine: QEMU's arguments and its process. */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#if defined(__x86_64__)
#define QEMU_NAME "qemu-system-x86_64"
#define QEMU_PACKAGE "qemu-system-x86"
#elif defined(__aarch64__)
#define QEMU_NAME "qemu-system-aarch64"
#define QEMU_PACKAGE "qemu-system-arm"
#endif
#define QEMU_PROGRAM "/usr/bin/" QEMU_NAME

struct qemu_opts {
	uint32_t memory_mib, cpus;
	int initrd, root, disk;
	int usr; /* or -1 */
	int port, console; /* its ends of stream sockets */
	uint64_t io_bps;
	uint32_t tsc_khz; /* x86: how fast the processor counts */
};

/* In this process's jail. The descriptors stay the caller's. -errno when it could not even be forked. */
pid_t qemu_start(const struct qemu_opts *o);
