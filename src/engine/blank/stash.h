/*
 * Holders of memory images (agent/restore/stash.h), as the pool uses them: one process each, that has the pages of one
 * layer's processes and makes the agents of sandboxes that continue from there. It is in a control group of its own,
 * which its pages are charged to and which limits them, and ends with the thread that started it.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "engine/blank/blank.h"
#include "proto/stash.h"

struct stash {
	pid_t pid; /* 0: there is none */
	int pidfd, control;
	uint64_t bytes; /* that it holds */
	struct blank place; /* its slot and control group; no sandbox */
};

void stash_init(struct stash *s);
/* @fds: meta, @pages pages files, then @host or nothing when that is -1. @limit: bytes of memory it may have, at most. */
int stash_start(struct env *v, const int *fds, uint32_t pages, int host, uint64_t limit, struct stash *ret,
		struct err *e);
/*
 * An agent that waits for its first byte, our child as if we had cloned it. @fds as STASH_AGENT says. What fails leaves
 * the holder of no use when it is -EPIPE or -ETIMEDOUT.
 */
int stash_agent(struct stash *s, const struct stash_ask *q, const int *fds, unsigned nfds, pid_t *ret_pid,
		int *ret_pidfd);
/* Kills it and returns when it is gone. The agents that it made continue. Does nothing for an empty @s. */
void stash_end(struct env *v, struct stash *s);
