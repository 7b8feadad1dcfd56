/*
 * The link to cloche-egress. Does not block, like warden_link. When egress dies, or this process was restarted, the
 * link comes back by itself; what egress holds is compared with what exists, and everything is sent again. Packets that
 * were not sent when the link broke are dropped: their sender gets @down and sends the present state then.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "egress/msg.h"

struct egress_link;

struct egress_link_user {
	void (*have)(void *arg,
		     uint64_t sandbox); /* it has the sockets of that one; 0: that were all, and it listens */
	void (*down)(void *arg); /* egress is gone, or has sent an invalid packet: all that it had is closed */
	/* STREAM, SEEN, LOOKUP, NAMED, COUNTS, WHO, DONE, TOLD, GONE */
	void (*message)(void *arg, const struct egress_msg *m);
	void *arg;
};

/* @place: an O_PATH descriptor of its listening socket, the caller's. */
int egress_link_new(uv_loop_t *loop, int place, const struct egress_link_user *u, struct egress_link **ret,
		    struct err *e);
/* No callback is called any more. The loop must run once more, for libuv frees handles only then. */
void egress_link_free(struct egress_link *l);
/* Whether it is connected, and have(0) was called. */
bool egress_link_up(const struct egress_link *l);
uint32_t egress_link_seq(struct egress_link *l); /* a number for a message */
/* Sends a packet that egress/msg.h encoded. @fds are taken, and closed when it is sent or cannot be. */
void egress_link_send(struct egress_link *l, const uint8_t *data, size_t len, int *fds, size_t nfds);
/* EGRESS_MSG_MAX bytes for encoding, good until the next call. */
uint8_t *egress_link_room(struct egress_link *l);
