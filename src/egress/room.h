/*
 * Kernel memory that a sandbox's streams hold at our end: what we have not read yet, what a pipe holds, what the other side does not
 * take. The sandbox's memory group is not charged for it. So each sandbox has a room for all of its streams together.
 *
 * The more streams it has, and the less of its room is left, the smaller are the windows that both sides of a stream are given: one that
 * stops gets a part of what is left. So streams that wait stay within the room, unless they are very many or have been fast before.
 * When they exceed it all the same, and not for a moment only, those that hold the most are cut.
 */
#pragma once
#include <stdbool.h>

#include "egress/loop.h"

#define ROOM_MOST (14U << 20) /* bytes of one sandbox; above that streams are cut */

struct sandbox;

struct room {
	struct loop_timer timer;
	uint64_t held; /* at the last look */
	uint64_t over; /* since when that is more than ROOM_MOST; 0: it is not */
	uint32_t unsent; /* bytes that may wait in a new connection for the sandbox */
	bool small; /* new connections get small buffers */
};

void room_init(struct room *r);
void room_done(struct sandbox *b);
void room_listener(struct sandbox *b); /* it has another one */
struct stream;
void room_connected(struct stream *s, int fd); /* the server is @fd */
/* Something came or went: a look is taken soon. */
void room_touch(struct sandbox *b);
