/*
 * The owner's connection. There is one at a time: a new one ends the one before. Packets that cannot be sent at once
 * wait, also while there is no owner, up to LINK_WAITING bytes; later ones are dropped and counted, and the next HELLO
 * contains their number.
 */
#pragma once
#include <stdbool.h>

#include "egress/loop.h"
#include "egress/msg.h"

#define LINK_WAITING (1024U * 1024U)
#define LINK_SOON (5 * LOOP_MS)

struct link_wait;

struct link_ops {
	void (*joined)(void *ctx); /* HELLO was said; what has to follow is sent now, before what waited */
	/* -EBADMSG ends the connection. Takes the descriptors it sets to -1. */
	int (*message)(void *ctx, const struct egress_msg *m, int *fds, size_t nfds);
	void (*left)(void *ctx);
};

struct link {
	struct loop *loop;
	const struct link_ops *ops;
	void *ctx;
	struct loop_fd listener, owner;
	bool full; /* the socket was: EPOLLOUT is awaited */
	bool once; /* no listener: the end of the owner is the end of all */
	bool ended;
	struct loop_timer soon; /* for what link_send_soon() put aside */
	uint64_t told; /* when a packet of link_send_soon() was last sent */
	struct link_wait *first, **last;
	size_t waiting; /* bytes */
	uint64_t dropped;
	uint8_t *packet; /* EGRESS_MSG_MAX */
};

/* @listen_fd or @owner_fd, the other -1. Takes it on success. */
int link_init(struct link *k, struct loop *loop, int listen_fd, int owner_fd, const struct link_ops *ops, void *ctx);
void link_done(struct link *k);
bool link_owned(const struct link *k);
/* 0; -ENOBUFS: dropped, and counted. Never blocks. */
int link_send(struct link *k, const uint8_t *packet, size_t len);
/*
 * The same for what comes often: at once when that was not the case for LINK_SOON, else together with what follows, not
 * later than that. So thousands of streams a second do not wake their owner for each.
 */
int link_send_soon(struct link *k, const uint8_t *packet, size_t len);
/* As link_send() for packets that are useless later: dropped without being counted when the owner does not read. */
int link_send_now(struct link *k, const uint8_t *packet, size_t len);
bool link_has_room(const struct link *k); /* for a packet of EGRESS_MSG_MAX */
