/* Which of a CPU's instructions are used. */
#pragma once
#include <stdbool.h>
#include <stdlib.h>

/* Only those that every CPU of this kind has: in a test build, by CLOCHE_PLAIN_CPU in the environment. */
static inline bool cpu_plain(void)
{
#ifdef CLOCHE_FAULTS
	return getenv("CLOCHE_PLAIN_CPU");
#else
	return false;
#endif
}
