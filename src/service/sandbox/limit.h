/* Other limits for a sandbox that is there. */
#pragma once
#include "service/sandbox/sandbox.h"

/*
 * @l: memory, disk, pids, cpu_milli; 0: as it is. Of one that runs or is paused they are in force when @fn is called, of one that is
 * hibernated or stopped when it runs again. Waits for other changes of it. ERR_QUOTA, ERR_CONFLICT when more memory is in use, and
 * ERR_UNSUPPORTED for what cannot change in this state; then they are what they were.
 */
void sandbox_limit(struct sandbox *b, const struct who *who, const struct spec_limits *l, sandbox_done_fn *fn,
		   void *arg);

/* What is stored is put in force again: the daemon may have died between the two. */
void sandbox_limit_again(struct sandbox *b);
