/* Sockets that are being recorded. Their records are written when it is known which belong together. */
#pragma once
#include <sys/socket.h>

#include "memory/object.h"

struct socket {
	struct mem_socket k;
	struct buf options, filter, queue; /* what follows the record */
	uint32_t bytes; /* bytes that were read from its queue */
	uint32_t dropped; /* datagrams from outside, which cannot be sent again */
	uint32_t peer; /* unix: the inode of the other end; 0: none */
	uint32_t *waiting; /* unix listener: inodes of those that were not accepted, in their order */
	uint32_t n_waiting;
	/* TCP */
	uint32_t tcp_state;
	uint32_t other; /* 1 + the object of the other end, when that was found by it */
	/* of a listener: connections that it has not accepted, and how many of them have a known other end */
	uint32_t pending, matched;
	bool connected; /* it is or was connected */
	bool hung_up; /* nothing more can be read, POLLRDHUP */
	bool failed; /* an error waits, or something beside the stream, POLLERR or POLLPRI */
	uint64_t sent, received; /* bytes sent to the other end, and received from it */
	bool sent_any;
	bool was_cut; /* an earlier restore has reset it, and its process has not noticed that yet */
	uint32_t lost; /* bytes that had come from outside and are not carried */
};

struct socket *socket_new(void);
/* The value of an integer option, or -errno. */
int socket_number(int fd, int level, int name);
/* Whether a message waits, also an empty one, which counts of bytes do not show. */
bool socket_unread(int fd);

/* Whether a datagram from there can be sent again: its sender is inside. */
bool socket_from_inside(const struct sockaddr_storage *from, uint32_t len);
bool socket_keeps(const struct socket *s, const struct sockaddr_storage *from, uint32_t len);

/* What the copy will not have of a connection to the outside is noted; or refused, where that was asked for. */
int cut_note(struct dump *d, const struct object *o, struct err *e);
void object_cut_queue(struct object *o);

/* Each fills ->o->socket, or refuses. */
int object_inet(struct opened *x, struct err *e);
int object_netlink(struct opened *x, struct err *e);
int object_unix(struct opened *x, struct err *e); /* or makes it MEM_OBJ_EXTERNAL */
/* What can be read from it and stays there: messages with their senders and descriptors. */
int socket_queue(struct dump *d, uint32_t at, struct err *e);
int object_link_unix(struct dump *d, uint32_t at, struct err *e);
/* When all are linked: whether the connections that wait at a listener are known. */
int object_link_listener(const struct dump *d, uint32_t at, struct err *e);
