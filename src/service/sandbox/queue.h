/*
 * Changes of a sandbox as a whole, one after the other: a restore in place and a hibernation wait until the one before them,
 * and the checkpoints under way, are over. A delete waits for nothing, and ends the waiting of all others.
 */
#pragma once
#include "service/sandbox/sandbox.h"

/*
 * Calls @fn once: 0 when it is the caller's turn, at once if nothing is under way. -EBUSY (ERR_CONFLICT) after a minute, -ESRCH when the
 * sandbox was deleted. The caller begins its change within @fn.
 */
void sandbox_when_free(struct sandbox *b, sandbox_done_fn *fn, void *arg);
