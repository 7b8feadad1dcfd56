/*
 * How much memory the sockets of a network namespace hold, asked of the kernel (sock_diag, /proc/PID/net). The asking process need not be in
 * the namespace: a socket that was made in it can be used from anywhere.
 */
#pragma once
#include <stdint.h>

struct socket_memory {
	uint64_t sockets; /* all there are, of any family */
	uint64_t tcp; /* bytes in connections, accepted or not; with SOCKET_WAITING only ->tcp_waiting */
	/* of these, in connections that no process has accepted yet: no memory group counts them */
	uint64_t tcp_waiting;
	uint64_t udp; /* receive and error queues, and what is held back by MSG_MORE */
	uint64_t netlink;
	uint64_t hidden; /* sockets that cannot be asked about, and that may hold up to SOCKET_HIDDEN each */
	/* sockets that no list has: each may hold up to SOCKET_HIDDEN. Sockets that come and go look the same for a moment */
	uint64_t unlisted;
	/* bytes that may be in connections that were reset before they were accepted; or they were just accepted */
	uint64_t unsure;
};
#define SOCKET_HIDDEN 212992U /* a receive buffer as the kernel makes it */

enum socket_which {
	SOCKET_ALL,
	/*
	 * without accepted connections, which the caller counts itself: saves a walk through the host's table of
	 * connections
	 */
	SOCKET_WAITING,
};

/* The socket, of the calling thread's namespace, or -errno. */
int socket_diag_open(void);

struct socket_space {
	int net; /* the folder /proc/PID/net of a process in the namespace */
	int diag; /* what socket_diag_open() has made in it. One thread at a time */
};

/*
 * A connection that was reset, or a datagram socket that was disconnected, can hold data and is in no list. Such sockets are
 * counted (->unlisted): those there are less those in lists. 0 or -errno.
 */
/*
 * @most: more sockets than that are not listed one by one, which would take long: all of them count as hidden. Those of the family unix
 * are never listed, since what they hold is counted: there may be any number of them.
 */
int socket_memory(const struct socket_space *s, enum socket_which which, uint64_t most, struct socket_memory *ret);
/*
 * Connections that their process has closed and that are not over: the host has a limit for their number. The kernel goes through its
 * whole table of connections. 0 or -errno.
 */
int socket_orphans(const struct socket_space *s, uint64_t *ret);
