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
 * One death, now. Milliseconds until it is started again, or -1: too many in too short a time. Who was @killed (SIGKILL: by the
 * kernel that had no memory left, by somebody who tries us) did nothing wrong itself, and is started again however often.
 */
int restart_after(struct restart *r, uint64_t now_ms, bool killed);
