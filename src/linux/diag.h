/* Which socket has a TCP connection, asked of the kernel (sock_diag) in the calling thread's network namespace. */
#pragma once
#include <stdint.h>

#include "base/err.h"

struct diag_tcp {
	uint8_t family; /* 4 or 6 */
	uint8_t local[16], remote[16]; /* IPv4 in the first four */
	uint16_t local_port, remote_port;
};

/* Its inode, as in "socket:[N]" of /proc/PID/fd. -ENOENT: there is no such connection (any more). */
int diag_inode(const struct diag_tcp *c, uint64_t *ret, struct err *e);
