/*
 * The way to cloche-egress, without waiting, as wlink is to the warden. When it dies, or we were away, the link comes
 * back by itself; what it holds is compared with what there is, and it is told all of it again. What was not sent when it
 * broke is forgotten: who sent it is told by @down and sends what counts then.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/err.h"
#include "egress/msg.h"

struct elink;

struct elink_user {
	void (*have)(void *arg,
		     uint64_t sandbox); /* it has the sockets of that one; 0: that were all, and it listens */
	void (*down)(void *arg); /* it is gone, or talks nonsense: all it had is closed */
	void (*message)(void *arg, const struct egress_msg *m); /* STREAM, SEEN, LOOKUP, NAMED, COUNTS, WHO, DONE, TOLD, GONE */
	void *arg;
};

/* @place: an O_PATH descriptor of its listening socket, the caller's. */
int elink_new(uv_loop_t *loop, int place, const struct elink_user *u, struct elink **ret, struct err *e);
/* Nothing is told any more. The loop must run once more, for libuv lets go of handles only then. */
void elink_free(struct elink *l);
/* Whether it stands, and have(0) was told. */
bool elink_up(const struct elink *l);
uint32_t elink_seq(struct elink *l); /* a number for a message */
/* Sends a packet that egress/msg.h encoded. @fds are taken, and closed when it is sent or cannot be. */
void elink_send(struct elink *l, const uint8_t *data, size_t len, int *fds, size_t nfds);
/* EGRESS_MSG_MAX bytes for encoding, good until the next call. */
uint8_t *elink_room(struct elink *l);
