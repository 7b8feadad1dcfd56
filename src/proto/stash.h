/*
 * Between the warden and a holder of a memory image (agent/restore/stash.h): one question, one answer, on a SOCK_SEQPACKET. Both
 * are ours, from one build.
 */
#pragma once
#include <stdint.h>

#include "proto/memory.h"

#define STASH_ARGUMENT "h" /* of cloche-agent, whose descriptor 3 is the socket */

enum stash_kind {
	/* once: reads the image. Descriptors: meta, ->pages pages files, the host's root (with ->host) */
	STASH_HOLD = 1,
	/*
	 * An agent in new namespaces, a copy of the holder. Descriptors: its socket, devices, base, /dev/null, network
	 * namespace, ->joins of control groups, then (with ->group) the group it is born into
	 */
	STASH_AGENT,
};

struct stash_ask {
	uint32_t kind;
	uint32_t pages, host;
	uint32_t owner; /* whose user namespace it is */
	uint32_t joins, group;
	uint32_t groups; /* what it shows of them: as the agent's argument has it */
};

enum { STASH_SOCK, STASH_DEV, STASH_BASE, STASH_NULL, STASH_NET, STASH_JOIN };
#define STASH_JOINS_MAX 6 /* CGROUP_CONTROLLERS */
#define STASH_FDS_MAX (STASH_JOIN + STASH_JOINS_MAX + 1)
static_assert(STASH_FDS_MAX >= 2 + MEM_PAGE_FILES, "of HOLD, too");

/* STASH_AGENT: with its pidfd. */
struct stash_answer {
	int32_t error; /* -errno */
	int32_t pid;
	uint64_t bytes; /* STASH_HOLD: that are held */
};
