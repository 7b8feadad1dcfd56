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
	uint64_t bytes; /* size of the pages that it holds */
	struct blank place; /* its slot and control groups, although it is no sandbox */
};

void stash_init(struct stash *s);
/*
 * Starts a holder. @fds: the meta file and @pages pages files of the image. @host: a mount of the host's root; -1:
 * none. @limit: bytes of memory that it may use.
 */
int stash_start(struct env *v, const int *fds, uint32_t pages, int host, uint64_t limit, struct stash *ret,
		struct err *e);
/*
 * Has the holder make an agent, which waits for its first byte. It is a child of ours, as if we had cloned it. @fds:
 * see STASH_AGENT. After -EPIPE or -ETIMEDOUT the holder cannot be used any more.
 */
int stash_agent(struct stash *s, const struct stash_ask *q, const int *fds, unsigned nfds, pid_t *ret_pid,
		int *ret_pidfd);
/* Kills the holder and waits for its end. The agents that it has made continue. Does nothing for an empty @s. */
void stash_end(struct env *v, struct stash *s);
