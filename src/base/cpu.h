/* Which of a CPU's instructions are used. */
#pragma once
#include <stdlib.h>
#include <string.h>

/* CPU_PLAIN: only those that every CPU of this kind has. In a test build, by CLOCHE_PLAIN_CPU in the environment. */
enum cpu_use { CPU_ALL, CPU_NO_SHA, CPU_PLAIN };

static inline enum cpu_use cpu_use(void)
{
#ifdef CLOCHE_FAULTS
	const char *s = getenv("CLOCHE_PLAIN_CPU");

	return !s ? CPU_ALL : !strcmp(s, "sha") ? CPU_NO_SHA : CPU_PLAIN;
#else
	return CPU_ALL;
#endif
}
