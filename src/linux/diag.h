/*
 * Finds the socket of a TCP connection, or of datagrams to an address, through the kernel's sock_diag in the calling
 * thread's network namespace.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct diag_flow {
	uint8_t family; /* 4 or 6 */
	bool udp;
	uint8_t local[16], remote[16]; /* IPv4 in the first four */
	uint16_t local_port, remote_port;
};

/* Its inode, as in "socket:[N]" of /proc/PID/fd. -ENOENT: there is no such connection (any more). */
int diag_inode(const struct diag_flow *c, uint64_t *ret, struct err *e);

struct diag_socket {
	uint64_t inode; /* 0: no process has it, any more or yet */
	uint32_t state; /* TCP_ESTABLISHED … */
	uint32_t shutdown; /* 1: it reads no more, 2: it writes no more */
};
/* The socket itself, also one that no process has open. -ENOENT: there is none but a listener. */
int diag_socket(const struct diag_flow *c, struct diag_socket *ret, struct err *e);
