/*
 * The protocol between the warden and cloche-watch: one struct, both ways, over a SOCK_SEQPACKET socket. The warden
 * starts the program with descriptors at fixed places and one START, and waits for READY; then both sides may send at
 * any time.
 *
 *   warden -> watch START, ADD (with descriptors), REMOVE, LIMIT, ASK (for the owner of a socket), DONE (the answer to ACT)
 *   watch -> warden READY, FIGURES, OWNER (the answer to ASK), ACT (which waits for DONE), ALIVE (each second, if it looks
 *                   at sandboxes, and once when there are none)
 */
#pragma once
#include <assert.h>
#include <stdint.h>

#include "engine/kernel_memory/looker.h"

#define WATCH_ALIVE_MS 1000

/* Places of descriptors from SPAWN_FIRST on. */
enum watch_place {
	WATCH_CONTROL,
	WATCH_BASE, /* this and the following: the folders of cgroup_host.base; the same one may occur twice */
	WATCH_PLACES = WATCH_BASE + CGROUP_CONTROLLERS,
};

enum watch_msg_kind {
	WATCH_START = 1,
	WATCH_READY,
	WATCH_ADD,
	WATCH_REMOVE,
	WATCH_LIMIT,
	WATCH_FIGURES,
	WATCH_ASK,
	WATCH_OWNER,
	WATCH_ACT,
	WATCH_DONE,
	WATCH_ALIVE
};

struct watch_msg {
	uint64_t kind; /* enum watch_msg_kind */
	uint64_t id; /* the sandbox's number; with ASK and OWNER the question's */
	union {
		struct {
			uint64_t version, have, places; /* of cgroup_host; a bit for each folder that exists */
			uint64_t percent;
		} start;
		struct kernel_subject add;
		uint64_t memory; /* with LIMIT */
		struct kernel_figures figures;
		struct {
			uint64_t first, inode;
		} ask;
		struct {
			uint64_t found; /* what socket_owner_find() returned */
			struct socket_owner is;
		} owner;
		struct kernel_act act;
		uint64_t done; /* with DONE: whether it was done */
		struct {
			uint64_t adds, idle; /* ADD messages so far; whether there is no sandbox */
		} alive;
	};
};
static_assert(sizeof(struct watch_msg) == 16 + sizeof(struct kernel_subject), "ADD is the longest");
