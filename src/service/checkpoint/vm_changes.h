/*
 * The differences between the image and a machine's files, listed by the guest's own kernel: the host never mounts or
 * parses a disk that a guest has written. A running machine is asked itself. For a checkpoint, or a paused machine, a
 * hidden clone is asked, without its processes, and ended.
 */
#pragma once
#include "service/checkpoint/compare.h"

/* As compare_open; of a sandbox or a checkpoint that is a machine. All that comes is hostile, but it ends. */
int vm_changes_open(struct service *s, const struct state *of, unsigned flags, uint32_t max, compare_fn *fn, void *arg,
		    struct err *e);
