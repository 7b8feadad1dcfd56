/*
 * How the processes of an image are made again: which process starts which. cloche-dump makes the plan to refuse what has
 * none, the agent makes the same plan and follows it.
 *
 * A process inherits its session from the process that starts it, and keeps it unless it leads a session of its own. So
 * the starting process is not always the parent, and a leader may have to start some children before it makes its session.
 */
#pragma once
#include <stdbool.h>

#include "proto/memory.h"

struct mem_plan {
	uint32_t creator; /* the process that starts it, or MEM_NONE: the agent */
	/* not 0: a process of this id is between it and its creator and ends at once, so that init becomes the parent */
	uint32_t temp;
	bool early; /* started before its creator makes a session of its own */
	bool files, folders; /* it shares those of its creator (CLONE_FILES, CLONE_FS) */
};

/* Fills @ret, one for each of the @n processes. 0, or -EOPNOTSUPP with the process and the reason. */
int mem_plan(const struct mem_proc *proc, uint32_t n, const struct mem_thread *thread, uint32_t n_threads,
	     struct mem_plan *ret, struct err *e);
