/*
 * The way to cloche-egress, without waiting, as warden_link is to the warden. When it dies, or we were away, the link comes
 * back by itself; what it holds is compared with what there is, and it is told all of it again. What was not sent when it
 * broke is forgotten: who sent it is told by @down and sends what counts then.
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
	void (*down)(void *arg); /* it is gone, or talks nonsense: all it had is closed */
	void (*message)(void *arg, const struct egress_msg *m); /* STREAM, SEEN, LOOKUP, NAMED, COUNTS, WHO, DONE, TOLD, GONE */
	void *arg;
};

/* @place: an O_PATH descriptor of its listening socket, the caller's. */
int egress_link_new(uv_loop_t *loop, int place, const struct egress_link_user *u, struct egress_link **ret,
		    struct err *e);
/* Nothing is told any more. The loop must run once more, for libuv lets go of handles only then. */
void egress_link_free(struct egress_link *l);
/* Whether it stands, and have(0) was told. */
bool egress_link_up(const struct egress_link *l);
uint32_t egress_link_seq(struct egress_link *l); /* a number for a message */
/* Sends a packet that egress/msg.h encoded. @fds are taken, and closed when it is sent or cannot be. */
void egress_link_send(struct egress_link *l, const uint8_t *data, size_t len, int *fds, size_t nfds);
/* EGRESS_MSG_MAX bytes for encoding, good until the next call. */
uint8_t *egress_link_room(struct egress_link *l);
