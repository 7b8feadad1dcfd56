/* The CPUs that a thread may run on, as the kernel's masks have them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define MEM_CPU_WORDS 16 /* of 64 CPUs each; more CPUs are not saved */

static inline unsigned mem_cpus_count(const uint64_t mask[MEM_CPU_WORDS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < MEM_CPU_WORDS; i++)
		n += (unsigned)__builtin_popcountll(mask[i]);
	return n;
}

/*
 * A thread that had @had, less than the @now that it is made with, had chosen them: what is left of them in @allowed (NULL: all) is
 * *ret. False: nothing is to be set.
 */
static inline bool mem_cpus_chosen(const uint64_t had[MEM_CPU_WORDS], const uint64_t *allowed,
				   const uint64_t now[MEM_CPU_WORDS], uint64_t ret[MEM_CPU_WORDS])
{
	for (unsigned i = 0; i < MEM_CPU_WORDS; i++)
		ret[i] = had[i] & (allowed ? allowed[i] : ~0ULL);
	return mem_cpus_count(ret) && mem_cpus_count(had) < mem_cpus_count(now);
}
