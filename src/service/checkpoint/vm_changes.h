/*
 * What differs between the image and a machine's files, told by the guest's own kernel: nobody on the host looks at a
 * disk that a guest has written. A machine that runs is asked as it is. Of a checkpoint, or of a machine that is paused,
 * a clone that nobody sees is asked, without its processes, and ended.
 */
#pragma once
#include "service/checkpoint/compare.h"

/* As compare_open; of a sandbox or a checkpoint that is a machine. All that comes is hostile, but it ends. */
int vm_changes_open(struct service *s, const struct state *of, unsigned flags, uint32_t max, compare_fn *fn, void *arg,
		    struct err *e);
