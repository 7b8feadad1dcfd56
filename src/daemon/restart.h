/* How soon a child that died is started again: at once, then after a growing pause; never a loop that burns the CPU. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define RESTART_DEATHS 10
#define RESTART_WITHIN_MS 30000
#define RESTART_PAUSE_MS 2000

struct restart {
	uint64_t at[RESTART_DEATHS]; /* of the last deaths, as a ring */
	unsigned count; /* all deaths */
};

/*
 * Records a death of the process, now. Returns the milliseconds until it is started again, or -1 after too many deaths
 * in a short time. A process that was @killed (by SIGKILL: the kernel ran out of memory, or an administrator) did not
 * fail itself, and is always started again.
 */
int restart_after(struct restart *r, uint64_t now_ms, bool killed);
