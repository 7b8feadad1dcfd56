/* Work in a sandbox's network namespace, by a thread that enters it for a moment. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "linux/socket_bpf.h"

struct kernel_enter {
	int pidfd; /* a process in the namespace */
	int net; /* the caller's own namespace, to return to */
	bool rootless; /* returning is impossible: the thread stays there */
	struct socket_bpf *bpf; /* bounds the number and the buffers of the namespace's sockets; NULL: does not */
	uint64_t most; /* the bound on the number of sockets */
	bool diag; /* makes a socket by which its sockets can be asked about (linux/socket_memory.h) */
};
struct kernel_entered {
	int bound; /* result of ->bpf: 0 or -errno */
	struct socket_bpf_entry entry;
	int diag; /* the diag socket, or -errno */
};

/* Takes 23 to 34 µs. */
void kernel_enter(const struct kernel_enter *n, struct kernel_entered *ret);
