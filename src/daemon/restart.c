/* Delays the restarts of a child that ends often. */
#include "daemon/restart.h"
#include "base/base.h"

int restart_after(struct restart *r, uint64_t now_ms, bool killed)
{
	unsigned recent = 0;
	int pause = 100;

	r->at[r->count++ % RESTART_DEATHS] = now_ms;
	for (unsigned i = 0; i < RESTART_DEATHS && i < r->count; i++)
		recent += now_ms - r->at[i] < RESTART_WITHIN_MS;
	if (recent == RESTART_DEATHS)
		return killed ? RESTART_PAUSE_MS : -1;
	if (recent == 1)
		return 0;
	for (unsigned i = 2; i < recent && pause < RESTART_PAUSE_MS; i++)
		pause *= 2;
	return pause < RESTART_PAUSE_MS ? pause : RESTART_PAUSE_MS;
}
